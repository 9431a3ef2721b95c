"""A board as figures, CSV, LaTeX and HTML. It computes no score."""
