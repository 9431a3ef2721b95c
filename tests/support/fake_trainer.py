"""A trainer without torch: made-up steps through the real spool and real checkpoints; it misbehaves on request.

Start it with HACRL_TRAINER_COMMAND='["python", "-m", "tests.support.fake_trainer"]'. It resumes from its newest sound
checkpoint, obeys TERM, and notes in `emitted.txt` what it has surely emitted: a witness beside the spool.

The first word of the run's name (or HACRL_FAKE_MODE) is the misbehaviour; crash@7 says the step (3 if none is named):
  crash: exits with status 3    crash-once: only in attempt 1    dies: exits with status 4 before its first word
  killed: is ended by SIGKILL, as the kernel does where memory is out    memory: its own limit of memory is reached
  deaf: ignores TERM    hang: stands still    nan: numbers that are not finite, then failed    fail: says "failed"
  silent: exits with 0 and no last word    orphan: has children that ignore TERM    flood: log lines without measure
  lost-agent: says "interrupted", in attempt 1
  verifier: pauses by itself, in attempt 1    slow: that step takes 4 s, with heartbeats    load: hangs at its start
Further words are settings: pace=0.01 (seconds per step; else HACRL_FAKE_STEP_S), load=2 and save=2 (seconds that
loading, or saving each agent, takes), lines=1000 (of a flood, in each step).
The word by-rate: it evaluates at the run's interval, and its scores depend on the learning rate (fake_events.py).
"""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.fake_events import agent_metrics, evaluations, questions, rollouts, step_bodies
from workers import heartbeat
from workers.contract import trainer_process
from workers.contract.events import PAUSE_REQUESTED, Body, Checkpoint, Finished, Log, Started
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.contract.trainer_process import (
    DISK_FULL_STATUS,
    LEASE_OPTION,
    PAUSE_SIGNAL,
    die_with_supervisor,
    dump_stacks_on_signal,
    hold_run_dir,
)
from workers.trainer.checkpoints import newest_checkpoint, save_checkpoint

__all__ = ["rollouts"]
MODES = (
    *("crash", "crash-once", "dies", "killed", "memory", "deaf", "hang", "nan", "fail", "silent", "orphan", "flood"),
    *("verifier", "slow", "load", "lost-agent", "disk"),
)
LEDGER_NAME = "emitted.txt"
MEMORY_LIMIT = 512 * 2**20
CHILD = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(3600)"
)


class WitnessedSpool(SpoolWriter):
    """Notes every event in the ledger after the spool has it: `seq attempt type step`."""

    def __init__(self, run_dir: Path, attempt: int, quota_bytes: int) -> None:
        super().__init__(run_dir, attempt, quota_bytes)
        self._pending = ""
        self._ledger = open(run_dir / LEDGER_NAME, "ab", buffering=0)  # noqa: SIM115 - open for the writer's life

    def _hold(self, bodies: Sequence[Body]) -> None:
        for seq, body in enumerate(bodies, self.seq + 1):
            kind = body.type  # type: ignore[attr-defined]
            self._pending += f"{seq} {self.attempt} {kind} {getattr(body, 'step', None)}\n"
        super()._hold(bodies)

    def emit(self, *bodies: Body) -> int:
        last = super().emit(*bodies)
        self._ledger.write(self._pending.encode())
        self._pending = ""
        return last


class FakeAgent:
    """What a checkpoint needs of an agent: files of a few kilobytes."""

    def __init__(self, name: str, save_s: float) -> None:
        self.name, self.save_s, self.step = name, save_s, 0

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(random.Random(f"{self.name} {self.step}").randbytes(4096))
        time.sleep(self.save_s)
        (folder / "config.json").write_text(f'{{"step": {self.step}}}')

    def save_state(self, stem: Path) -> None:
        stem.with_suffix(".json").write_text(f'{{"step": {self.step}}}')


class FakeTrainer:
    """One attempt of a run."""

    def __init__(self, spec: RunSpec, run_dir: Path, attempt: int) -> None:
        self.spec, self.run_dir, self.attempt = spec, run_dir, attempt
        first, *words = (os.environ.get("HACRL_FAKE_MODE") or spec.name).split()
        mode, _, at = first.partition("@")
        self.mode = mode if mode in MODES else "complete"
        self.bad_step = int(at) if at.isdecimal() else 3
        self.settings = dict(word.split("=", 1) for word in [*words, *spec.name.split()[1:]] if "=" in word)
        self.is_stopped = self.is_pause_requested = False
        self.pause_reason = PAUSE_REQUESTED
        self.step = 0
        self.agents = [FakeAgent(agent.name, self.seconds("save", 0.0)) for agent in spec.agents]

    def seconds(self, name: str, default: float) -> float:
        return float(self.settings.get(name, default))

    def run(self) -> int:
        signal.signal(PAUSE_SIGNAL, self._note_pause)
        signal.signal(signal.SIGTERM, signal.SIG_IGN if self.mode == "deaf" else self._note_stop)
        if self.mode == "dies":
            print("this trainer dies at every start", file=sys.stderr)
            return 4
        if self.mode == "orphan":
            self._bear()
        while self.mode == "load":
            time.sleep(3600)
        self.spool = WitnessedSpool(self.run_dir, self.attempt, self.spec.telemetry.spool_quota_mib * 2**20)
        self._load()
        self._train()
        silent = {"silent": 0, "disk": DISK_FULL_STATUS}
        status = silent[self.mode] if self.mode in silent else self._conclude()
        self.spool.close()
        return status

    def _note_stop(self, *_: object) -> None:
        self.is_stopped = True

    def _note_pause(self, *_: object) -> None:
        self.is_pause_requested = True

    def _bear(self) -> None:
        for _ in range(2):
            child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            print(f"child {child.pid}", flush=True)

    def _load(self) -> None:
        time.sleep(self.seconds("load", 0.0))
        resumable, problems = newest_checkpoint(self.run_dir) if self.attempt > 1 else (None, [])
        self.step = resumable.step if resumable else 0
        names = [agent.name for agent in self.spec.agents]
        steps = self.spec.training.steps
        self.spool.emit(
            Started(step=self.step, total_steps=steps, agents=names, device="none", versions={"fake": "1"}),
            Log(message=f"fake trainer, attempt {self.attempt}"),
            *(Log(level="warning", message=f"checkpoint not used: {problem}") for problem in problems),
            *questions(self.spec),
            *(evaluations(0, self.spec) if self.step == 0 else ()),
        )

    def _train(self) -> None:
        started, every = time.monotonic(), self.spec.save_interval
        pace_s = self.seconds("pace", float(os.environ.get("HACRL_FAKE_STEP_S", "0.01")))
        self.saved_step = self.step
        while self.step < self.spec.training.steps and not self._is_done():
            self.step += 1
            self._misbehave()
            chance = random.Random(f"{self.spec.seed} {self.step}")  # the same again after a resume
            self.spool.emit(*step_bodies(self.step, self.spec, started, chance))
            if "by-rate" in self.spec.name.split() and self.step % self.spec.evaluation.eval_interval == 0:
                self.spool.emit(*(evaluations(self.step, self.spec) if self.step < self.spec.training.steps else ()))
            if every and self.step % every == 0:
                self._save()
            time.sleep(pace_s)

    def _is_done(self) -> bool:
        if self.mode == "verifier" and self.step == self.bad_step - 1 and self.attempt == 1:
            self.is_pause_requested, self.pause_reason = True, "the verifier fails: it did not start; 6 tries"
        is_lost = self.attempt == 1 and self._is_bad("lost-agent")
        return self.is_stopped or self.is_pause_requested or is_lost or self._is_bad("nan", "memory")

    def _is_bad(self, *modes: str) -> bool:
        return self.mode in modes and self.step >= self.bad_step

    def _misbehave(self) -> None:
        if self.mode == "flood":
            for number in range(int(self.settings.get("lines", 1000))):
                print(f"step {self.step} line {number}")
            sys.stdout.flush()
        if self.step != self.bad_step:
            return
        if self.mode == "crash" or (self.mode == "crash-once" and self.attempt == 1):
            print("the last line before the crash", file=sys.stderr)
            os._exit(3)
        if self.mode == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        while self.mode == "hang":
            time.sleep(3600)
        for _ in range(40 if self.mode == "slow" else 0):
            time.sleep(0.1)
            heartbeat.send_heartbeat()

    def _save(self) -> None:
        for agent in self.agents:
            agent.step = self.step
        keep = self.spec.checkpoint.keep
        saved = save_checkpoint(self.run_dir, self.step, self.agents, {"step": self.step}, keep)  # type: ignore[arg-type]
        self.saved_step = self.step
        path = saved.path.relative_to(self.run_dir).as_posix()
        self.spool.emit(Checkpoint(step=self.step, path=path, size_bytes=saved.size_bytes))

    def _conclude(self) -> int:
        """The last words. Returns the exit status."""
        if self._is_bad("nan"):
            numbers = agent_metrics(self.step, self.spec.agents[0].name, random.Random(0))
            numbers.values |= {"loss": math.nan, "grad_norm": math.inf}
            return self._fail(f"diverged: the loss of step {self.step} is not finite", numbers)
        if self._is_bad("memory"):
            return self._fail(f"MemoryError: {_use_up_memory()} MiB were not enough")
        if self.attempt == 1 and self._is_bad("lost-agent"):
            reason = "the process of agent B is gone: its node has died"
            self.spool.emit(Finished(step=self.step, outcome="interrupted", reason=reason))
            return 1
        if self.mode == "fail":
            return self._fail("the fake loss became NaN in step 3")
        if self.step and self.saved_step != self.step:
            self._save()
        if self.is_stopped:
            self.spool.emit(Finished(step=self.step, outcome="stopped"))
        elif self.is_pause_requested and self.step < self.spec.training.steps:
            self.spool.emit(Finished(step=self.step, outcome="paused", reason=self.pause_reason))
        else:
            last = evaluations(self.step, self.spec) if self.step else []
            self.spool.emit(*last, Finished(step=self.step, outcome="completed"))
        return 0

    def _fail(self, reason: str, *before: Body) -> int:
        self.spool.emit(*before, Finished(step=self.step, outcome="failed", reason=reason))
        return 1


def _use_up_memory() -> int:
    """Until there is no more; returns how many MiB that were."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    blocks: list[bytearray] = []
    try:
        while True:
            blocks.append(bytearray(2**20))
    except MemoryError:
        count = len(blocks)
        blocks.clear()
        return count


def main(spec_path: str, run_dir: str, attempt: str, has_lease: bool) -> int:
    die_with_supervisor()
    if has_lease:
        trainer_process.LEASE_S = float(os.environ.get("HACRL_FAKE_LEASE_S", trainer_process.LEASE_S))
        hold_run_dir(Path(run_dir), int(attempt))
    dump_stacks_on_signal()
    heartbeat.start(Path(run_dir))
    return FakeTrainer(RunSpec.from_file(Path(spec_path)), Path(run_dir), int(attempt)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3], sys.argv[4], LEASE_OPTION in sys.argv))
