"""Part of the contract: what a trainer says, and the spool line that carries it.

One event is one line of `events.jsonl`: a JSON object with `seq` (1, 2, 3, ... without gaps over all attempts),
`attempt`, `time`, `type`, the fields of its class, and last `crc`, the CRC-32 of the line without it. Numbers that are
not finite travel as null, and `nonfinite` says which they were. A full file becomes `events.<its last seq>.jsonl`, and
whoever stores the events removes it after that. No torch, no Django.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from workers.thinning import DEFAULT_QUOTA_BYTES, Gate, clean_line

SPOOL_NAME = "events.jsonl"
SEGMENT_BYTES = 16 * 2**20
# Of events that a full disk keeps out of the spool: more than this is no passing trouble.
MAX_HELD_BYTES = 64 * 2**20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# How the reason of a `paused` begins where a pause was asked for; any other one is the trainer's own.
PAUSE_ASKED = "pause was requested"
ANSWERS_AT_ONCE = 100  # questions in one event of an evaluation
TEXT_CHARACTERS = 1000
RIGHT, WRONG, UNSCORABLE = "1", "0", "-"  # of one sample
Level = Literal["info", "warning", "error"]
# What a run met and how it went on: shown in the list of events, not only in the log.
Incident = Literal["not finite", "out of memory", "disk", "verifier", "damaged file", "no rollouts"]


class Body(BaseModel):
    """What every event has in common before it gets its place in the spool."""

    # constants: NaN is written as NaN, which `encode` finds; the default would make it null without a word.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=True, ser_json_inf_nan="constants")


class Started(Body):
    """The trainer is up: versions, device, and the step it goes on from."""

    type: Literal["started"] = "started"
    step: int
    total_steps: int
    agents: list[str]
    device: str
    versions: dict[str, str]
    pid: int | None = None  # of the trainer's process, on its host


class Progress(Body):
    """A step has ended. Counts are totals of the run so far; memory is that of the trainer's process, in bytes."""

    type: Literal["progress"] = "progress"
    step: int
    total_steps: int
    elapsed_s: float
    eta_s: float
    rollouts_generated: int
    tokens_generated: int
    phase_s: dict[str, float] = {}
    resident_bytes: int | None = None
    device_peak_bytes: int | None = None


class Metrics(Body):
    """One agent's numbers of a step (source empty), or one ordered pair's: `agent` learns from `source`.

    `values` are plain numbers; `ratios` are (sum, count), to be divided after all reductions.
    """

    type: Literal["metrics"] = "metrics"
    step: int
    agent: str
    source: str | None = None
    values: dict[str, float | None] = {}
    ratios: dict[str, tuple[float, float]] = {}


class Rollout(Body):
    """One verified response. `reward` is null where the answer could not be scored."""

    type: Literal["rollout"] = "rollout"
    step: int
    agent: str
    prompt_id: str
    sample: int
    prompt: str
    completion: str
    answer: str
    reward: float | None
    finish_reason: Literal["stop", "length"]
    num_tokens: int
    mean_logp: float


class Contribution(Body):
    """What one rollout taught one learner: one row per (step, learner, rollout).

    `num_tokens` is in the learner's tokens, `source_num_tokens` in the source's; `alpha` is empty for own rollouts.
    """

    type: Literal["contribution"] = "contribution"
    step: int
    agent: str
    source: str
    prompt_id: str
    sample: int
    num_tokens: int
    advantage: float
    sequence_ratio: float | None = None
    clipped_ratio: float | None = None
    clip_side: Literal["none", "lower", "upper"] = "none"
    omega: float
    weight: float
    mini_batch: int | None = None
    drop_reason: str | None = None
    reward: float | None = None
    source_num_tokens: int | None = None
    alpha: float | None = None
    capability: float | None = None
    source_capability: float | None = None


class Evaluation(Body):
    """One agent, alone, on the held-out questions of one benchmark.

    `value` is avg@k with k = `num_samples`; `estimates` holds it and the others by name (estimators.py). `correct` and
    `asked` count samples that could be scored, `unscorable` the others. `slices` are (correct, asked) by the question's
    subject, and by `difficulty: ` and its difficulty. `questions`: SHA-256 of ids, questions and answers; `verifier`:
    its kind and version.
    """

    type: Literal["evaluation"] = "evaluation"
    step: int
    agent: str
    benchmark: str
    metric: str
    value: float
    correct: int
    asked: int
    slices: dict[str, tuple[int, int]] = {}
    num_samples: int = 1
    unscorable: int = 0
    estimates: dict[str, float] = {}
    questions: str = ""
    verifier: str = ""


class Questions(Body):
    """At most ANSWERS_AT_ONCE of the questions that a benchmark's evaluations ask, the first being number `first`.

    Told once an attempt, before the answers; texts are cut to TEXT_CHARACTERS.
    """

    type: Literal["questions"] = "questions"
    benchmark: str
    first: int
    ids: list[str]
    questions: list[str]
    answers: list[str]
    subjects: list[str]
    difficulties: list[str]


class Answers(Body):
    """What one agent answered in an evaluation: lists over the same questions as in `Questions`, in their order.

    `marks`: a letter for each of the k samples, RIGHT, WRONG or UNSCORABLE.  `majority`: the most frequent answer.
    `responses`: the first sample's text, cut to TEXT_CHARACTERS.
    """

    type: Literal["answers"] = "answers"
    step: int
    agent: str
    benchmark: str
    first: int
    marks: list[str]
    majority: list[str]
    responses: list[str]


class Checkpoint(Body):
    """A complete, verified checkpoint of all agents; `path` is relative to the run directory."""

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    size_bytes: int


class Log(Body):
    """A line for people; `incident` where it tells of trouble that the run has dealt with."""

    type: Literal["log"] = "log"
    level: Level = "info"
    message: str
    step: int | None = None
    incident: Incident | None = None


class LeftOut(Body):
    """How many events of each type did not enter the spool since the last such event, and why (thinning.py)."""

    type: Literal["left_out"] = "left_out"
    counts: dict[str, int]
    reason: str


class Finished(Body):
    """The trainer's last word. paused: it can go on from its newest checkpoint."""

    type: Literal["finished"] = "finished"
    step: int
    outcome: Literal["completed", "stopped", "paused", "failed"]
    reason: str = ""


def _finite(value: Any, path: str, found: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        found[path] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return None
    if isinstance(value, dict):
        return {key: _finite(item, f"{path}.{key}" if path else str(key), found) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, f"{path}.{index}", found) for index, item in enumerate(value)]
    return value


def encode(seq: int, attempt: int, when: float, body: Body) -> bytes:
    """The spool line of an event, newline included.

    Pydantic writes JSON seven times faster than `json.dumps` does; what it cannot write goes the slow way.
    """
    head = f'{{"seq":{seq},"attempt":{attempt},"time":{round(when, 3)!r},'
    try:
        text = head.encode() + body.__pydantic_serializer__.to_json(body)[1:]
        is_plain = b"NaN" not in text and b"Infinity" not in text
    except PydanticSerializationError:  # half surrogate pairs
        is_plain = False
    if not is_plain:
        text = _encode_odd({"seq": seq, "attempt": attempt, "time": round(when, 3), **body.model_dump()})
    return b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text))


def _encode_odd(record: dict[str, Any]) -> bytes:
    """JSON where numbers may not be finite and texts may not be Unicode."""
    found: dict[str, str] = {}
    record = _finite(record, "", found)
    if found:
        record["nonfinite"] = found
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()


class DamagedLine(ValueError):
    """A spool line whose checksum or form is wrong."""


def verified(line: bytes) -> bytes:
    """The JSON text of a spool line, its checksum verified and removed. Error: DamagedLine."""
    text, mark, tail = line.rstrip(b"\n").rpartition(b',"crc":"')
    text += b"}"
    if not mark or tail != b'%08x"}' % zlib.crc32(text):
        raise DamagedLine(f"checksum does not match: {line[:80]!r}")
    return text


def decode(line: bytes) -> dict[str, Any]:
    """The JSON object of a spool line, its checksum verified and removed. Error: DamagedLine."""
    record: dict[str, Any] = json.loads(verified(line))
    return record


def rotated(run_dir: Path) -> list[tuple[int, Path]]:
    """(last seq, path) of each full spool file that is still there, oldest first."""
    found = []
    for path in run_dir.glob("events.*.jsonl"):
        number = path.name.split(".")[1]
        if number.isascii() and number.isdigit():
            found.append((int(number), path))
    return sorted(found)


def spool_bytes(run_dir: Path) -> int:
    """Size of all spool files of a run."""
    total = 0
    for path in [run_dir / SPOOL_NAME, *(path for _, path in rotated(run_dir))]:
        with contextlib.suppress(FileNotFoundError):  # stored and removed meanwhile
            total += path.stat().st_size
    return total


class SpoolWriter:
    """Appends events to a run's spool; `seq` goes on where the last sound line ended.

    `damage`: what was wrong with the line where the spool was cut, or empty; the lines from there on are kept in
    `events.jsonl.damaged`. One writer at a time: the caller holds the run directory's lock. Threads may share it.
    """

    def __init__(self, run_dir: Path, attempt: int, quota_bytes: int = DEFAULT_QUOTA_BYTES) -> None:
        self.attempt = attempt
        self.run_dir = run_dir
        self.damage = ""
        self._lock = threading.RLock()
        self._gate = Gate(quota_bytes, lambda: spool_bytes(run_dir))
        self.seq = max((last for last, _ in rotated(run_dir)), default=0)
        path = run_dir / SPOOL_NAME
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the writer's life
        complete = 0
        try:
            for offset, record in read_records(path):
                complete, self.seq = offset, record["seq"]
        except DamagedLine as error:
            lost = f"line {self.seq + 1} of {SPOOL_NAME} is damaged ({error})"
            self.damage = f"events lost: {lost}; what follows it is in {SPOOL_NAME}.damaged"
            with open(path, "rb") as spool, open(run_dir / f"{SPOOL_NAME}.damaged", "ab") as rest:
                spool.seek(complete)
                shutil.copyfileobj(spool, rest)
        self._file.truncate(complete)  # a line torn by a kill is dropped: it was never shipped
        self._size = complete
        self._held = b""  # what a full disk has kept out so far
        self._full_since: float | None = None

    def emit(self, *bodies: Body) -> int:
        """Append events in one write and return the last seq. Those that thinning leaves out are counted instead.

        While the disk is full they are held back and go out with the next ones. Error: OSError, also where they
        become too many.
        """
        with self._lock:
            self._rotate_when_full()
            self._hold([*filter(self._admits, map(_cleaned, bodies)), *self._notices()])
            try:
                self._write_held()
            except OSError as error:
                self._file.truncate(self._size)  # no torn line for those who read along
                if error.errno not in DISK_FULL or len(self._held) > MAX_HELD_BYTES:
                    raise
                self._full_since = self._full_since or time.monotonic()
            return self.seq

    def _admits(self, body: Body) -> bool:
        is_urgent = isinstance(body, Log) and body.level != "info"
        return self._gate.admits(str(getattr(body, "type", "")), is_urgent=is_urgent)

    def _notices(self, *, is_last: bool = False) -> list[LeftOut]:
        return [LeftOut(counts=counts, reason=why) for why, counts in self._gate.notices(is_last=is_last).items()]

    def _hold(self, bodies: Sequence[Body]) -> None:
        lines = []
        for body in bodies:
            self.seq += 1
            lines.append(encode(self.seq, self.attempt, time.time(), body))
        self._held += b"".join(lines)

    def _write_held(self) -> None:
        """Write what is held; where a full disk had kept it out, say so after it. Error: OSError, and it is kept."""
        count = self._held.count(b"\n")
        self._append_held()
        if self._full_since is not None:
            seconds = time.monotonic() - self._full_since
            text = f"the disk was full for {seconds:.0f} s: {count} events waited for the spool and none was lost"
            self._full_since = None
            self._hold([Log(level="warning", incident="disk", message=text)])
            self._append_held()

    def _append_held(self) -> None:
        view = memoryview(self._held)
        while view:
            view = view[self._file.write(view) :]
        self._size += len(self._held)
        self._held = b""

    def _rotate_when_full(self) -> None:
        """Set a full file aside. On a full disk it grows on, and this is tried again with the next event."""
        # The quota counts the file under way and the newest full one too, stored or not: they stay a small part of it.
        if self._size < min(SEGMENT_BYTES, self._gate.quota_bytes // 8) or self._held:
            return
        path, aside = self.run_dir / SPOOL_NAME, self.run_dir / f"events.{self.seq:012d}.jsonl"
        try:
            os.fsync(self._file.fileno())
            path.rename(aside)
            try:
                fresh = open(path, "ab", buffering=0)  # noqa: SIM115
            except OSError:
                aside.rename(path)
                raise
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return
        self._file.close()
        self._file, self._size = fresh, 0

    def close(self) -> None:
        """Write what is held, and all of it to the disk. Error: OSError, where the disk is still full."""
        with self._lock:
            self._hold(self._notices(is_last=True))
            self._write_held()
            os.fsync(self._file.fileno())
            self._file.close()


def _cleaned(body: Body) -> Body:
    if not isinstance(body, Log):
        return body
    message = clean_line(body.message)
    return body if message == body.message else body.model_copy(update={"message": message})


def read_records(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (offset after the line, record) for each complete line from `offset`; stops at a torn tail.

    Errors: FileNotFoundError, DamagedLine for a complete line with a wrong checksum.
    """
    with open(path, "rb") as spool:
        spool.seek(offset)
        for line in spool:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield offset, decode(line)


def read_spool(run_dir: Path) -> Iterator[dict[str, Any]]:
    """All records of a run that its spool still holds, full files first. Errors: as read_records."""
    for path in [*(path for _, path in rotated(run_dir)), run_dir / SPOOL_NAME]:
        for _, record in read_records(path):
            yield record
