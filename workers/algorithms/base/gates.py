"""Gates: how much of a shared rollout's gradient passes, by its sequence ratio s and the sign of its advantage.

A learner's update from a shared rollout is g(s, sign A) * omega * A * cross_weight * grad log s. HACPO's own g is the
stepwise clip of Eqs. (12) and (14), in hacpo.py; the gates here depend on s and the sign alone. Each is written once,
for tensors (`ops` is torch) and for pages, which load no torch (`ops` is numpy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gate:
    """A gate's formula in words and its source. value: g from s, the sign of A (-1, 0, 1), delta and `ops`."""

    formula: str
    source: str
    value: Callable[[Any, Any, float, Any], Any]


def _signed(s: Any, sign: Any, delta: float, ops: Any) -> Any:
    return ops.where(sign > 0, ops.clip(s, 1 - delta, 1.0), ops.where(s >= 1, 1.0, 0.0))


def _gamma(s: Any, sign: Any, delta: float, ops: Any) -> Any:
    # And not s^2 e^(...): the largest s have no square in float32, and inf * 0 is no number.
    return ops.where(sign > 0, (s * ops.exp(3 / 2 * (1 - s))) ** 2, (s * ops.exp(2 / 3 * (1 - s))) ** 3)


GATES = {
    "signed": Gate(
        "A > 0: s clipped to [1 - delta, 1]; A < 0: 1 where s >= 1, else 0",
        "ours",
        _signed,
    ),
    "gamma": Gate(
        "A > 0: s^2 e^(3 (1 - s)); A < 0: s^3 e^(2 (1 - s))",
        "VESPO, arXiv 2602.10693",
        _gamma,
    ),
}
