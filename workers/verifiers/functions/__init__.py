"""Reward functions of users, each in a sandboxed process. They see what the run's settings allow."""
