"""Stores the events of a spool as rows, each once, and reads series from them. It knows no socket and no page."""
