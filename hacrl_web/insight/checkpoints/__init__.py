"""Checkpoints of a run: listed, downloaded, promoted, pushed, continued, asked. It knows no picture."""
