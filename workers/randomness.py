"""Random numbers derived from their purpose. There is no global stream, so a resumed run repeats itself.

Keys are hashes of (run seed, agent seed, step, prompt, sample, ...); numbers come from a counter-based generator, so
one rollout's randomness does not depend on the rollouts sampled beside it.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
from numpy.typing import NDArray

# SplitMix64 (Steele, Lea, Flood 2014): a bijective mix of a 64-bit counter.
_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derived_key(*parts: int | str) -> int:
    """A 64-bit key for one purpose, such as ("sample", run seed, agent seed, step, prompt id, sample)."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")


def uniforms(keys: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1) for each key: (len(keys), count)."""
    with np.errstate(over="ignore"):
        state = keys[:, None] + _GOLDEN_GAMMA * np.arange(1, count + 1, dtype=np.uint64)[None, :]
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, key: int) -> list[int]:
    """The numbers 0 to count - 1 in an order derived from the key."""
    order = list(range(count))
    random.Random(key).shuffle(order)
    return order
