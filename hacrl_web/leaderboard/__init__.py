"""Boards of algorithms, with intervals, figures and exports. It reads completed runs; nothing imports it."""
