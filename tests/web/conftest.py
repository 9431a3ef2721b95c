"""Fixtures of the web tests: no Redis unless a test brings one, run directories of their own, the fake trainer."""

from __future__ import annotations

import sys

import pytest

from hacrl_web.registry.base import children
from hacrl_web.runs.messages import pubsub
from tests.support.forked import FORKING, Forked
from tests.support.web import factories
from workers.contract import trainer_process


@pytest.fixture(autouse=True)
def _own_folders(settings, tmp_path):
    """Each test has its own run directories and question files, and a Redis address where nobody answers."""
    settings.RUNS_DIR = tmp_path / "runs"
    settings.BENCHMARKS_DIR = tmp_path / "benchmarks"
    settings.REDIS_URL = f"unix://{tmp_path}/no-redis.sock"


@pytest.fixture(autouse=True)
def _forget_redis(monkeypatch):
    """What one test learnt of Redis is not known to the next."""
    pubsub.client.cache_clear()
    monkeypatch.setattr(pubsub.guard, "_closed_until", 0.0)


@pytest.fixture
def real_children():
    """For tests of what a child may use or shows of itself: it is a process of its own, with its limits."""


@pytest.fixture
def forked_children(request, monkeypatch):
    """Children of the registry need not load Python and our modules again."""
    if "real_children" not in request.fixturenames:
        limit = children._limit
        monkeypatch.setattr(children, "subprocess", FORKING)
        # The tests' process, and so a fork of it, is larger than most children may be.
        monkeypatch.setattr(children, "_limit", lambda pid, *limits: pid in Forked.forks or limit(pid, *limits))


@pytest.fixture
def fake_trainer(request, settings, monkeypatch):
    """Runs are trained by forks that are tests/support/fake_trainer.py."""
    settings.TRAINER_COMMAND = [sys.executable, "-m", "tests.support.fake_trainer"]
    if "real_children" not in request.fixturenames:
        monkeypatch.setattr(trainer_process, "subprocess", FORKING)


@pytest.fixture
def user(db):
    return factories.make_user()


@pytest.fixture
def web(client, user):
    """A client that is logged in as `user`."""
    client.force_login(user)
    return client


@pytest.fixture
def owner(web, user):
    """The same, for tests that speak of whose the rows are; `client` is logged in."""
    return user


@pytest.fixture
def ada(client, db):
    """A user with a name that pages show; `client` is logged in."""
    user = factories.make_user("ada")
    client.force_login(user)
    return user


@pytest.fixture
def folder(settings):
    """Where question files are kept."""
    return settings.BENCHMARKS_DIR


@pytest.fixture
def make_run(db):
    return factories.make_run
