"""Who taught whom: weights and clipping of each pair of agents. It knows no answer's text."""
