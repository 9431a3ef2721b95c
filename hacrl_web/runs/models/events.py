"""What a run's trainer reported, as rows: one model for each kind of event that is queried by its columns.

Only runs/telemetry writes them. Each row names its attempt, for a resumed run may repeat steps.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from hacrl_web.accounts.roles.visibility import ProjectRowQuerySet


class RunRowQuerySet(ProjectRowQuerySet[Any]):
    """Rows of runs, visible to the users who may see the run."""

    project_path = "run__project"


def _text(name: str) -> Cast:
    """A text of the payload. The cast takes it out of JSON's lookups, which compare with jsonb."""
    return Cast(KeyTextTransform(name, "payload"), models.TextField())


class EventQuerySet(RunRowQuerySet):
    def with_text(self, **texts: str) -> EventQuerySet:
        """The events whose payload has these texts by name.

        The database compares them as texts: PostgreSQL knows no equality of json, which the payload is there.
        """
        columns = {f"{name}_text": _text(name) for name in texts}
        return self.annotate(**columns).filter(**{f"{name}_text": text for name, text in texts.items()})

    def incidents(self) -> EventQuerySet:
        """Log lines that name an incident. A null is no text on PostgreSQL, and the text null on SQLite."""
        named = self.filter(type="log").annotate(incident_text=_text("incident"))
        return named.filter(incident_text__isnull=False).exclude(incident_text="null")


class PayloadField(models.JSONField):
    """JSON that is stored as it came. On PostgreSQL it is json: writing jsonb costs the server as much as all the rest.

    Its keys can be read in queries; `EventQuerySet.with_text` compares them.
    """

    def db_type(self, connection: Any) -> str | None:
        return "json" if connection.vendor == "postgresql" else super().db_type(connection)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # The driver parses json itself; only jsonb comes as text.
        return value if connection.vendor == "postgresql" else super().from_db_value(value, expression, connection)


class SpoolRow(models.Model):
    """A row that stores one event of the spool."""

    seq = models.BigIntegerField()
    attempt = models.PositiveIntegerField()

    objects = RunRowQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering = ["seq"]


class TelemetryEvent(SpoolRow):
    """An event of any type that has no table below.

    PostgreSQL does not check each row's run: the shipper holds the run's row while it writes, as a deletion does.
    """

    run = models.ForeignKey(
        "runs.Run", on_delete=models.CASCADE, related_name="events", db_index=False, db_constraint=False
    )
    type = models.CharField(max_length=16)
    step = models.PositiveIntegerField(null=True)
    agent = models.CharField(max_length=80, blank=True)
    source = models.CharField(max_length=80, blank=True)
    payload = PayloadField()  # the event's other fields
    time = models.FloatField()  # seconds since 1970

    objects = EventQuerySet.as_manager()

    class Meta(SpoolRow.Meta):
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_once")]
        indexes = [
            models.Index(fields=["run", "type", "agent", "source", "step"], name="event_metrics"),
            models.Index(fields=["run", "type", "seq"], name="event_type_seq"),
        ]


class MetricChunk(models.Model):
    """Values of one metric of one attempt, packed: a copy that is quicker to read than events (metric_series.py)."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="metric_chunks", db_index=False)
    attempt = models.PositiveIntegerField()
    metric = models.CharField(max_length=200)
    agent = models.CharField(max_length=80)
    source = models.CharField(max_length=80, blank=True)
    place = models.PositiveIntegerField()  # of the metric within its events: the order of the columns
    first_step = models.PositiveIntegerField()
    last_step = models.PositiveIntegerField()
    count = models.PositiveIntegerField()
    packed = models.BinaryField()

    objects = RunRowQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["run", "metric", "agent", "source"], name="chunk_column")]


class RolloutSample(SpoolRow):
    """workers.contract.events.Rollout: one verified response."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="rollouts", db_index=False)
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    prompt_id = models.CharField(max_length=200)
    sample = models.PositiveIntegerField()
    prompt = models.TextField()
    completion = models.TextField()
    answer = models.TextField()
    reward = models.FloatField(null=True)
    finish_reason = models.CharField(max_length=16)
    num_tokens = models.PositiveIntegerField()
    mean_logp = models.FloatField(null=True)
    rewards = models.TextField(null=True)  # JSON: by name, where several rewards make the total
    turns = models.TextField(null=True)  # JSON: of a rollout with an environment (telemetry/tables.py)
    benchmark = models.CharField(max_length=120, null=True)  # of its prompt, in a run with several training sets

    class Meta(SpoolRow.Meta):
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="rollout_once")]
        indexes = [
            models.Index(fields=["run", "step", "agent", "prompt_id", "sample"], name="rollout_place"),
            models.Index(fields=["run", "attempt", "step", "seq"], name="rollout_order"),
        ]


class Contribution(SpoolRow):
    """workers.contract.events.Contribution: what one rollout taught one learner."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="contributions", db_index=False)
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    source = models.CharField(max_length=80)
    prompt_id = models.CharField(max_length=200)
    sample = models.PositiveIntegerField()
    num_tokens = models.PositiveIntegerField()
    advantage = models.FloatField(null=True)
    sequence_ratio = models.FloatField(null=True)
    start_ratio = models.FloatField(null=True)
    clipped_ratio = models.FloatField(null=True)
    clip_side = models.CharField(max_length=8)
    omega = models.FloatField(null=True)
    weight = models.FloatField(null=True)
    mini_batch = models.PositiveIntegerField(null=True)
    drop_reason = models.CharField(max_length=200, blank=True, null=True)
    reward = models.FloatField(null=True)
    source_num_tokens = models.PositiveIntegerField(null=True)
    alpha = models.FloatField(null=True)
    capability = models.FloatField(null=True)
    source_capability = models.FloatField(null=True)
    age = models.PositiveIntegerField(null=True)
    importance = models.FloatField(null=True)

    class Meta(SpoolRow.Meta):
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="contribution_once")]
        indexes = [
            models.Index(fields=["run", "step", "agent", "source", "prompt_id"], name="contribution_place"),
            models.Index(fields=["run", "attempt", "step", "seq"], name="contribution_order"),
        ]


class QuestionChunk(SpoolRow):
    """workers.contract.events.Questions: some questions of a run's evaluations. Texts are JSON lists."""

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="question_chunks", db_index=False)
    benchmark = models.CharField(max_length=120)
    first = models.PositiveIntegerField()
    ids = models.TextField()
    subjects = models.TextField()
    difficulties = models.TextField()
    answers = models.TextField()
    questions = models.TextField()

    class Meta(SpoolRow.Meta):
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="questions_once")]
        indexes = [models.Index(fields=["run", "benchmark", "first"], name="questions_place")]


class AnswerChunk(SpoolRow):
    """workers.contract.events.Answers: one agent's answers to some questions of an evaluation. Texts are JSON lists.

    The responses are the last column, so a query of the marks need not read past them.
    """

    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="answer_chunks", db_index=False)
    step = models.PositiveIntegerField()
    agent = models.CharField(max_length=80)
    benchmark = models.CharField(max_length=120)
    first = models.PositiveIntegerField()
    marks = models.TextField()
    majority = models.TextField()
    responses = models.TextField()

    class Meta(SpoolRow.Meta):
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="answers_once")]
        indexes = [models.Index(fields=["run", "benchmark", "step", "first"], name="answers_place")]


RECORDED_TABLES: tuple[type[models.Model], ...] = (
    TelemetryEvent,
    MetricChunk,
    RolloutSample,
    Contribution,
    QuestionChunk,
    AnswerChunk,
)  # the large ones: they have most rows of a run
