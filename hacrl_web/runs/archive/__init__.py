"""Archiving and deleting runs, and removing what deleted ones left. It knows no page."""
