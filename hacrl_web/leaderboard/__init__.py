"""Boards of algorithms, with intervals, figures and exports. It reads completed runs; of the apps only the demo imports it."""
