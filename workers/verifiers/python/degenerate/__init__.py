"""Answers that solve nothing: comparisons that would reward them, and their trial when a benchmark is imported."""
