"""Answers of a run: filtered, sorted, and the weight of each explained."""
