"""Creates and deletes agent groups, for the pages, the API and the demo.

Each function checks everything, then writes everything or nothing. Errors are raised as FieldErrors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from hacrl_web.accounts.models import Project, User
from hacrl_web.accounts.roles.projects import project_of_new
from hacrl_web.registry.agent_groups.agent_changes import with_changes
from hacrl_web.registry.agent_groups.agent_settings import check_seeds, take_settings
from hacrl_web.registry.base import values
from hacrl_web.registry.language_models.service import MAX_LISTED, MAX_NAMED
from hacrl_web.registry.models import MAX_AGENTS, Agent, AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldErrors, listed


def create_group(
    owner: User, *, name: str, agents: Sequence[Mapping[str, Any]], edit_of: AgentGroup | None = None
) -> AgentGroup:
    """Write a group and its agents; an agent has `model` (id), `name` and the fields of agent_settings.FIELDS.

    edit_of: the group that it is a newer version of, unless its models are of another project.

    Errors: FieldErrors, with fields such as `agents.1.name`.
    """
    checker = values.Checker()
    named = checker.take("name", values.name, name)
    if not 1 <= len(agents) <= MAX_AGENTS:
        checker.add("agents", "agent_count", f"Choose 1 to {MAX_AGENTS} models; you gave {len(agents)}.")
    rows = [_agent(checker, owner, position, agent) for position, agent in enumerate(agents[:MAX_AGENTS])]
    _name_agents(checker, rows)
    check_seeds(checker, rows)
    project = _common_project(checker, owner, rows)
    if named is not None:
        checker.take("name", values.check_name_is_free, AgentGroup, project, named)
    (named,) = checker.finish(named)
    if edit_of is not None and edit_of.project_id != project.pk:
        edit_of = None
    group = AgentGroup(owner=owner, project=project, name=named, edit_of=edit_of)
    with values.unique_name(named):
        group.save(force_insert=True)
        for row in rows:
            row.group = group
        Agent.objects.bulk_create(rows)
    return group


def copy_group(user: User, group: AgentGroup, *, name: object, changes: Any = None) -> AgentGroup:
    """A newer version of a group, with other settings of some. Runs of the old one keep theirs. Error: FieldErrors.

    changes: {agent: {setting: value}}, of agent_changes.py.
    """
    checker = values.Checker()
    named = checker.take("name", values.name, name)
    if named is not None:
        checker.take("name", values.check_name_is_free, AgentGroup, group.project, named)
    rows, _ = with_changes(list(group.agents.select_related("model")), changes or {}, checker.errors)
    (named,) = checker.finish(named)
    copied = AgentGroup(owner=user, project=group.project, name=named, edit_of=group)
    with values.unique_name(named):
        copied.save(force_insert=True)
        for row in rows:
            columns = {key: getattr(row, key) for key in ("model", "name", "position", "learning_rate", "settings")}
            Agent.objects.create(group=copied, prompt_format=row.prompt_format, **columns)
    return copied


def _common_project(checker: values.Checker, owner: User, rows: list[Agent]) -> Project:
    """The project of the first model, which the group gets; models of another project are errors."""
    models_of = [(row, row.model) for row in rows if row.model_id is not None]
    project = models_of[0][1].project if models_of else project_of_new(owner)
    for row, model in models_of:
        if model.project_id != project.pk:
            message = (
                f"“{model.name}” is in project “{model.project}”, the first model in “{project}”: use one project."
            )
            checker.add(f"agents.{row.position}.model", "other_project", message)
    return project


def _agent(checker: values.Checker, owner: User, position: int, fields: Mapping[str, Any]) -> Agent:
    """The agent's row, with all values that passed their checks."""
    place = f"agents.{position}"
    row = Agent(position=position)
    model_id = checker.take(f"{place}.model", values.row_id_from, fields.get("model"))
    if model_id is not None:
        model = LanguageModel.objects.visible_to(owner).select_related("project").filter(pk=model_id).first()
        if model is None:
            checker.add(f"{place}.model", "not_found", "There is no such model.")
        else:
            row.model = model
    if fields.get("name") not in (None, ""):
        row.name = checker.take(f"{place}.name", values.name, fields["name"]) or ""
    take_settings(checker, row, fields)
    return row


def _name_agents(checker: values.Checker, rows: list[Agent]) -> None:
    """Check that names are unique; an agent without one gets its model's, numbered if another agent has it."""
    used: dict[str, int] = {}
    for row in rows:
        if row.name and used.setdefault(row.name, row.position) != row.position:
            message = f"Agent {used[row.name] + 1} is also named “{row.name}”. Give each agent its own name."
            checker.add(f"agents.{row.position}.name", "name_twice", message)
    for row in rows:
        if row.name or row.model_id is None:
            continue
        candidate, number = row.model.name, 1
        while candidate in used:
            number += 1
            candidate = f"{row.model.name[: values.MAX_NAME - 3]} {number}"
        row.name = candidate
        used[candidate] = row.position


@dataclass(frozen=True)
class GroupUses:
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
            f"{self.num_runs} run{'' if one else 's'}{archived} {'uses' if one else 'use'} this agent group: "
            f"{listed(places, MAX_NAMED)}. Delete {'it' if one else 'them'} first: results are compared by their group."
        )


def uses_of(group: AgentGroup) -> GroupUses:
    runs = group.runs.order_by()
    sweeps = runs.exclude(sweep=None).values_list("sweep_id", "sweep__name").distinct()
    return GroupUses(
        num_runs=runs.count(),
        num_archived=runs.exclude(archived_at=None).count(),
        sweeps=list(sweeps.order_by("-sweep_id")[:MAX_LISTED]),
        alone=list(runs.filter(sweep=None).only("name", "state").order_by("-created_at", "-pk")[:MAX_LISTED]),
    )


def delete_group(group: AgentGroup) -> None:
    """Delete a group with its agents. Error: FieldErrors (409) while a run, even an ended one, uses it."""
    with transaction.atomic():
        # A run that is launched meanwhile waits for this lock, and is refused because its group is gone.
        locked = AgentGroup.objects.select_for_update(of=("self",)).get(pk=group.pk)
        uses = uses_of(locked)
        if uses.num_runs:
            raise FieldErrors.single("in_use", uses.refusal, status=409)
        locked.delete()
