"""Reward functions and judges: one service, one set of pages, one API. It knows no benchmark's files."""
