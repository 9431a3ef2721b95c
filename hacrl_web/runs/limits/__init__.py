"""Quotas and retention of projects: counted, checked, enforced, set on the project's page."""
