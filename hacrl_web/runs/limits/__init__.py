"""Quotas and retention of projects: set on the project's page and by the API, and the removal of what is too old.

A feature of settings.FEATURES. It knows no launch: rows that it wrote are the rule wherever runs are queued or claimed.
"""
