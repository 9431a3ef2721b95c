"""The API of runs, sweeps, drafts and hosts. It parses and answers; the work is in the other packages."""
