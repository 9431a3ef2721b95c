"""Sweeps and searches: launched, advanced, stopped, continued as one."""
