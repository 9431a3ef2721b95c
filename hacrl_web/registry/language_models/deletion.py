"""Deletes models and agent groups, and counts the uses that prevent it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors

MAX_NAMED = 5  # in a message
MAX_LISTED = 50


@dataclass(frozen=True)
class Uses:
    """The runs of a group: its sweeps as (id, name), and the runs of no sweep; MAX_LISTED of each, newest first."""

    num_runs: int
    num_archived: int
    sweeps: list[tuple[int, str]]
    alone: list[Any]

    @property
    def refusal(self) -> str:
        """Why the group cannot be deleted: the number of runs, and their names."""
        places = [f"sweep “{name}”" for _, name in self.sweeps] + [f"run “{run.name}”" for run in self.alone]
        archived = f" ({self.num_archived} archived)" if self.num_archived else ""
        one = self.num_runs == 1
        return (
            f"{self.num_runs} run{'' if one else 's'}{archived} {'has' if one else 'have'} this agent group: "
            f"{_named(places)}. Delete {'it' if one else 'them'} first: results are compared by their group."
        )


def uses_of(group: AgentGroup) -> Uses:
    runs = group.runs.order_by()
    sweeps = runs.exclude(sweep=None).values_list("sweep_id", "sweep__name").distinct()
    return Uses(
        num_runs=runs.count(),
        num_archived=runs.exclude(archived_at=None).count(),
        sweeps=list(sweeps.order_by("-sweep_id")[:MAX_LISTED]),
        alone=list(runs.filter(sweep=None).only("name", "state").order_by("-created_at", "-pk")[:MAX_LISTED]),
    )


def delete_group(group: AgentGroup) -> None:
    """Delete a group with its agents. Error: FieldErrors (409) while a run, even an ended one, has it."""
    with transaction.atomic():
        # A run that is launched meanwhile waits for this lock, and is refused because its group is gone.
        locked = AgentGroup.objects.select_for_update(of=("self",)).get(pk=group.pk)
        uses = uses_of(locked)
        if uses.num_runs:
            raise _in_use(uses.refusal)
        locked.delete()


def delete_model(model: LanguageModel) -> None:
    """Delete the row and no file. Error: FieldErrors (409) while a group has the model."""
    with transaction.atomic():
        locked = LanguageModel.objects.select_for_update(of=("self",)).get(pk=model.pk)
        names = list(groups_with(locked).values_list("name", flat=True))
        if names:
            one = len(names) == 1
            text = f"{len(names)} agent group{' has' if one else 's have'} this model: {_named(names)}."
            raise _in_use(f"{text} Delete {'it' if one else 'them'} first.")
        locked.delete()


def groups_with(model: LanguageModel) -> Any:
    """Query of the groups that use a model, newest first; all of them are of its project."""
    return AgentGroup.objects.filter(agents__model=model).distinct()


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (" and others" if names[MAX_NAMED:] else "")


def _in_use(message: str) -> FieldErrors:
    return FieldErrors([FieldError("in_use", message, None)], 409)
