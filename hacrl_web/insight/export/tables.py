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
class TableColumn:
    """help: what a value means, with its unit."""

    name: str
    kind: Kind
    help: str


@dataclass(frozen=True)
class Table:
    """rows: of one run, the values of the columns after OF_RUN.  count: how many there are."""

    name: str
    help: str
    own_columns: tuple[TableColumn, ...]
    rows: Callable[[Run], Iterable[tuple[Any, ...]]]
    count: Callable[[Run], int]

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        return OF_RUN + self.own_columns

    def rows_of(self, runs: Iterable[Run]) -> Iterator[tuple[Any, ...]]:
        """The rows of several runs, one run after the other."""
        for run in runs:
            start = (str(run.pk), run.name, run.algorithm, run.variant, run.seed)
            for row in self.rows(run):
                yield start + row


OF_RUN = (
    TableColumn("run", "text", "id of the run"),
    TableColumn("run_name", "text", "name of the run"),
    TableColumn("algorithm", "text", "sharing rule of the run"),
    TableColumn("variant", "text", "its row in its sweep, if it has one"),
    TableColumn("seed", "integer", "seed of the run"),
)
STEP = TableColumn("step", "integer", "training step; 0 is before the first update")
PROMPT = TableColumn("prompt_id", "text", "id of the question")
SAMPLE = TableColumn("sample", "integer", "number of the response among those of its agent to this prompt in this step")
METRICS = (
    STEP,
    TableColumn("agent", "text", "agent, or the learner of a pair; empty for the run as a whole"),
    TableColumn("source", "text", "whose rollouts, for metrics of a pair; else empty"),
    TableColumn("metric", "text", "name as in docs/metrics.md; evaluations too"),
    TableColumn("value", "number", "empty if the trainer recorded none"),
)
ROLLOUTS = (
    STEP,
    TableColumn("agent", "text", "who sampled the response"),
    PROMPT,
    SAMPLE,
    TableColumn("prompt", "text", "the question"),
    TableColumn("completion", "text", "the response; empty in steps whose texts are no longer kept"),
    TableColumn("answer", "text", "the reference answer"),
    TableColumn("reward", "number", "of the verifier; empty if it could not decide"),
    TableColumn("finish_reason", "text", "stop: the agent ended the response; length: the limit did"),
    TableColumn("num_tokens", "integer", "of the response, in its agent's tokens"),
    TableColumn("mean_logp", "number", "mean log-probability of its tokens under its agent"),
    TableColumn(
        "turns",
        "text",
        "JSON, with an environment: of each turn a (agent), t (tool) or u, 1 if it failed, text",
    ),
    TableColumn("benchmark", "text", "training set of the prompt, in a run with several; else empty"),
)
CONTRIBUTIONS = (
    STEP,
    TableColumn("agent", "text", "the learner"),
    TableColumn("source", "text", "who sampled the response; the learner itself for its own"),
    PROMPT,
    SAMPLE,
    TableColumn("reward", "number", "of the response"),
    TableColumn("num_tokens", "integer", "in the learner's tokens"),
    TableColumn("source_num_tokens", "integer", "in the source's tokens"),
    TableColumn("advantage", "number", "A of the response for this learner"),
    TableColumn("start_ratio", "number", "s before the step's first update"),
    TableColumn("sequence_ratio", "number", "s: the learner's sequence probability over the source's, per token"),
    TableColumn("clipped_ratio", "number", "s after clipping"),
    TableColumn("clip_side", "text", "none, lower or upper"),
    TableColumn("omega", "number", "capability ratio on the gradient"),
    TableColumn("alpha", "number", "exponent of the clipped ratio, Eq. (12)"),
    TableColumn("importance", "number", "importance weight of an own response's loss; empty for 1"),
    TableColumn("weight", "number", "factor of the response's gradient"),
    TableColumn("capability", "number", "of the learner"),
    TableColumn("source_capability", "number", "of the source"),
    TableColumn("mini_batch", "integer", "number of the update within the step"),
    TableColumn("age", "integer", "steps since the response was sampled, where rollouts are replayed"),
    TableColumn("drop_reason", "text", "why it taught nothing; empty if it did"),
)


def _recorded(relation: str, columns: tuple[TableColumn, ...]) -> Callable[[Run], Iterator[tuple[Any, ...]]]:
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
