"""Part of the contract: what a trainer says, and the spool line that carries it.

One event is one line of `events.jsonl`: a JSON object with `seq` (1, 2, 3, ... without gaps over all attempts),
`attempt`, `time`, `type`, the fields of its class, and last `crc`, the CRC-32 of the line without it. Numbers that are
not finite travel as null, and `nonfinite` says which they were. spool.py writes and reads the file. No torch, no
Django.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

# How the reason of a `paused` begins where a pause was asked for; any other one is the trainer's own.
PAUSE_ASKED = "pause was requested"
ANSWERS_AT_ONCE = 100  # questions in one event of an evaluation
TEXT_CHARACTERS = 1000
RIGHT, WRONG, UNSCORABLE = "1", "0", "-"  # of one sample
Level = Literal["info", "warning", "error"]
# What a run met and how it went on: shown in the list of events, not only in the log.
Incident = Literal["not finite", "out of memory", "disk", "verifier", "damaged file", "no rollouts", "engine"]


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
    """The trainer's last word.

    paused: it can go on from its newest checkpoint. interrupted: it was cut short from outside, and should.
    """

    type: Literal["finished"] = "finished"
    step: int
    outcome: Literal["completed", "stopped", "paused", "interrupted", "failed"]
    reason: str = ""


def _finite(value: Any, path: str, kinds: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        kinds[path] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return None
    if isinstance(value, dict):
        return {key: _finite(item, f"{path}.{key}" if path else str(key), kinds) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, f"{path}.{index}", kinds) for index, item in enumerate(value)]
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
    kinds: dict[str, str] = {}
    record = _finite(record, "", kinds)
    if kinds:
        record["nonfinite"] = kinds
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
