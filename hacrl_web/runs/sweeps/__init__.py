"""Sweeps and searches under way: advanced, stopped, continued as one; their pages and their API."""
