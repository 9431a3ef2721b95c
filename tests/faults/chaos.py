"""`./hacrl chaos --minutes 30 --seed N`: fault 22, random faults from 1 to 11 on a product of its own.

The seed decides which faults come, when, and what the users do meanwhile: launch, stop, pause, resume, drain. How long
a process takes to die does not follow a seed. The checker looks all the time (I1, I3, I4) and at every run that has
ended (all six). Exit status 1 where an invariant was violated or the product did not come back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from uuid import UUID

import psutil
from celery import Celery
from kombu.exceptions import OperationalError as KombuError

from tests.faults.browsers import Browsers
from tests.faults.invariants import TERMINAL
from tests.faults.records import numbers
from tests.faults.world import ROOT, TooLate, World, wait

BROWSERS = 4
ACTIVE_RUNS = 4
PAUSE_S = (1.0, 6.0)  # between two faults
RECOVERY_S = 180.0  # after the last fault: every run that is not stopped must come to its end
# How runs behave, with weights. Long ones are stopped by their user at some time.
RUNS = (
    ("complete", 120, 6),
    ("complete pace=0.01", 400, 2),
    ("complete save=0.2", 150, 2),
    ("orphan", 150, 2),
    ("deaf", 5000, 1),
    ("crash@30", 100, 1),
    ("crash-once@20", 100, 1),
    ("killed@40", 100, 1),
    ("nan@25", 100, 1),
    ("complete", 5000, 2),
)
# In each look, about three in a second.
ACTS = {"stop": 0.03, "pause": 0.03}
RESUME_CHANCE = 0.2
DRAIN_CHANCE, DRAINED_S = 0.01, (1.0, 8.0)
TASK = "hacrl.train"


class Chaos:
    """One world, its users, and what breaks it."""

    def __init__(self, world: World, seed: int, say: Callable[[str], None]) -> None:
        self.world, self.say = world, say
        self.chance = random.Random(f"users {seed}")
        # Two things may be broken at the same moment: a service or the network, and a process.
        self.lanes = [Lane(self, faults, random.Random(f"{name} {seed}")) for name, faults in FAULTS.items()]
        self.browsers: Browsers = world.browsers(BROWSERS)
        self.faults: Counter[str] = Counter()
        self.acts: Counter[str] = Counter()  # what the users did
        self.drained_until: float | None = None
        self.refused: Counter[str] = Counter()  # what the web could not do in the middle of a fault
        self.checked: set[UUID] = set()
        self.violations: list[str] = []
        self.started = time.monotonic()
        self.totals: Counter[str] = Counter()

    # -- users

    def use(self) -> None:
        """Keep some runs going; now and then stop, pause or resume one, or drain the host for a while."""
        states = self.world.database.states()
        active = [run_id for run_id in self.world.runs if states[run_id][0] not in TERMINAL]
        if len(active) < ACTIVE_RUNS:
            self._launch()
        for what, chance in ACTS.items():
            if active and self.chance.random() < chance:
                self._act(what, self.chance.choice(active))
        paused = [run_id for run_id in active if states[run_id][0] == "paused"]
        if paused and self.chance.random() < RESUME_CHANCE:
            self._act("resume", self.chance.choice(paused))
        self._drain()

    def _act(self, what: str, run_id: UUID) -> None:
        self._try(what, lambda: self.world.ask(f"/api/v1/runs/{run_id}/{what}", {}, timeout_s=30).status)

    def _drain(self) -> None:
        """Begin to drain the host, or end it when its time has come."""
        if self.drained_until is None and self.chance.random() < DRAIN_CHANCE:
            self._order_drain(self.chance.choice(["finish", "now"]))  # taken, maybe, even where no answer came
            self.drained_until = time.monotonic() + self.chance.uniform(*DRAINED_S)
        elif self.drained_until is not None and time.monotonic() > self.drained_until and self._order_drain("no"):
            self.drained_until = None

    def _order_drain(self, order: str) -> bool:
        """True where the web has answered that it did."""
        body = {"name": socket.gethostname(), "drain": order, "why": "chaos"}
        return self._try(f"drain {order}", lambda: self.world.ask("/api/v1/hosts/drain", body, timeout_s=30).status)

    def _launch(self) -> None:
        name, steps, _ = self.chance.choices(RUNS, weights=[weight for _, _, weight in RUNS])[0]
        before = set(self.world.database.states())
        request = self.world.request(name, steps, save_steps=self.chance.choice([5, 10, 20]))
        self._try("launch", lambda: self.world.ask("/api/v1/runs", request, timeout_s=30).status)
        # Also those whose answer was lost: the row is the job.
        for run_id in set(self.world.database.states()) - before:
            self.world.runs.append(run_id)
            self.browsers.watch(run_id)

    def _try(self, what: str, act: Callable[[], int]) -> bool:
        """True where the web did it."""
        try:
            status = act()
        except (OSError, HTTPException):
            self.refused[f"{what}: no answer"] += 1
            return False
        if status >= 500 and status != 503:
            self.violations.append(f"{what} was answered {status}")
        elif status >= 300:
            self.refused[f"{what}: {status}"] += 1
        else:
            self.acts[what] += 1
        return status < 300

    # -- the checker

    def check_ended(self) -> None:
        """Every run that has ended since the last look."""
        states = self.world.database.states()
        for run_id in [run_id for run_id in self.world.runs if run_id not in self.checked]:
            if states[run_id][0] in TERMINAL:
                self.checked.add(run_id)
                self._check(run_id)

    def _check(self, run_id: UUID) -> None:
        for violation in self.world.violations(run_id, self.browsers):
            if str(violation) not in self.violations:
                self.violations.append(str(violation))
                self.say(f"VIOLATION {violation}")
        stored = self.world.database.run(run_id)
        self.browsers.leave(run_id)
        self.totals["emitted"] += self.world.emitted(run_id)
        self.totals["stored"] += len(stored.places)
        self.totals["shown"] += min(len(set(numbers(seen))) for seen in self.browsers.seen(run_id))
        self.totals["for browsers"] += len(stored.streamed)
        self.totals[stored.state] += 1
        self.totals["attempts"] += stored.attempt

    def run(self, minutes: float) -> None:
        for lane in self.lanes:
            lane.thread.start()
        while time.monotonic() - self.started < 60 * minutes:
            self.use()
            self.check_ended()
            time.sleep(0.3)
        for lane in self.lanes:
            lane.is_over.set()
            lane.thread.join(120)

    def recover(self) -> float:
        """Break nothing more; long runs are stopped, paused ones resumed. Returns the seconds until all had ended."""
        self.say("nothing is broken any more")
        self.world.heal()
        started = time.monotonic()
        deadline = started + RECOVERY_S
        is_open = False  # to new runs
        while True:
            states = self.world.database.states()
            active = [run_id for run_id in self.world.runs if states[run_id][0] not in TERMINAL]
            if not active:
                break
            if time.monotonic() > deadline:
                found = [f"{run_id} {states[run_id]}" for run_id in active]
                self.violations.append(f"not ended {RECOVERY_S:g} s after the last fault: {found}")
                break
            is_open = is_open or self._order_drain("no")
            for run_id in active:
                if states[run_id][0] == "paused":
                    self._act("resume", run_id)
                total = self.world.database.value("SELECT total_steps FROM runs_run WHERE id = ?", run_id)
                if total > 1000:
                    self._act("stop", run_id)
            time.sleep(1)
        recovered_s = time.monotonic() - started
        self.check_ended()
        return recovered_s

    def summary(self, recovered_s: float) -> dict[str, Any]:
        return {
            "database": self.world.kind,
            "seconds": round(time.monotonic() - self.started, 1),
            "recovered_s": round(recovered_s, 1),
            "runs": len(self.world.runs),
            **dict(sorted(self.totals.items())),
            "reconnections": sum(browser.connections - 1 for browser in self.browsers.all),
            "looks": self.world.monitor.looks,
            "faults": dict(sorted(self.faults.items())),
            "acts": dict(sorted(self.acts.items())),
            "refused": dict(sorted(self.refused.items())),
            "violations": self.violations,
        }


class Lane:
    """Breaks one thing after the other, in a thread of its own."""

    def __init__(self, chaos: Chaos, faults: tuple[str, ...], chance: random.Random) -> None:
        self.chaos, self.faults, self.chance = chaos, faults, chance
        self.world = chaos.world
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._break_on, daemon=True)

    def _break_on(self) -> None:
        while not self.is_over.wait(self.chance.uniform(*PAUSE_S)):
            fault = self.chance.choice(self.faults)
            self.chaos.faults[fault] += 1
            self.chaos.say(fault)
            try:
                getattr(self, fault)()
            except (
                psutil.Error,
                ProcessLookupError,
                TooLate,
                KombuError,
            ) as error:  # what it was to break is broken already
                self.chaos.say(f"{fault}: {error}")
            except Exception as error:
                self.chaos.violations.append(f"the harness failed in {fault}: {error!r}")

    def held(self) -> UUID | None:
        """A run that is being trained."""
        rows = self.world.database.rows("SELECT id FROM runs_run WHERE state IN ('starting', 'running')")
        found = sorted(key if isinstance(key, UUID) else UUID(key) for (key,) in rows)
        return self.chance.choice(found) if found else None

    def worker_killed(self) -> None:
        """1"""
        self.world.kill("worker")

    def pool_child_killed(self) -> None:
        """1"""
        if run_id := self.held():
            os.kill(self.world.worker_pid(run_id), signal.SIGKILL)

    def trainer_killed(self) -> None:
        """1, 2"""
        if run_id := self.held():
            for process in self.world.processes(run_id)[:1]:
                process.kill()

    def second_worker_killed(self) -> None:
        """1"""
        self.world.end_workers()
        self.world.add_worker()

    def supervisor_frozen(self) -> None:
        """4"""
        if run_id := self.held():
            process = psutil.Process(self.world.worker_pid(run_id))
            process.suspend()
            try:
                time.sleep(self.chance.uniform(1, 20))  # its lease is 9 s here
            finally:
                process.resume()

    def repeated_messages(self) -> None:
        """5"""
        url = f"redis+socket://{self.world.redis.socket}?virtual_host=0"
        with Celery(broker=url, set_as_current=False).connection_for_write() as connection:
            for run_id in self.world.runs[-5:]:
                for _ in range(20):
                    Celery(broker=url, set_as_current=False).send_task(TASK, args=[str(run_id)], connection=connection)

    def redis_restarted(self) -> None:
        """6"""
        self.world.redis.kill()
        time.sleep(self.chance.choice([0.1, 1, 5]))
        self.world.redis.start()

    def redis_frozen(self) -> None:
        """6"""
        self.world.redis.signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(1, 8))
        self.world.redis.signal(signal.SIGCONT)

    def redis_slow(self) -> None:
        """6, 11"""
        self.world.redis_proxy.delay_s = 0.5
        time.sleep(self.chance.uniform(1, 5))
        self.world.redis_proxy.delay_s = 0.0

    def updates_lost(self) -> None:
        """11"""
        self.world.redis_proxy.cut()
        time.sleep(self.chance.uniform(0.1, 5))
        self.world.redis_proxy.mend()

    def second_up(self) -> None:
        """7"""
        command = [sys.executable, "-m", "tests.faults.up", "up", "--port", "0"]
        environment = self.world.environment
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        if done.returncode != 1 or "already up" not in done.stderr:
            self.chaos.violations.append(f"a second up was not refused: {done.returncode} {done.stderr[-300:]}")

    def database_locked(self) -> None:
        """8"""
        with self.world.locked_database():
            time.sleep(self.chance.uniform(0.5, 6))  # 30 s, where the lease is 45 s

    def crash_point(self) -> None:
        """9"""
        path = self.world.crash_at(self.chance.choice(["after-commit", "in-transaction", "before-notify"]))
        with contextlib.suppress(TooLate):
            wait(lambda: not path.exists(), "someone comes to the point", 5)
        path.unlink(missing_ok=True)

    def web_killed(self) -> None:
        """10"""
        self.world.kill("web")

    def dispatcher_killed(self) -> None:
        """9"""
        self.world.kill("dispatcher")

    def browser_deaf(self) -> None:
        """11"""
        browser = self.chance.choice(self.chaos.browsers.all)
        self.chaos.browsers.read(on=False, browser=browser)
        time.sleep(self.chance.uniform(1, 5))
        self.chaos.browsers.read(on=True, browser=browser)


FAULTS = {
    "processes": (
        *("worker_killed", "pool_child_killed", "trainer_killed", "second_worker_killed", "supervisor_frozen"),
        *("repeated_messages", "second_up", "crash_point", "web_killed", "dispatcher_killed", "browser_deaf"),
    ),
    "services": ("redis_restarted", "redis_frozen", "redis_slow", "updates_lost", "database_locked"),
}


def chaos(minutes: float, seed: int, database: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Break a world for so long. Returns the summary; `violations` is empty where all held."""
    with World(database) as world:
        world.add_worker()
        one = Chaos(world, seed, say)
        one.run(minutes)
        found = {"seed": seed, **one.summary(one.recover())}
        if found["violations"]:
            kept = world.keep()
            found["kept"] = str(kept)
        return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./hacrl chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long it breaks things (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="which faults, in which order (default 0)")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--json", action="store_true", help="the summary as one line of JSON, and nothing else")
    options = parser.parse_args(arguments)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    found = chaos(options.minutes, options.seed, options.database, say)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<14} {value}")
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
