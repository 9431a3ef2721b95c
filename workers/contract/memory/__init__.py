"""A machine that trains, the memory that a run needs, and settings with which a run fits. No torch."""
