"""Evaluations by lm-evaluation-harness: their form, launch and results. The core works without it."""
