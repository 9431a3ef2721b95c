"""Agents that learn together: their settings, their changes for one run, what two models have in common."""
