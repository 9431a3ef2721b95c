"""Drafts of sweeps: saved requests whose runs do not exist yet. Queueing one checks it again and makes its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require
from hacrl_web.runs.launch.launch import hold
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Sweep
from hacrl_web.runs.sweeps.plan import SweepPlan, plan_sweep
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.run import RunSpec


def save_sweep(user: Any, plan: SweepPlan) -> Sweep:
    """A draft of a checked request. Error: FieldErrors (403 for a viewer)."""
    require(user, plan.rows.project, Role.MEMBER)
    with transaction.atomic():
        hold(plan.rows)
        return Sweep.objects.create(owner=user, project=plan.rows.project, **_columns(plan))


def change_sweep_draft(user: Any, sweep: Sweep, request: Mapping[str, Any]) -> Sweep:
    """Replace a draft's settings. Error: FieldErrors (403, 409; 422 as at launch), and nothing is written."""
    with held_draft(user, sweep) as held:
        plan = plan_sweep(user, {**request, "draft": True})
        require_same_project(plan, held)
        for column, value in _columns(plan).items():
            setattr(held, column, value)
        held.save()
    return held


def require_same_project(plan: SweepPlan, draft: Sweep) -> None:
    """Error: LaunchError where the request is of another project."""
    if plan.rows.project.pk != draft.project_id:
        message = f"The draft is of project “{draft.project}”: choose a group of that project."
        raise LaunchError.single("other_project", message, "group")


def unchanged_plan(user: Any, draft: Sweep, confirm: Sequence[str]) -> SweepPlan:
    """The runs of a draft, checked again. Error: LaunchError, also where group or benchmark have changed since."""
    plan = plan_sweep(user, {**draft.request, "confirm": list(confirm)})
    if _digest(plan) != draft.draft_digest:
        message = "Its agent group or a benchmark changed since it was saved: edit the draft and check it."
        raise LaunchError.single("changed_since", message)
    return plan


def plan_of_draft(user: Any, draft: Sweep) -> SweepPlan:
    """Its runs, with cautions unconfirmed. Error: LaunchError where its settings are refused by now."""
    return plan_sweep(user, {**draft.request, "draft": True})


def cautions_of(plan: SweepPlan) -> list[FieldError]:
    """The cautions of all its runs, each once: they are confirmed when it is queued."""
    cautions = {caution.code: caution for spec in _checked(plan) for caution in spec.cautions()}
    return [FieldError(caution.code, caution.message, caution.field) for caution in cautions.values()]


@contextmanager
def held_draft(user: Any, sweep: Sweep) -> Iterator[Sweep]:
    """The draft, locked until the end. Error: FieldErrors (403 for a viewer, 409 if it is no longer a draft)."""
    require(user, sweep.project, Role.MEMBER)
    with transaction.atomic():
        held = Sweep.objects.select_for_update(of=("self",)).select_related("project").filter(pk=sweep.pk).first()
        if held is None or not held.is_draft:
            state = "was queued" if held else "was deleted"
            raise FieldErrors.single("not_draft", f"{sweep.name} is no longer a draft: it {state}.", status=409)
        yield held


def _columns(plan: SweepPlan) -> dict[str, Any]:
    return {"name": plan.request["name"], "request": plan.request, "draft_digest": _digest(plan)}


def _checked(plan: SweepPlan) -> list[RunSpec]:
    """Its runs; of a search, the ends of its ranges."""
    return [run.spec for run in plan.probes] or plan.specs


def _digest(plan: SweepPlan) -> str:
    """SHA-256 over the settings of all runs, those of agents and benchmarks included."""
    return hashlib.sha256("\n".join(spec.model_dump_json() for spec in _checked(plan)).encode()).hexdigest()
