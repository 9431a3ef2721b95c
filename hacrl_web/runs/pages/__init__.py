"""The pages of runs, sweeps, drafts and hosts. They parse, call and render."""
