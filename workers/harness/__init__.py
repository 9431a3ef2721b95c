"""Evaluations by lm-evaluation-harness, in a process and an environment of its own. Our verifiers are not used."""
