"""A bundle: one run with everything that is stored of it, as one ZIP file that another installation imports.

manifest.json             {format, version, run, exported_at, files: {name: {size, sha256}}}, written last
run.json                  RunFile: settings, state, history, alerts, agent group, benchmark
events.jsonl              every stored event in the order of seq, as in a spool: metrics, rollouts, evaluations, log ...
trainer.log               the trainer's output, as far as it is kept
questions/*.jsonl         the benchmark's question files
checkpoints/step-000040/  checkpoints as the trainer saved them, if they were asked for
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeVar
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from workers.contract.checkpoint_manifest import FOLDER_NAME

FORMAT: Final = "hacrl-run"
VERSION = 1
MANIFEST_NAME, RUN_NAME, EVENTS_NAME, OUTPUT_NAME = "manifest.json", "run.json", "events.jsonl", "trainer.log"
TRAIN_NAME, HELD_OUT_NAME = "questions/train.jsonl", "questions/held_out.jsonl"
# Safetensors, JSON and texts: none of them is code, and none is unpickled.
CHECKPOINT_FILE = re.compile(
    rf"{FOLDER_NAME}/step-\d{{6,9}}(/[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}){{1,5}}\.(json|safetensors|txt|jinja|model|md)",
    re.ASCII,
)
MAX_NUMBER = 2**31 - 1
Text = Annotated[str, StringConstraints(max_length=20_000)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=120)]
Agent = Annotated[str, StringConstraints(max_length=80)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
Seq = Annotated[int, Field(ge=0, lt=2**62)]
# Near the ends of the calendar a database cannot store every time zone's time.
Moment = Annotated[AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(3000, 1, 1, tzinfo=UTC))]
Scalar = bool | int | float | Annotated[str, StringConstraints(max_length=200)] | None


class FilePart(BaseModel):
    """What all parts of run.json have in common."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


PartT = TypeVar("PartT", bound=FilePart)


def columns_as(part: type[PartT], row: Any, **further: Any) -> PartT:
    """The columns of a row that a part of run.json has, with values for its other fields."""
    names = [name for name in part.model_fields if name not in further]
    return part(**{name: getattr(row, name) for name in names}, **further)


class RunFacts(FilePart):
    """Columns of runs.Run. state: only a run that has ended is exported."""

    id: UUID
    name: Name
    variant: Annotated[str, StringConstraints(max_length=120)] = ""
    spec: dict[str, Any]
    agent_changes: dict[str, dict[str, Any]] = {}
    state: Literal["completed", "failed", "stopped"]
    desired_state: Literal["run", "pause", "stop"] = "run"
    desire_reason: Text = ""
    reason: Text = ""
    attempt: Count
    interruptions: Count = 0
    start_step: Count = 0
    step: Count
    total_steps: Count
    texts_from: Count = 0
    progress: dict[str, Scalar | dict[str, Scalar]] = {}
    worker_host: Annotated[str, StringConstraints(max_length=255)] = ""
    tags: Annotated[str, StringConstraints(max_length=450)] = ""
    notes: Text = ""
    created_at: Moment
    started_at: Moment | None = None
    finished_at: Moment | None = None


class ChangeFacts(FilePart):
    """Columns of runs.StatusChange."""

    from_state: Annotated[str, StringConstraints(max_length=16)]
    to_state: Annotated[str, StringConstraints(max_length=16)]
    attempt: Count
    reason: Text
    at: Moment


class AlertFacts(FilePart):
    """Columns of alerts.Alert."""

    kind: Annotated[str, StringConstraints(max_length=32)]
    agent: Agent
    source: Agent
    attempt: Count
    number: float
    text: Text
    raised_seq: Seq
    raised_step: Count
    raised_at: Moment
    cleared_step: Count | None
    cleared_at: Moment | None
    cleared_reason: Annotated[str, StringConstraints(max_length=200)]


class ModelFacts(FilePart):
    """Columns of registry.LanguageModel. place: the hub id; of a local model, what tells it from others."""

    name: Agent
    kind: Literal["local", "hub"]
    place: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    revision: Annotated[str, StringConstraints(max_length=200)] = ""
    architecture: Annotated[str, StringConstraints(max_length=200)] = ""
    num_parameters: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    vocab_size: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    context_length: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    tokenizer_hash: Annotated[str, StringConstraints(max_length=128)] = ""
    has_chat_template: bool = False
    facts: dict[str, bool] = {}  # of KEPT_FACTS


class AgentFacts(FilePart):
    """Columns of registry.Agent."""

    name: Agent
    position: Annotated[int, Field(ge=0, lt=8)]
    learning_rate: float | None
    prompt_format: Literal["auto", "chat", "plain"]
    settings: dict[str, Any]
    model: ModelFacts


class GroupFacts(FilePart):
    name: Agent
    agents: Annotated[list[AgentFacts], Field(min_length=1, max_length=8)]


class BenchmarkFacts(FilePart):
    """Columns of registry.Benchmark. reward_function: SHA-256 of the text of the one that verifies its answers."""

    name: Agent
    verifier: Annotated[str, StringConstraints(max_length=16)]
    extraction: Annotated[str, StringConstraints(max_length=16)]
    tolerance: float | None
    held_out_fraction: float
    prompt_template: Text
    system_prompt: Text
    source: Annotated[str, StringConstraints(max_length=1000)]
    questions_sha: Annotated[str, StringConstraints(max_length=64)]
    reward_function: Annotated[str, StringConstraints(max_length=64)] = ""


class RunFile(FilePart):
    """run.json. is_generated: tools/generated_runs made up its numbers."""

    run: RunFacts
    is_generated: bool = False
    owner: Annotated[str, StringConstraints(max_length=150)]
    status_changes: Annotated[list[ChangeFacts], Field(max_length=10_000)]
    alerts: Annotated[list[AlertFacts], Field(max_length=100_000)] = []
    group: GroupFacts | None
    benchmark: BenchmarkFacts | None

    @field_validator("alerts")
    @classmethod
    def _alerts_differ(cls, alerts: list[AlertFacts]) -> list[AlertFacts]:
        if len({(one.kind, one.agent, one.source, one.raised_seq) for one in alerts}) < len(alerts):
            raise ValueError("the same alert is there twice")
        return alerts


KEPT_FACTS = ("has_thinking_switch", "takes_system")


class FileEntry(FilePart):
    size: Annotated[int, Field(ge=0, lt=2**50)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class BundleManifest(FilePart):
    """manifest.json."""

    format: Literal["hacrl-run"]
    version: int
    run: UUID
    exported_at: Moment
    files: dict[str, FileEntry]
