"""Rewards of responses. Nothing here knows runs, agents or tensors: texts come in, verdicts go out."""
