"""Values of ended runs are read once for each import and last event; those of other runs each time."""

import pytest

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run
from tests.support.web.factories import make_run, make_user

pytestmark = pytest.mark.django_db


class Reader:
    """Counts what is read of each run."""

    def __init__(self):
        self.read_runs = []

    def __call__(self, runs):
        self.read_runs += [run.name for run in runs]
        return {run.pk: [len(self.read_runs)] for run in runs}


def run_of(owner, name, state, last_seq) -> Run:
    run = make_run(owner, name=name)
    Run.objects.filter(pk=run.pk).update(state=state, last_seq=last_seq)
    return Run.objects.get(pk=run.pk)


def test_ended_run_is_read_once_for_its_last_event_and_its_import():
    owner, read = make_user(), Reader()
    ended = run_of(owner, "ended", State.STOPPED, 7)
    live = run_of(owner, "live", State.RUNNING, 7)
    bare = run_of(owner, "bare", State.FAILED, 0)
    runs = [ended, live, bare]
    first = cached_by_run("test", runs, read)
    assert first == {ended.pk: [3], live.pk: [3], bare.pk: [3]}
    first[ended.pk].append("changed by its reader")
    assert cached_by_run("test", runs, read) == {ended.pk: [3], live.pk: [5], bare.pk: [5]}
    assert read.read_runs == ["ended", "live", "bare", "live", "bare"]
    ended.last_seq = 8
    assert cached_by_run("test", [ended], read) == {ended.pk: [6]}
    assert cached_by_run("other", [ended], read) == {ended.pk: [7]}
    assert cached_by_run("other", [], read) == {}
    ended.origin = {"import_id": "of another import"}
    assert cached_by_run("test", [ended], read) == {ended.pk: [8]}


def test_number_of_cached_values_is_limited(settings):
    owner, read = make_user(), Reader()
    run = run_of(owner, "run", State.COMPLETED, 1)
    limit = settings.CACHES["ended_runs"]["OPTIONS"]["MAX_ENTRIES"]
    for run.last_seq in range(1, limit + 2):
        cached_by_run("test", [run], lambda runs: {one.pk: 0 for one in runs})
    for run.last_seq in range(1, limit + 2):
        cached_by_run("test", [run], read)
    assert len(read.read_runs) > limit // 4
