"""Readings of ended runs are kept until late events are stored; those of others are read each time."""

import pytest

from hacrl_web.runs.models import Run, State
from hacrl_web.runs.telemetry.kept_readings import kept_readings
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


def test_ended_run_is_read_once_and_again_after_a_late_event():
    owner, read = make_user(), Reader()
    ended = run_of(owner, "ended", State.STOPPED, 7)
    live = run_of(owner, "live", State.RUNNING, 7)
    bare = run_of(owner, "bare", State.FAILED, 0)
    runs = [ended, live, bare]
    first = kept_readings("test", runs, read)
    assert first == {ended.pk: [3], live.pk: [3], bare.pk: [3]}
    first[ended.pk].append("changed by its reader")
    assert kept_readings("test", runs, read) == {ended.pk: [3], live.pk: [5], bare.pk: [5]}
    assert read.read_runs == ["ended", "live", "bare", "live", "bare"]
    ended.last_seq = 8
    assert kept_readings("test", [ended], read) == {ended.pk: [6]}
    assert kept_readings("other", [ended], read) == {ended.pk: [7]}
    assert kept_readings("other", [], read) == {}


def test_number_of_kept_readings_is_limited(settings):
    owner, read = make_user(), Reader()
    run = run_of(owner, "run", State.COMPLETED, 1)
    limit = settings.CACHES["readings"]["OPTIONS"]["MAX_ENTRIES"]
    for run.last_seq in range(1, limit + 2):
        kept_readings("test", [run], lambda runs: {one.pk: 0 for one in runs})
    for run.last_seq in range(1, limit + 2):
        kept_readings("test", [run], read)
    assert len(read.read_runs) > limit // 4
