"""Passwords, one-time links, and the sessions of a user."""
