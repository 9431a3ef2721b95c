"""Forgetting a model and deleting an agent group: what is lost, and why not now. Pages and the API come here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors

NAMED = 5
SHOWN = 50


@dataclass(frozen=True)
class Uses:
    """What was made with a group: its sweeps as (id, name), and the runs of no sweep; SHOWN of each, newest first."""

    num_runs: int
    num_archived: int
    sweeps: list[tuple[int, str]]
    alone: list[Any]

    @property
    def refusal(self) -> str:
        """Why the group stays: how many runs, and where they are."""
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
        sweeps=list(sweeps.order_by("-sweep_id")[:SHOWN]),
        alone=list(runs.filter(sweep=None).only("name", "state").order_by("-created_at", "-pk")[:SHOWN]),
    )


def delete_group(group: AgentGroup) -> None:
    """The group with its agents; the models stay. Error: FieldErrors (409) while a run has it, an ended one too."""
    with transaction.atomic():
        # Held: a run that is launched meanwhile waits until its group is gone, and is refused.
        held = AgentGroup.objects.select_for_update(of=("self",)).get(pk=group.pk)
        uses = uses_of(held)
        if uses.num_runs:
            raise _in_use(uses.refusal)
        held.delete()


def delete_model(model: LanguageModel) -> None:
    """The row alone: its files are not ours to delete. Error: FieldErrors (409) while a group has it."""
    with transaction.atomic():
        held = LanguageModel.objects.select_for_update(of=("self",)).get(pk=model.pk)
        names = list(groups_with(held).values_list("name", flat=True))
        if names:
            one = len(names) == 1
            text = f"{len(names)} agent group{' has' if one else 's have'} this model: {_named(names)}."
            raise _in_use(f"{text} Delete {'it' if one else 'them'} first.")
        held.delete()


def groups_with(model: LanguageModel) -> Any:
    """The groups of a model, newest first, as a query: whoever may see it may see them, they are of its project."""
    return AgentGroup.objects.filter(agents__model=model).distinct()


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (" and others" if names[NAMED:] else "")


def _in_use(message: str) -> FieldErrors:
    return FieldErrors([FieldError("in_use", message, None)], 409)
