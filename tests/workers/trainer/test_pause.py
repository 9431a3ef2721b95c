"""A pause ends the trainer after its step with a checkpoint; the run goes on from it as if nothing had been."""

from __future__ import annotations

import pytest

from tests.support.marks import in_full
from tests.support.waiting import wait_until
from tests.support.workers.processes import forked as forked
from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train
from tests.workers.trainer.test_evaluation import AsksAt
from tests.workers.trainer.test_process import ENVIRONMENT, wait_for
from tests.workers.trainer.test_resume import assert_same_end
from workers import heartbeat
from workers.contract.trainer_log import LOG_NAME
from workers.contract.trainer_process import HEARTBEAT_NAME, start_trainer
from workers.trainer import checkpoints
from workers.trainer.scoring import Scorer
from workers.trainer.stop_signals import Paused, StopFlag
from workers.verifiers.scoring.service import Verifier

pytestmark = pytest.mark.usefixtures("forked")


def pauses_at(stop: StopFlag, call: int) -> AsksAt:
    """Asks for a pause while call number `call` is verified: calls 1, 2 are the first evaluation, 3 is step 1."""
    return AsksAt(stop, "is_pause_requested", call)


# eval_interval 2: calls 1, 2 evaluate; 3, 4 are steps 1, 2; 5, 6 evaluate; 7 is step 3.
@pytest.mark.parametrize(("call", "step"), [(7, 3), *in_full((3, 1), (4, 2), (6, 2))])
def test_paused_run_resumes_bit_for_bit(tmp_path, call, step):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 4, "lr_schedule": "cosine"})
    train(spec, tmp_path / "whole")
    stop = StopFlag()
    with pytest.raises(Paused, match=r"^pause was requested$"):
        train(spec, tmp_path / "run", verifier=pauses_at(stop, call), stop=stop)
    # After the step under way, and not a step later: checkpoints are otherwise only made after the last step.
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [step]
    train(spec, tmp_path / "run", attempt=2)
    assert [record["step"] for record in records(tmp_path / "run", "started")] == [0, step]
    assert_same_end(tmp_path / "run", tmp_path / "whole")


def test_pause_before_the_first_step_needs_no_checkpoint(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path))
    stop = StopFlag()
    with pytest.raises(Paused):
        train(spec, tmp_path / "run", verifier=pauses_at(stop, 1), stop=stop)
    assert records(tmp_path / "run", "checkpoint") == []
    assert records(tmp_path / "run", "progress") == []


def test_pause_in_the_last_step_is_a_completed_run(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 1})
    stop = StopFlag()
    train(spec, tmp_path / "run", verifier=pauses_at(stop, 3), stop=stop)
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1]


def test_pause_whose_checkpoint_cannot_be_written_names_where_the_run_resumes(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_checkpoint", full)
    stop = StopFlag()
    with pytest.raises(Paused, match="no checkpoint of step 1 could be written, so it resumes from an earlier one"):
        train(make_spec(tmp_path, make_pair(tmp_path)), tmp_path / "run", verifier=pauses_at(stop, 3), stop=stop)
    told = [(record["incident"], record["step"]) for record in records(tmp_path / "run", "log") if record["incident"]]
    assert told == [("disk", 1)]


@pytest.mark.slow
def test_process_writes_its_stacks_at_one_signal_and_at_another_pauses_to_resume(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 100_000}, evaluation={"eval_interval": 0})
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(spec.to_json())
    process = start_trainer(run_dir, 1, environment=ENVIRONMENT)
    try:
        wait_for(run_dir, "progress", process.process)
        assert (run_dir / HEARTBEAT_NAME).exists()
        process.dump_stacks()
        assert wait_until(lambda: "most recent call first" in (run_dir / LOG_NAME).read_text())
        process.request_pause()
        assert process.process.wait(60) == 0
    finally:
        process.kill()
    (finished,) = records(run_dir, "finished")
    assert (finished["outcome"], finished["reason"]) == ("paused", "pause was requested")
    assert [record["step"] for record in records(run_dir, "checkpoint")] == [finished["step"]]
    again = start_trainer(run_dir, 2, environment=ENVIRONMENT)
    try:
        wait_for_attempt(run_dir, 2, again.process)
    finally:
        again.kill()
    assert records(run_dir, "started")[-1]["step"] == finished["step"]


def wait_for_attempt(run_dir, attempt, process) -> None:
    wait_for(run_dir, "started", process)
    while process.poll() is None and records(run_dir, "started")[-1]["attempt"] != attempt:
        pass


def test_waiting_for_the_verifier_and_asking_about_answers_is_work(monkeypatch):
    """A stall_timeout_s below their time must not take them for a trainer that hangs."""
    beats = []
    monkeypatch.setattr(heartbeat, "send_heartbeat", lambda: beats.append(1))
    Scorer(HashVerifier(), StopFlag(), warn=print)._wait(0.3)
    assert len(beats) >= 2
    beats.clear()
    with Verifier("exact") as verifier:
        assert verifier.doubts(["1", "2", "3"]) == ["", "", ""]
    assert len(beats) == 3


def test_heartbeat_changes_only_its_own_file_and_at_most_once_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(heartbeat, "_heartbeat", heartbeat._Heartbeat())
    heartbeat.send_heartbeat()  # before start: nothing
    heartbeat.start(tmp_path)
    times = []
    for seconds in (0.0, 0.5, 0.6):
        now[0] += seconds
        heartbeat.send_heartbeat()
        times.append((tmp_path / HEARTBEAT_NAME).stat().st_mtime_ns)
    assert times[0] == times[1] < times[2]
    assert [path.name for path in tmp_path.iterdir()] == [HEARTBEAT_NAME]
