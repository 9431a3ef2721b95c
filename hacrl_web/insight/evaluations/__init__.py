"""Evaluations of a run and evaluations without training. Scores of other programs stay beside ours."""
