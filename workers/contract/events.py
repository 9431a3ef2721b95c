"""The events of a trainer, and their lines in the spool.

One event is one line of `events.jsonl`: a JSON object with `seq` (1, 2, 3, ... without gaps over all attempts),
`attempt`, `time`, `type`, the fields of its class, and last `crc`, the CRC-32 of the line without it. A number that is
not finite becomes null, and `nonfinite` has its place and value. spool.py writes and reads the file. No torch, no
Django.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from workers.contract.spec.environments import Turn

# The beginning of a `paused` event's reason after a request to pause; any other reason is the trainer's own.
PAUSE_REQUESTED = "pause was requested"
ANSWERS_AT_ONCE = 100  # questions in one event of an evaluation
TEXT_CHARACTERS = 1000
_CHECKSUM = b',"crc":"%08x"}\n'  # the end of a spool line
_CHECKSUM_BYTES = len(_CHECKSUM % 0)
CORRECT, INCORRECT, UNSCORABLE, PARTIAL = "1", "0", "-", "~"  # of one sample; PARTIAL: a reward between 0 and 1
Level = Literal["info", "warning", "error"]
# Trouble that a run met and dealt with; shown in the list of events as well as in the log.
Incident = Literal["not finite", "out of memory", "disk", "verifier", "damaged file", "no rollouts", "engine"]

# Why the text of a rollout is not what was sampled. characters: bytes that are no whole character, as where it was cut;
# special: special tokens, which have no text; space: the decoder drops a space at the beginning; other.
TextDifference = Literal["", "characters", "special", "space", "other"]
TEXT_DIFFERENCES: tuple[str, ...] = get_args(TextDifference)[1:]


class Body(BaseModel):
    """The fields of an event without its place in the spool."""

    # constants: NaN is written as NaN, which `encode` finds; the default would write null.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=True, ser_json_inf_nan="constants")


class Started(Body):
    """The trainer has started: versions, device, and the step from which it continues.

    settled: by section, the settings that the run leaves to the machine, as they are there (machine.py).
    """

    type: Literal["started"] = "started"
    step: int
    total_steps: int
    agents: list[str]
    device: str
    versions: dict[str, str]
    pid: int | None = None  # of the trainer's process, on its host
    settled: dict[str, dict[str, Any]] = {}
    gpus: float = 0  # held by the run; half a one that two agents of a cluster share


class Progress(Body):
    """A finished step. Counts are totals of the run so far; memory is the trainer process's, in bytes.

    steps_without_weight: by agent, how many steps in a row, up to this one, no rollout had weight; those above 0.
    """

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
    steps_without_weight: dict[
        str, int
    ] = {}  # by agent: steps in a row, up to this one, in which no rollout had weight


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
    """One verified response. `reward` is null if the answer could not be scored.

    `rewards`: by name, where several rewards make the total. `turns`: with an environment, and `completion` is the last
    one's text, which was verified. `benchmark`: the training set of its prompt, in a run with several.
    """

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
    rewards: dict[str, float] = {}
    turns: list[Turn] = []
    benchmark: str = ""


class Contribution(Body):
    """The use of one rollout by one learner: one row per (step, learner, rollout).

    `num_tokens` is in the learner's tokens, `source_num_tokens` in the source's; `alpha` is empty for own rollouts,
    and where the rule has no such exponent.
    `importance` is the importance weight of an own rollout; empty for 1.
    Of runs of earlier versions alone: `start_ratio`, the sequence ratio at the start of the step, and `age`, the number
    of steps since a replayed rollout was sampled, empty for those of this step.
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
    start_ratio: float | None = None
    age: int | None = None
    importance: float | None = None


class Evaluation(Body):
    """One agent, alone, on the held-out questions of one benchmark.

    `value` is avg@k with k = `num_samples`; `estimates` holds it and the others by name (sample_estimators.py). `asked`
    counts the samples that could be scored, `correct` the correct ones of them, `unscorable` the others. `slices` are
    (sum of rewards, asked) by the question's subject, and by `difficulty: ` with its difficulty. `questions`: SHA-256
    of ids, questions and answers; `verifier`: its kind and version.
    """

    type: Literal["evaluation"] = "evaluation"
    step: int
    agent: str
    benchmark: str
    metric: str
    value: float
    correct: int
    asked: int
    slices: dict[str, tuple[int | float, int]] = {}
    num_samples: int = 1
    unscorable: int = 0
    estimates: dict[str, float] = {}
    questions: str = ""
    verifier: str = ""


class Questions(Body):
    """At most ANSWERS_AT_ONCE questions of a benchmark's evaluations, from number `first` on.

    Emitted once an attempt, before the answers; texts are cut to TEXT_CHARACTERS.
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
    """One agent's answers in an evaluation: lists over the same questions as in `Questions`, in their order.

    `marks`: per sample CORRECT, PARTIAL, INCORRECT or UNSCORABLE.  `majority`: the most frequent answer.
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


class HarnessScore(BaseModel):
    """One metric of one task. filter: how the harness reads an answer; `none`: the response as it is."""

    metric: str
    filter: str
    value: float | None
    stderr: float | None = None
    higher_is_better: bool | None = None


class HarnessResult(Body):
    """One agent on one task or group of lm-evaluation-harness; its metrics are the harness's own.

    `num_questions`: really asked, of `num_available`. `benchmark`: of ours, in events of versions that made tasks of
    them.
    """

    type: Literal["harness"] = "harness"
    step: int = 0
    agent: str
    harness: str
    version: str
    task: str
    task_version: str = ""
    is_group: bool = False
    benchmark: str = ""
    num_fewshot: int | None = None
    num_questions: int | None = None
    num_available: int | None = None
    has_chat_template: bool = False
    scores: list[HarnessScore]


class Checkpoint(Body):
    """A complete, verified checkpoint of all agents; `path` is relative to the run directory."""

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    size_bytes: int


class Log(Body):
    """A log line; `incident` names trouble that the run has dealt with."""

    type: Literal["log"] = "log"
    level: Level = "info"
    message: str
    step: int | None = None
    incident: Incident | None = None


class LeftOut(Body):
    """How many events of each type were left out of the spool since the last such event, and why (spool.py)."""

    type: Literal["left_out"] = "left_out"
    counts: dict[str, int]
    reason: str


class Finished(Body):
    """The trainer's last event. paused: the run can continue from its newest checkpoint; interrupted: it should."""

    type: Literal["finished"] = "finished"
    step: int
    outcome: Literal["completed", "stopped", "paused", "interrupted", "failed"]
    reason: str = ""


def _finite(value: Any, path: str, kinds: dict[str, str]) -> Any:
    """The value with null for each number that is not finite, which goes into `kinds` by its path."""
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

    Pydantic writes JSON seven times faster than `json.dumps`, which writes what pydantic cannot.
    """
    head = f'{{"seq":{seq},"attempt":{attempt},"time":{round(when, 3)!r},'
    try:
        text = head.encode() + body.__pydantic_serializer__.to_json(body)[1:]
        is_plain = b"NaN" not in text and b"Infinity" not in text
    except PydanticSerializationError:  # half surrogate pairs
        is_plain = False
    if not is_plain:
        record = {"seq": seq, "attempt": attempt, "time": round(when, 3), **body.model_dump()}
        kinds: dict[str, str] = {}
        record = _finite(record, "", kinds)
        if kinds:
            record["nonfinite"] = kinds
        text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + _CHECKSUM % zlib.crc32(text)


class DamagedLine(ValueError):
    """A spool line with a wrong checksum or form."""


def verified(line: bytes) -> bytes:
    """The JSON text of a spool line, its checksum verified and removed. Error: DamagedLine."""
    text = line[:-_CHECKSUM_BYTES] + b"}"
    if line[-_CHECKSUM_BYTES:] != _CHECKSUM % zlib.crc32(text):
        raise DamagedLine(f"checksum does not match: {line[:80]!r}")
    return text


def decode(line: bytes) -> dict[str, Any]:
    """The JSON object of a spool line, its checksum verified and removed. Error: DamagedLine."""
    try:
        record: dict[str, Any] = json.loads(verified(line))
    except RecursionError:
        raise DamagedLine("it is nested too deeply") from None
    return record
