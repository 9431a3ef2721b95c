"""What recorded runs say: the tabs of a run, Compare and export. It reads runs and changes none of their numbers."""
