"""API tokens, and launches that happen once though they are sent twice."""
