"""Commands and short child processes of the web: try an answer, or a reward. They need no run."""
