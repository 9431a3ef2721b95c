"""Fixtures of the web tests: no Redis unless a test brings one, run directories of their own, the fake trainer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

from hacrl_web.runs import redis_client
from tests.web import factories


@pytest.fixture(autouse=True)
def _own_folders(settings, tmp_path):
    """Each test has its own run directories, and a Redis address where nobody answers."""
    settings.RUNS_DIR = tmp_path / "runs"
    settings.REDIS_URL = f"unix://{tmp_path}/no-redis.sock"


@pytest.fixture(autouse=True)
def _forget_redis(monkeypatch):
    """Nothing that one test learnt of Redis is known to the next."""
    monkeypatch.setattr(redis_client, "_client", None)
    monkeypatch.setattr(redis_client.guard, "_closed_until", 0.0)


@pytest.fixture
def fake_trainer(settings):
    """Runs are trained by tests/fake_trainer.py."""
    settings.TRAINER_COMMAND = [sys.executable, "-m", "tests.fake_trainer"]


@pytest.fixture
def user(db):
    return factories.make_user()


@pytest.fixture
def make_run(db):
    return factories.make_run


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Look every 20 ms until it is true or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
