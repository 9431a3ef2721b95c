"""A stand-in of reasoning-gym: its interface as far as the product uses it, and four generators of its names."""

from __future__ import annotations

from reasoning_gym.factory import DATASETS


def create_dataset(name, **settings):
    kind, config = DATASETS[name]
    return kind(config(**settings))
