"""Texts that people write about their runs, with live panels. Nothing imports it."""
