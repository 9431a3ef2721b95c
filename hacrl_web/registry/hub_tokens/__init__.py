"""Hugging Face tokens of users and projects: set, checked, used; shown to nobody."""
