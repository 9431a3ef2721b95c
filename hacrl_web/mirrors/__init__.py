"""Mirrors: where the numbers of a project's runs are sent, set on its page, and the follower that sends them.

The follower (`manage.py watch`) reads runs by their public cursor, as any client of the API may. Nothing imports it.
"""
