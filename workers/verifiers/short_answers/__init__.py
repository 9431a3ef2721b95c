"""Kinds of verifier for a letter, a number, a pattern and an expression. They know nothing of questions."""
