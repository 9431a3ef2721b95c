"""Rewards by a language model or a reward model, at an address or on this machine. Keys are in no file or log."""
