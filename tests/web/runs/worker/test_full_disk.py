"""The real worker and a real trainer on a disk that fills up and is freed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Count

from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.tasks import supervise
from tests.support.small_disk import fill, free, mounted
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run
from tests.support.workers.tiny import make_pair, make_spec

pytestmark = [pytest.mark.full, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk")


def test_a_disk_that_stays_full_pauses_the_run_which_resumes_to_the_end_of_an_undisturbed_one(tmp_path, disk, settings):
    settings.TRAINER_COMMAND = [sys.executable, "-m", "workers"]
    settings.RUNS_DIR = disk
    pair = make_pair(tmp_path)
    spec = make_spec(tmp_path, pair, training={"steps": 9}, checkpoint={"save_steps": 1, "keep": 2})

    def queued() -> Run:
        run = make_run()
        Run.objects.filter(pk=run.pk).update(spec=json.loads(spec.to_json()), total_steps=9)
        run.refresh_from_db()
        return run

    undisturbed, run = queued(), queued()
    assert supervise(undisturbed.pk)

    def fill_after_the_second() -> None:
        assert wait_until(lambda: (run.run_dir / "checkpoints" / "step-000002").exists())
        fill(disk)

    filler = threading.Thread(target=fill_after_the_second)
    filler.start()
    supervise(run.pk)
    filler.join()
    run.refresh_from_db()
    assert (run.state, run.interruptions) == ("paused", 0), run.reason
    assert run.reason.startswith("disk: ")
    free(disk)
    run.request_resume("there is room again")
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.interruptions, run.step) == ("completed", 0, 9)

    def recorded(of: Run) -> dict[tuple[Any, ...], Any]:
        """By step, agent and source: what the attempt that went on from the checkpoint recorded again counts."""
        rows = of.events.filter(type="metrics").order_by("seq").values_list("step", "agent", "source", "payload")
        return {tuple(key): payload for *key, payload in rows}

    assert recorded(run) == recorded(undisturbed)
    assert len(recorded(run)) == 9 * 4  # two agents and two pairs

    def counts(of: Run, rows: str) -> dict[int, int]:
        """By step, of its latest attempt: how many steps were recorded before the disk was full differs."""
        by_attempt = getattr(of, rows).order_by("attempt").values_list("step", "attempt").annotate(Count("pk"))
        return {step: count for step, _, count in by_attempt}

    for rows in ("rollouts", "contributions"):
        assert counts(run, rows) == counts(undisturbed, rows)
