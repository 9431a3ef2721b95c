"""Kinds of verifier with partial credit for words and fields of JSON. Text alone decides."""
