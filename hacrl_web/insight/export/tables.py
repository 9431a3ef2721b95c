"""The tables that a run or a sweep is exported as: their columns, and their rows in the order of runs and steps.

A step that was repeated after an interruption is there once, as its latest attempt recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hacrl_web.insight.recorded_steps import segments
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.metric_series import metric_rows

Kind = Literal["integer", "number", "text"]
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Column:
    """help: what a value means, with its unit."""

    name: str
    kind: Kind
    help: str


@dataclass(frozen=True)
class Table:
    """rows: of one run, the values of the columns after OF_RUN.  count: how many there are."""

    name: str
    help: str
    own_columns: tuple[Column, ...]
    rows: Callable[[Run], Iterable[tuple[Any, ...]]]
    count: Callable[[Run], int]

    @property
    def columns(self) -> tuple[Column, ...]:
        return OF_RUN + self.own_columns

    def rows_of(self, runs: Iterable[Run]) -> Iterator[tuple[Any, ...]]:
        """The rows of several runs, one run after the other."""
        for run in runs:
            start = (str(run.pk), run.name, run.algorithm, run.variant, run.seed)
            for row in self.rows(run):
                yield start + row


OF_RUN = (
    Column("run", "text", "id of the run"),
    Column("run_name", "text", "name of the run"),
    Column("algorithm", "text", "sharing rule of the run"),
    Column("variant", "text", "its row in its sweep, if it has one"),
    Column("seed", "integer", "seed of the run"),
)
STEP = Column("step", "integer", "training step; 0 is before the first update")
PROMPT = Column("prompt_id", "text", "id of the question")
SAMPLE = Column("sample", "integer", "number of the response among those of its agent to this prompt in this step")
METRICS = (
    STEP,
    Column("agent", "text", "agent, or the learner of a pair; empty for the run as a whole"),
    Column("source", "text", "whose rollouts, for metrics of a pair; else empty"),
    Column("metric", "text", "name as in docs/metrics.md; evaluations too"),
    Column("value", "number", "empty if the trainer recorded none"),
)
ROLLOUTS = (
    STEP,
    Column("agent", "text", "who sampled the response"),
    PROMPT,
    SAMPLE,
    Column("prompt", "text", "the question"),
    Column("completion", "text", "the response; empty in steps whose texts are no longer kept"),
    Column("answer", "text", "the reference answer"),
    Column("reward", "number", "of the verifier; empty if it could not decide"),
    Column("finish_reason", "text", "stop: the agent ended the response; length: the limit did"),
    Column("num_tokens", "integer", "of the response, in its agent's tokens"),
    Column("mean_logp", "number", "mean log-probability of its tokens under its agent"),
    Column(
        "turns",
        "text",
        "JSON, with an environment: of each turn a (agent), t (tool) or u, 1 if it failed, text",
    ),
    Column("benchmark", "text", "training set of the prompt, in a run with several; else empty"),
)
CONTRIBUTIONS = (
    STEP,
    Column("agent", "text", "the learner"),
    Column("source", "text", "who sampled the response; the learner itself for its own"),
    PROMPT,
    SAMPLE,
    Column("reward", "number", "of the response"),
    Column("num_tokens", "integer", "in the learner's tokens"),
    Column("source_num_tokens", "integer", "in the source's tokens"),
    Column("advantage", "number", "A of the response for this learner"),
    Column("start_ratio", "number", "s before the step's first update"),
    Column("sequence_ratio", "number", "s: the learner's sequence probability over the source's, per token"),
    Column("clipped_ratio", "number", "s after clipping"),
    Column("clip_side", "text", "none, lower or upper"),
    Column("omega", "number", "capability ratio on the gradient"),
    Column("alpha", "number", "exponent of the clipped ratio, Eq. (12)"),
    Column("importance", "number", "importance weight of an own response's loss; empty for 1"),
    Column("weight", "number", "factor of the response's gradient"),
    Column("capability", "number", "of the learner"),
    Column("source_capability", "number", "of the source"),
    Column("mini_batch", "integer", "number of the update within the step"),
    Column("age", "integer", "steps since the response was sampled, where rollouts are replayed"),
    Column("drop_reason", "text", "why it taught nothing; empty if it did"),
)


def _recorded(relation: str, columns: tuple[Column, ...]) -> Callable[[Run], Iterator[tuple[Any, ...]]]:
    names = [column.name for column in columns]

    def rows(run: Run) -> Iterator[tuple[Any, ...]]:
        table = getattr(run, relation)
        for one in segments(table.all()):
            part = table.filter(attempt=one.attempt, step__range=(one.first, one.last)).order_by("step", "seq")
            yield from part.values_list(*names).iterator(chunk_size=ROWS_AT_ONCE)

    return rows


def _recorded_count(relation: str) -> Callable[[Run], int]:
    def count(run: Run) -> int:
        table = getattr(run, relation)
        parts = segments(table.all())
        return sum(table.filter(attempt=one.attempt, step__range=(one.first, one.last)).count() for one in parts)

    return count


TABLES = {
    table.name: table
    for table in (
        Table(
            "metrics",
            "Every number that the charts draw, one a row.",
            METRICS,
            metric_rows,
            lambda run: sum(1 for _ in metric_rows(run)),
        ),
        Table(
            "rollouts",
            "The recorded responses with prompt, reference answer and reward.",
            ROLLOUTS,
            _recorded("rollouts", ROLLOUTS),
            _recorded_count("rollouts"),
        ),
        Table(
            "contributions",
            "What each recorded response taught each learner, with the factors of its weight.",
            CONTRIBUTIONS,
            _recorded("contributions", CONTRIBUTIONS),
            _recorded_count("contributions"),
        ),
    )
}
