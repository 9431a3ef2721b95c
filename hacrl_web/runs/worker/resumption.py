"""What a resume takes back: steps that an attempt makes again, since the newest checkpoint is of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max

from hacrl_web.runs.models import Run, TelemetryEvent


@dataclass(frozen=True)
class Resumption:
    """An attempt that went on from `step`, after earlier ones had reached `reached`; step 0 has no checkpoint."""

    attempt: int
    step: int
    reached: int

    def __str__(self) -> str:
        again = self.reached - self.step
        done = f"{again} step{'' if again == 1 else 's'} {'is' if again == 1 else 'are'} done again."
        if not self.step:
            return f"Attempt {self.attempt} began anew, without a checkpoint: {done}"
        return f"Resumed from the checkpoint of step {self.step}: {done}"


def resumption_of(started: TelemetryEvent) -> Resumption | None:
    """What the attempt that a `started` event begins makes again; None where it makes nothing again."""
    if started.attempt < 2:
        return None
    earlier = TelemetryEvent.objects.filter(run_id=started.run_id, type="progress", seq__lt=started.seq)
    reached = earlier.aggregate(reached=Max("step"))["reached"]
    resumption = Resumption(started.attempt, started.step or 0, reached or 0)
    return resumption if resumption.reached > resumption.step else None


def under_way(run: Run) -> Resumption | None:
    """The resume that a run has not made up for yet: its numbers are lower than they were."""
    if run.attempt < 2:
        return None
    started = run.events.filter(type="started").order_by("-seq").first()
    resumption = resumption_of(started) if started is not None else None
    return resumption if resumption is not None and run.step < resumption.reached else None
