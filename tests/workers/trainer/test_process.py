"""`python -m workers SPEC.json RUN_DIR` as a process: exit statuses, the last event, signals, attempts."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.workers.processes import forked as forked
from tests.support.workers.processes import run_trainer
from tests.support.workers.tiny import character_tokenizer, make_agent, make_pair, make_spec, records
from workers.contract.spec import teaching
from workers.contract.spec.run import RunSpec
from workers.contract.trainer_process import DISK_FULL_STATUS, RunDirBusy, lease_path, lock_run_dir, start_trainer

pytestmark = pytest.mark.usefixtures("forked")
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> RunSpec:
    root = tmp_path_factory.mktemp("process")
    return make_spec(root, make_pair(root), training={"steps": 2})


def run(spec: RunSpec | str, run_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = run_dir.parent / "given.json"
    path.write_text(spec if isinstance(spec, str) else spec.to_json())
    return subprocess.run(
        [sys.executable, "-m", "workers", str(path), str(run_dir), *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def wait_for(run_dir: Path, kind: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (run_dir / "events.jsonl").exists() and records(run_dir, kind):
            return
        time.sleep(0.02)
    raise AssertionError(f"no {kind} event: {(run_dir / 'trainer.log').read_text()}")


@pytest.mark.slow
def test_run_completes_and_a_second_call_resumes_it(tmp_path, spec):
    done = run(spec, tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        f"python -m workers: {caution.message}" for caution in teaching.cautions_of(spec)
    ]
    assert RunSpec.from_file(tmp_path / "run" / "spec.json") == spec
    assert (
        records(tmp_path / "run", "finished")[0] | {"step": 2, "outcome": "completed"}
        == records(tmp_path / "run", "finished")[0]
    )
    assert run_trainer(spec, tmp_path / "run")[0] == 0  # the second attempt finds nothing left to do
    started = records(tmp_path / "run", "started")
    assert [(record["attempt"], record["step"]) for record in started] == [(1, 0), (2, 2)]
    seqs = [json.loads(line)["seq"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.slow
def test_failure_is_the_last_event_with_its_reason(tmp_path, spec):
    broken = spec.model_dump(mode="json")
    broken["agents"][0]["model"] = str(tmp_path / "missing")
    status, errors = run_trainer(RunSpec.model_validate(broken), tmp_path / "run")
    assert status == 1
    assert "Traceback" in errors
    (finished,) = records(tmp_path / "run", "finished")
    assert finished["outcome"] == "failed"
    assert "missing" in finished["reason"]


def test_tokenizer_that_is_larger_than_its_model_is_named_with_its_agent(tmp_path, spec):
    make_agent(tmp_path / "small", "qwen3")
    tokenizer = character_tokenizer(("<new>", "<newer>"))
    rows = len(tokenizer) - 2
    tokenizer.save_pretrained(tmp_path / "small")
    broken = spec.model_dump(mode="json")
    broken["agents"][1]["model"] = str(tmp_path / "small")
    assert run_trainer(RunSpec.model_validate(broken), tmp_path / "run")[0] == 1
    (finished,) = records(tmp_path / "run", "finished")
    told = f"agent 'Llama': The tokenizer has {rows + 2} tokens but the model only {rows}: use the model's tokenizer."
    assert (finished["outcome"], finished["step"]) == ("failed", 0)
    assert told in finished["reason"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate: Input should be a valid number"),
    ],
)
def test_invalid_spec_is_one_clear_line_and_writes_nothing(tmp_path, spec, change, told):
    done = run(json.dumps({**spec.model_dump(mode="json"), **change}), tmp_path / "run")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert not (tmp_path / "run").exists()


def test_run_dir_of_another_run_or_trainer_is_refused(tmp_path, spec):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    lock = lock_run_dir(run_dir)
    done = run(spec, run_dir)
    assert (done.returncode, "in use by another trainer" in done.stderr) == (2, True)
    os.close(lock)
    (run_dir / "spec.json").write_text(spec.model_copy(update={"seed": 99}).to_json())
    done = run(spec, run_dir)
    assert (done.returncode, "holds another run" in done.stderr) == (2, True)


def endless_trainer(run_dir, spec, prefix=()):
    """One that has trained a step, of more than anybody waits for."""
    run_dir.mkdir()
    endless = spec.model_copy(update={"training": spec.training.model_copy(update={"steps": 100_000})})
    (run_dir / "spec.json").write_text(endless.to_json())
    trainer = start_trainer(run_dir, 1, environment=ENVIRONMENT, prefix=prefix)
    wait_for(run_dir, "progress", trainer.process)
    return trainer


@pytest.mark.slow
def test_term_stops_after_the_phase_with_a_checkpoint(tmp_path, spec):
    run_dir = tmp_path / "run"
    trainer = endless_trainer(run_dir, spec)
    trainer.request_stop()
    assert trainer.process.wait(60) == 0
    (finished,) = records(run_dir, "finished")
    assert (finished["outcome"], finished["reason"]) == ("stopped", "stop was requested")
    assert finished["step"] >= 1
    # A stop in the middle of a step leaves no checkpoint (all agents or none), one between steps does.
    assert [record["step"] for record in records(run_dir, "checkpoint")] in ([], [finished["step"]])
    trainer.kill()


@pytest.mark.slow
def test_term_while_loading_stops_the_run(tmp_path, spec):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "spec.json").write_text(spec.to_json())
    trainer = start_trainer(run_dir, 1, environment=ENVIRONMENT)
    deadline = time.monotonic() + 60
    while not (run_dir / "events.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    trainer.request_stop()
    assert trainer.process.wait(60) == 0
    assert records(run_dir, "finished")[0]["outcome"] == "stopped"
    trainer.kill()


@pytest.mark.slow
def test_trainer_dies_with_its_supervisor(tmp_path, spec):
    run_dir = tmp_path / "run"
    trainer = endless_trainer(run_dir, spec)
    os.close(trainer._death_pipe)  # what the kernel does when the supervisor is gone
    trainer._death_pipe = -1
    assert trainer.process.wait(60) == -signal.SIGKILL


@pytest.mark.full
def test_trainer_behind_a_prefix_holds_the_run_folder_and_ends_with_its_lease(tmp_path, spec):
    run_dir = tmp_path / "run"
    trainer = endless_trainer(run_dir, spec, ["nice"])
    with pytest.raises(RunDirBusy):
        lock_run_dir(run_dir)
    lease_path(run_dir, 1).unlink()
    assert trainer.process.wait(60) == -signal.SIGKILL
    os.close(lock_run_dir(run_dir))
    trainer.kill()


def test_spool_that_cannot_be_opened_is_reported(tmp_path, spec, capsys, monkeypatch):
    from workers import __main__ as process

    monkeypatch.setattr(process.StopFlag, "handle_signals", lambda stop: None)
    (tmp_path / "events.jsonl").mkdir()
    assert process.run(spec, tmp_path, 1) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"python -m workers: cannot write {tmp_path / 'events.jsonl'}: IsADirectoryError")


@pytest.mark.parametrize("place", ["SpoolWriter", "read_spool"])
def test_trainer_that_starts_on_a_full_disk_says_so_by_its_status(tmp_path, spec, capsys, monkeypatch, place):
    from workers import __main__ as process

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process.StopFlag, "handle_signals", lambda stop: None)
    monkeypatch.setattr(process.trainer_process, "dump_stacks_on_signal", lambda: None)
    monkeypatch.setattr(process, place, refused)
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    assert process.main([str(path), str(tmp_path / "run")]) == DISK_FULL_STATUS
    assert "No space left on device" in capsys.readouterr().err


def test_attempt_after_a_damaged_line_counts_the_sound_ones(tmp_path, spec, monkeypatch):
    from workers import __main__ as process
    from workers.contract.events import Log
    from workers.contract.spool import SpoolWriter

    for attempt in (1, 2):
        writer = SpoolWriter(tmp_path, attempt)
        writer.emit(Log(message=f"attempt {attempt}"))
        writer.close()
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b"attempt 2", b"attempt 9"))
    monkeypatch.setenv(process.trainer_process.DEATH_PIPE_VARIABLE, "")
    monkeypatch.setattr(process.trainer_process, "die_with_supervisor", lambda: None)
    assert process.prepare(spec, tmp_path, None) == 2


def test_cautions_confirmed_at_launch_are_not_repeated(tmp_path, spec, capfd, monkeypatch):
    from workers import __main__ as process

    wide = spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"delta": 0.8})})
    monkeypatch.setattr(process.trainer_process, "die_with_supervisor", lambda: None)
    monkeypatch.setenv(process.trainer_process.DEATH_PIPE_VARIABLE, "")
    process.prepare(wide, tmp_path / "launched", None)
    assert capfd.readouterr().err == ""
    monkeypatch.delenv(process.trainer_process.DEATH_PIPE_VARIABLE)
    process.prepare(wide, tmp_path / "by hand", None)
    assert "is a delta of 0.2 here" in capfd.readouterr().err


def test_second_request_ends_at_once_and_leaves_a_sound_spool(tmp_path, spec, monkeypatch):
    from workers import __main__ as process
    from workers.trainer.trainer import Trainer

    def interrupted(trainer: Trainer) -> None:
        trainer.progress.spool.seq += 5  # counted but not yet written when the signal came
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the second signal did not end the phase")

    monkeypatch.setattr(Trainer, "train", interrupted)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert process.run(spec, tmp_path, 1) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    (finished,) = records(tmp_path, "finished")
    assert (finished["seq"], finished["outcome"], finished["reason"]) == (1, "stopped", "stop was requested twice")
