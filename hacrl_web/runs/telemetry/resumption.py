"""Resumptions: the steps that an attempt repeats, because the newest checkpoint is older than the last step."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max

from hacrl_web.runs.models import Run, TelemetryEvent


@dataclass(frozen=True)
class Resumption:
    """An attempt that continued from `step`, after earlier ones had reached `reached`; step 0 has no checkpoint."""

    attempt: int
    step: int
    reached: int

    def __str__(self) -> str:
        count = self.reached - self.step
        steps = f"{count} step{'' if count == 1 else 's'}"
        if not self.step:
            return f"Attempt {self.attempt} restarted without a checkpoint and repeats {steps}."
        return f"Resumed from the checkpoint of step {self.step}; repeats {steps}."


def resumption_of(started: TelemetryEvent) -> Resumption | None:
    """The resumption that a `started` event begins; None if it repeats no step."""
    if started.attempt < 2:
        return None
    earlier = TelemetryEvent.objects.filter(run_id=started.run_id, type="progress", seq__lt=started.seq)
    reached = earlier.aggregate(reached=Max("step"))["reached"]
    resumption = Resumption(started.attempt, started.step or 0, reached or 0)
    return resumption if resumption.reached > resumption.step else None


def under_way(run: Run) -> Resumption | None:
    """The resumption whose repeated steps are not done yet: the run's numbers are lower than they were."""
    if run.attempt < 2:
        return None
    started = run.events.filter(type="started").order_by("-seq").first()
    resumption = resumption_of(started) if started is not None else None
    return resumption if resumption is not None and run.step < resumption.reached else None
