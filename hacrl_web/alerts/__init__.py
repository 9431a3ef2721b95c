"""Rules on the metrics of runs, what they found, and messages about it. It changes no run."""
