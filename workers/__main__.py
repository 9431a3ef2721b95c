"""`python -m workers SPEC.json RUN_DIR`: the trainer process, from the command line to the `finished` event.

Exit status: 0 completed, stopped or paused, 1 failed or interrupted (the reason is in the `finished` event, the
traceback on stderr), 2 nothing was started (invalid spec, busy run directory).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workers import heartbeat
from workers.agents.messages import AgentLost
from workers.contract import events, trainer_process
from workers.contract.spec import teaching
from workers.contract.spec.judge import JudgeFileError
from workers.contract.spec.reward_function import FunctionFileError
from workers.contract.spec.run import InvalidSettings, RunSpec
from workers.contract.spool import DISK_FULL, SPOOL_NAME, SpoolWriter, read_spool
from workers.environments.base import EnvironmentFailed
from workers.harness.command import HarnessFailed
from workers.harness.evaluation import HarnessEvaluation
from workers.model.call_limits import late_calls_end
from workers.trainer.stop_signals import Paused, StopFlag, StopNow, Stopped

if TYPE_CHECKING:
    from workers.trainer.trainer import Trainer


class RunRefused(Exception):
    """The run was not started; the text gives the reason."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers", description="Train the agents of a run.")
    parser.add_argument("spec", type=Path, metavar="SPEC.json", help="the run's specification, or SPEC.yaml")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="folder for events and checkpoints")
    parser.add_argument(
        "--attempt", type=int, help="above 1: resume from the newest checkpoint (default: last attempt in RUN_DIR + 1)"
    )
    # Of a supervisor whose prefix starts this process: the keys of judges are on standard input.
    parser.add_argument(trainer_process.LEASE_OPTION, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        spec = RunSpec.from_file(options.spec)
        attempt = prepare(spec, options.run_dir, options.attempt, has_lease=options.lease)
    except (RunRefused, InvalidSettings) as refusal:
        print(f"python -m workers: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        return _disk_full(f"cannot use {options.run_dir}: {error}")
    return run(spec, options.run_dir, attempt)


def prepare(spec: RunSpec, run_dir: Path, attempt: int | None, *, has_lease: bool = False) -> int:
    """Lock the run directory and write the spec into it; print the spec's cautions.

    Returns the attempt. Errors: RunRefused, InvalidSettings, OSError (a full disk).
    """
    is_supervised = trainer_process.DEATH_PIPE_VARIABLE in os.environ  # then the lock was inherited with the pipe
    trainer_process.die_with_supervisor()
    trainer_process.dump_stacks_on_signal()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        if has_lease and attempt is not None:
            trainer_process.hold_run_dir(run_dir, attempt)
        elif not is_supervised:
            trainer_process.lock_run_dir(run_dir)
            # The cautions of a launched run were confirmed in the form.
            for caution in teaching.cautions_of(spec):
                print(f"python -m workers: {caution.message}", file=sys.stderr)
        own = run_dir / trainer_process.SPEC_NAME
        if own.exists() and RunSpec.from_file(own) != spec:
            raise RunRefused(f"{run_dir} holds another run: choose an empty folder")
        if not own.exists():
            own.write_text(spec.to_json(), encoding="utf-8")
        if attempt is None:
            attempt = 1
            # The spool's writer cuts it at a damaged line.
            with contextlib.suppress(FileNotFoundError, events.DamagedLine):
                for record in read_spool(run_dir):
                    attempt = record["attempt"] + 1
    except trainer_process.RunDirBusy as error:
        raise RunRefused(str(error)) from None
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise RunRefused(f"cannot use {run_dir}: {error.strerror}") from None
    return attempt


def run(spec: RunSpec, run_dir: Path, attempt: int) -> int:
    """Train, and emit how it ended."""
    spool: SpoolWriter | None = None
    stop = StopFlag()
    stop.handle_signals()
    step = 0
    quota_bytes = spec.telemetry.spool_quota_mib * 2**20
    outcome: Literal["completed", "stopped", "paused", "interrupted", "failed"]
    try:
        spool = SpoolWriter(run_dir, attempt, quota_bytes)
        heartbeat.start(run_dir)
        if spec.harness:
            return run_harness(spec, run_dir, spool, stop)
        # torch takes seconds: it is imported only after the spec is valid.
        from workers.model.loading import quiet_transformers
        from workers.trainer.checkpoints import CheckpointsFail
        from workers.trainer.rewards import open_verifier
        from workers.trainer.scoring import VerifierFails
        from workers.trainer.trainer import Trainer

        quiet_transformers()
        with open_verifier(spec.data, spec.rewards) as verifier:
            trainer = Trainer(spec, run_dir, spool, verifier, stop)
            try:
                with late_calls_end(partial(_fail, spool, trainer)):
                    trainer.train()
                outcome, reason = "completed", ""
            except Stopped:
                trainer.save_if_cheap()
                outcome, reason = "stopped", "stop was requested"
            except Paused as paused:
                outcome, reason = "paused", str(paused)
            except (VerifierFails, EnvironmentFailed) as failure:  # it can resume once that is repaired
                trainer.save_if_between_steps()
                outcome, reason = "paused", str(failure)
            except CheckpointsFail as failure:  # it can resume once there is room
                outcome, reason = "paused", str(failure)
            finally:
                step = trainer.step
                trainer.close()
    except StopNow:
        outcome, reason = "stopped", "stop was requested twice"
        # The first writer may have been interrupted between counting and writing.
        spool = SpoolWriter(run_dir, attempt, quota_bytes)
    except (FunctionFileError, JudgeFileError) as error:
        outcome, reason = "paused", f"{error}: fix the file, then resume the run"
    except AgentLost as lost:  # nothing can be saved without it
        outcome, reason = "interrupted", str(lost)
    except Exception as error:
        with contextlib.suppress(OSError):  # the log is on the disk that may be full
            traceback.print_exc()
        is_full = isinstance(error, OSError) and error.errno in DISK_FULL
        outcome, reason = ("paused", f"disk: {error}") if is_full else ("failed", f"{type(error).__name__}: {error}")
    if spool is None:
        told = f"cannot write {run_dir / SPOOL_NAME}: {reason}"
        if outcome == "paused":
            return _disk_full(told)
        print(f"python -m workers: {told}", file=sys.stderr)
        return 1
    try:
        spool.emit(events.Finished(step=step, outcome=outcome, reason=reason))
        spool.close()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        return _disk_full(f"{run_dir} is full, so its end is not recorded: {outcome} {reason}")
    return 1 if outcome in ("interrupted", "failed") else 0


def _disk_full(told: str) -> int:
    with contextlib.suppress(OSError):  # what is printed goes to the same disk
        print(f"python -m workers: {told}", file=sys.stderr)
    return trainer_process.DISK_FULL_STATUS


def _fail(spool: SpoolWriter, trainer: Trainer, reason: str) -> None:
    """The last event, while the trainer itself is in a call that does not end."""
    spool.emit(events.Finished(step=trainer.step, outcome="failed", reason=reason))
    spool.close()


def run_harness(spec: RunSpec, run_dir: Path, spool: SpoolWriter, stop: StopFlag) -> int:
    """Let lm-evaluation-harness evaluate the agents, and emit how it ended. Error: StopNow."""
    outcome: Literal["completed", "stopped", "paused", "failed"]
    try:
        HarnessEvaluation(spec, run_dir, spool, stop).run()
        outcome, reason = "completed", ""
    except Stopped:
        outcome, reason = "stopped", "stop was requested"
    except Paused as paused:
        outcome, reason = "paused", str(paused)
    except HarnessFailed as failure:
        outcome, reason = "failed", str(failure)
    except Exception as error:
        traceback.print_exc()
        outcome, reason = "failed", f"{type(error).__name__}: {error}"
    spool.emit(events.Finished(step=0, outcome=outcome, reason=reason))
    spool.close()
    return 1 if outcome == "failed" else 0


if __name__ == "__main__":
    status = main()
    if status == trainer_process.DISK_FULL_STATUS:  # at its end Python writes what its streams hold, on the same disk
        os._exit(status)
    sys.exit(status)
