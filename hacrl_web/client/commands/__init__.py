"""The commands that take several operations of the API; those of one are in verbs.py."""
