"""The trials of a sweep that searches: the values that each tried, and how it ended.

They hold all that a search needs to continue, with or without their runs: no other store knows of it.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from hacrl_web.accounts.roles.visibility import ProjectRowQuerySet


class SearchState(models.TextChoices):
    """What the dispatcher does with a sweep that searches. A sweep of a grid has none of these."""

    SEARCHING = "searching"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"


class TrialState(models.TextChoices):
    """running: its run has not ended, and may still wait in the queue."""

    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    STOPPED = "stopped"


class TrialQuerySet(ProjectRowQuerySet[Any]):
    """Trials, visible to the users who may see the sweep."""

    project_path = "sweep__project"

    def follow_retry(self, old: Any, new: Any) -> None:
        """Give the trial of a retried run to the new run; it is under way again."""
        trials = self.filter(run=old)
        trials.update(
            run=new,
            state=TrialState.RUNNING,
            value=None,
            scores={},
            rungs={},
            pruned_step=None,
            reason="",
            ended_at=None,
        )


class Trial(models.Model):
    """One point of a search and its run. run: null where its settings were refused, or the run was deleted."""

    sweep = models.ForeignKey("runs.Sweep", on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()  # from 0
    run = models.ForeignKey("runs.Run", on_delete=models.SET_NULL, null=True, blank=True, related_name="trials")
    parameters = models.JSONField(default=dict)  # setting -> value
    state = models.CharField(max_length=12, choices=TrialState.choices, default=TrialState.RUNNING, db_index=True)
    value = models.FloatField(null=True)  # the objective at its end; of a pruned one, where it was pruned
    scores: Any = models.JSONField(default=dict)  # the objective by step, as text; those that the pruner has judged
    rungs: Any = models.JSONField(default=dict)  # what successive halving keeps of a trial
    pruned_step = models.PositiveIntegerField(null=True)  # set before its run is stopped
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    objects = TrialQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["sweep", "number"], name="trial_once")]

    def __str__(self) -> str:
        return f"trial {self.number}"
