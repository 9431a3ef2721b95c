"""Training, and processes beside the web: they know neither Django nor the web."""
