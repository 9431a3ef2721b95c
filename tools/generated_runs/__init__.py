"""Runs with invented numbers, for pages without a training (`./hacrl seed_demo_data`)."""
