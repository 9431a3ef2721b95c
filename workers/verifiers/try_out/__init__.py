"""Short child processes of the web, and a command: an answer or a reward is tried. They need no run."""
