"""The checker: invariants I1 to I6 of a world, read from the database, the spool, the disk and the process table.

`Monitor` checks all the time what only shows while it happens (I1, I3, I4); `check_run` checks what is left of one
run (all six). Both return violations as texts; none means that the invariant holds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psutil

from hacrl_web.ops.processes import is_alive
from tests.faults.records import Database, Place, StoredRun, numbers
from tests.support.fake_trainer import LEDGER_NAME
from workers.contract.spool import read_spool
from workers.trainer.checkpoints import newest_checkpoint

TERMINAL = frozenset({"completed", "failed", "stopped"})
LOOK_S = 0.1
DYING_S = 2.0  # a process that KILL has met may take this long to leave the table of a busy machine


@dataclass(frozen=True)
class Violation:
    invariant: str
    run_id: UUID
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} of run {self.run_id}: {self.text}"


# ---- the process table ----------------------------------------------------------------------------------------------


def processes_of(runs_folders: Sequence[Path]) -> dict[UUID, list[psutil.Process]]:
    """Living processes by the run in whose directory they work: its trainer, and all that came of it."""
    found: dict[UUID, list[psutil.Process]] = defaultdict(list)
    roots = {folder.resolve() for folder in runs_folders}
    for process in psutil.process_iter(["cwd"]):  # a zombie has no working directory
        folder = Path(process.info["cwd"] or "/")
        for place in (folder, *folder.parents):
            if place.parent in roots:
                with contextlib.suppress(ValueError):
                    found[UUID(place.name)].append(process)
                break
    return dict(found)


def trainers(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that are trainers, not their children: each runs an attempt."""
    kept = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if "--attempt" in process.cmdline() and not _is_child_of(process, processes):
                kept.append(process)
    return kept


def _is_child_of(process: psutil.Process, others: Sequence[psutil.Process]) -> bool:
    return process.ppid() in {other.pid for other in others}


def two_trainers(run_id: UUID, processes: Sequence[psutil.Process]) -> list[Violation]:
    """I1: checked twice, since one may have ended before the other began, both within one reading of the table."""
    if len(trainers(processes)) < 2:
        return []
    alive = [process for process in trainers(processes) if is_alive(process)]
    if len(alive) < 2:
        return []
    return [Violation("I1", run_id, f"two live trainers: pids {[process.pid for process in alive]}")]


def left_behind(run_id: UUID, processes: Sequence[psutil.Process]) -> list[Violation]:
    """I4, of a run that has ended."""
    deadline = time.monotonic() + DYING_S
    while (alive := [p for p in processes if is_alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [Violation("I4", run_id, f"processes left: {[p.pid for p in alive]}")] if alive else []


class Monitor:
    """Checks states and processes until it is ended; `violations` collects what it finds."""

    def __init__(self, database: Database, runs_folders: Sequence[Path]) -> None:
        self.database, self.runs_folders = database, list(runs_folders)
        self.violations: list[Violation] = []
        self.looks = 0
        self.errors = 0
        self._ended: dict[UUID, str] = {}
        self._known: set[Violation] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except Exception:  # the database is away: that is what these tests do to it
                self.errors += 1

    def look(self) -> None:
        """First the states, then the processes: a run that has ended by then has no trainer to be found later."""
        states = self.database.states()
        processes = processes_of(self.runs_folders)
        self.looks += 1
        for run_id, (state, _) in states.items():
            ended_as = self._ended.get(run_id)
            if ended_as is not None and state != ended_as:
                self._note(Violation("I3", run_id, f"it was {ended_as} and became {state}"))
            if state in TERMINAL:
                self._ended[run_id] = state
        for run_id, of_run in processes.items():
            for violation in two_trainers(run_id, of_run):
                self._note(violation)
            if run_id in self._ended:
                for violation in left_behind(run_id, of_run):
                    self._note(violation)

    def _note(self, violation: Violation) -> None:
        if violation not in self._known:
            self._known.add(violation)
            self.violations.append(violation)


# ---- what is left of one run ----------------------------------------------------------------------------------------


def check_run(
    database: Database, run_dir: Path, run_id: UUID, seen_by_browsers: Sequence[Sequence[Place]] = ()
) -> list[Violation]:
    """All invariants of a run that no worker holds. seen_by_browsers: what each watching browser received."""
    run = database.run(run_id)
    texts: list[tuple[str, str]] = []
    for invariant, check in _CHECKS.items():
        texts += [(invariant, text) for text in check(run, run_dir)]
    for number, seen in enumerate(seen_by_browsers):
        texts += [("I5", f"browser {number}: {text}") for text in compare(list(seen), run.streamed)]
    violations = [Violation(invariant, run_id, text) for invariant, text in texts]
    of_run = processes_of([run_dir.parent]).get(run_id, [])
    violations += two_trainers(run_id, of_run)
    return violations + (left_behind(run_id, of_run) if run.state in TERMINAL else [])


def check_order(run: StoredRun, run_dir: Path) -> list[str]:
    """I1, in hindsight: after the first event of an attempt there is none of an earlier one."""
    highest = 0
    for seq, attempt, _, _ in run.places:
        if attempt < highest:
            return [f"event {seq} of attempt {attempt} follows attempt {highest}: two trainers wrote"]
        highest = max(highest, attempt)
    return []


def check_stored(run: StoredRun, run_dir: Path) -> list[str]:
    """I2: what the trainer noted and what its spool holds is stored, each once, and nothing else is."""
    found = []
    counts = Counter(numbers(run.places))
    twice = sorted(seq for seq, count in counts.items() if count > 1)
    if twice:
        found.append(f"stored twice: {_few(twice)}")
    emitted = ledger(run_dir) | spool(run_dir)
    stored = {place[0]: place for place in run.places}
    missing = sorted(set(emitted) - set(stored))
    if missing:
        found.append(f"emitted and not stored: {_few(missing)}")
    invented = sorted(set(stored) - set(emitted))
    if invented:
        found.append(f"stored and never emitted: {_few(invented)}")
    gaps = sorted(set(range(1, run.last_seq + 1)) - set(stored))
    if gaps:
        found.append(f"numbers that are missing below {run.last_seq}: {_few(gaps)}")
    if stored and max(stored) != run.last_seq:
        found.append(f"the run's last event is {run.last_seq}, the last that is stored {max(stored)}")
    changed = sorted(seq for seq, place in emitted.items() if seq in stored and stored[seq] != place)
    if changed:
        found.append(f"stored otherwise than emitted: {_few(changed)}")
    return found


def ledger(run_dir: Path) -> dict[int, Place]:
    """What the trainer noted after it had emitted it. An attempt may take a number again whose line was torn."""
    found: dict[int, Place] = {}
    path = run_dir / LEDGER_NAME
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            seq, attempt, kind, step = line.split()
            found[int(seq)] = (int(seq), int(attempt), kind, None if step == "None" else int(step))
    return found


def spool(run_dir: Path) -> dict[int, Place]:
    """What the spool still holds: full files are removed once they are stored."""
    with contextlib.suppress(FileNotFoundError):
        return {r["seq"]: (r["seq"], r["attempt"], r["type"], r.get("step")) for r in read_spool(run_dir)}
    return {}


def check_history(run: StoredRun, run_dir: Path) -> list[str]:
    """I3: at most one terminal state, it is the last change, and the changes are a chain that ends at the state."""
    found = []
    ends = [to for _, to, _, _ in run.changes if to in TERMINAL]
    if len(ends) > 1:
        found.append(f"{len(ends)} terminal states: {ends}")
    if ends and run.changes[-1][1] not in TERMINAL:
        found.append(f"{ends[0]} was left for {run.changes[-1][1]}")
    for (_, before, _, _), (after, _, _, _) in zip(run.changes, run.changes[1:], strict=False):
        if before != after:
            found.append(f"a change from {after}, when it was {before}")
    if run.changes and run.changes[-1][1] != run.state:
        found.append(f"it is {run.state}, but its last change was to {run.changes[-1][1]}")
    return found


def check_checkpoint(run: StoredRun, run_dir: Path) -> list[str]:
    """I6: the newest checkpoint verifies, and is not older than the last that the run has reported."""
    resumable, problems = newest_checkpoint(run_dir)
    reported = max((step or 0 for _, _, kind, step in run.places if kind == "checkpoint"), default=0)
    found = [f"newest checkpoint: {problem}" for problem in problems]
    if reported and (resumable is None or resumable.step < reported):
        found.append(f"step {reported} reported, the newest on disk is {resumable.step if resumable else 'none'}")
    return found


_CHECKS: dict[str, Callable[[StoredRun, Path], list[str]]] = {
    "I1": check_order,
    "I2": check_stored,
    "I3": check_history,
    "I6": check_checkpoint,
}


def compare(seen: Sequence[Place], stored: Sequence[Place]) -> list[str]:
    """I5: how what a browser has got differs from what is stored."""
    if list(seen) == list(stored):
        return []
    seen_numbers, stored_numbers = numbers(seen), numbers(stored)
    found = []
    if sorted(seen_numbers) != seen_numbers:
        found.append("out of order")
    if len(set(seen_numbers)) < len(seen_numbers):
        found.append("some twice")
    missing, extra = set(stored_numbers) - set(seen_numbers), set(seen_numbers) - set(stored_numbers)
    if missing:
        found.append(f"missing {_few(sorted(missing))}")
    if extra:
        found.append(f"not stored {_few(sorted(extra))}")
    return found or ["other contents"]


def _few(values: Sequence[int]) -> str:
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return f"{list(values[:5])}{more}"
