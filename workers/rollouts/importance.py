"""Step 2 of Algorithm 1, aside: rollouts come from an engine that computes a little differently than the trainer.

Truncated importance sampling (Ionides 2008; for rollout engines: Yao et al., "Your efficient RL framework secretly
brings you off-policy RL training", 2025): a rollout weighs as much as the trainer's policy is likelier to write it than
the engine's, but at most a cap. Here one weight for a rollout, of mean log-probabilities as in the sequence ratio.
"""

from __future__ import annotations

import math


def truncated_weight(trainer_mean_logp: float, engine_mean_logp: float, cap: float) -> float:
    """min(exp(trainer - engine), cap) of one rollout's mean log-probabilities by token, both at the same weights."""
    # Compared before exp: a token that the trainer holds impossible, or the engine, must not overflow.
    difference = trainer_mean_logp - engine_mean_logp
    return cap if difference >= math.log(cap) else math.exp(difference)
