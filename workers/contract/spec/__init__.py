"""RunSpec, all settings of a run, a module for each section. It starts nothing and reads no machine."""
