"""Agents that many tests train: random models of a few thousand weights, made once for each file."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    from tests.support.workers.tiny import make_pair

    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    from tests.support.workers.tiny import make_agent, make_pair

    root = tmp_path_factory.mktemp("trio")
    return [*make_pair(root), {"name": "Third", "model": str(make_agent(root / "third", "llama", seed=9))}]
