"""A real trainer whose run folder lies on a small disk that fills up and is freed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.small_disk import fill, free, mounted
from tests.support.workers.tiny import make_pair, make_spec, same_weights, train
from workers.contract.spool import read_spool
from workers.trainer.trainer import Trainer

pytestmark = pytest.mark.full


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk")


def of_type(run_dir: Path, *kinds: str) -> list[dict[str, Any]]:
    times = ("time", "seq", "attempt")
    return [
        {key: value for key, value in record.items() if key not in times}
        for record in read_spool(run_dir)
        if record["type"] in kinds
    ]


def test_a_disk_that_is_full_for_two_steps_costs_two_checkpoints_and_no_event(tmp_path, disk, monkeypatch):
    pair = make_pair(tmp_path)
    spec = make_spec(tmp_path, pair, training={"steps": 6}, checkpoint={"save_steps": 1, "keep": 2})
    undisturbed = train(spec, tmp_path / "expected")
    one_step = Trainer.one_step

    def on_a_disk(self: Trainer, *args: Any, **options: Any) -> Any:
        if self.step == 2:
            fill(disk)
        if self.step == 4:
            free(disk)
        return one_step(self, *args, **options)

    monkeypatch.setattr(Trainer, "one_step", on_a_disk)
    disturbed = train(spec, disk / "run")
    assert same_weights(disturbed, undisturbed)

    steps = range(1, 7)
    assert [record["step"] for record in of_type(disk / "run", "checkpoint")] == [1, 2, 5, 6]
    told = [record for record in of_type(disk / "run", "log") if record["incident"] == "disk"]
    assert [record["message"].partition(" [")[0] for record in told[:2]] == [
        f"checkpoint of step {step} not written, the earlier ones are kept:" for step in (3, 4)
    ]
    assert told[2]["message"].endswith("events waited for the spool and none was lost")
    for kind in ("metrics", "rollout", "contribution", "evaluation"):
        assert of_type(disk / "run", kind) == of_type(tmp_path / "expected", kind)
    assert {record["step"] for record in of_type(disk / "run", "metrics")} == {*steps}
