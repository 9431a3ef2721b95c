"""Boards of algorithms, with intervals, figures and exports. It reads completed runs; the demo alone imports it."""
