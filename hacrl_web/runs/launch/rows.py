"""The rows that a launch request names, all visible to the user: group, agents, benchmarks. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hacrl_web.accounts.models import Project, User
from hacrl_web.registry.agent_groups.agent_changes import KEY, Changes, with_changes
from hacrl_web.registry.benchmarks.training_sets import (
    EVALUATIONS,
    TRAINING_SETS,
    ChosenSet,
    listed_evaluations,
    listed_sets,
)
from hacrl_web.registry.language_models.service import check_unchanged
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.web.errors import MAX_ERRORS, FieldError, FieldErrors
from hacrl_web.web.page_query import MAX_ID, whole_number
from workers.contract.spec.run import SECTIONS

VERSION = "schema_version"  # of a settings file that is sent as it is
KEYS = frozenset(
    {"name", "group", "benchmark", "agents", "seed", "confirm", "cloned_from", "draft", VERSION, *SECTIONS}
)


@dataclass(frozen=True)
class RequestRows:
    """The rows that a request names; None, or no agents, for those that do not exist."""

    group: AgentGroup | None
    benchmark: Benchmark | None
    agents: list[Agent]
    further: list[Benchmark] | None  # of the evaluations; None where the request has no such list
    confirmed: list[str]  # codes of cautions
    changes: Changes  # of `agents`, which have them, by agent
    training_sets: list[ChosenSet] | None = None  # further ones; None where the request has no such list

    @property
    def agent_names(self) -> list[str]:
        return [agent.name for agent in self.agents]

    @property
    def pair(self) -> tuple[AgentGroup, Benchmark]:
        """Group and benchmark of a request without errors."""
        assert self.group is not None
        assert self.benchmark is not None
        return self.group, self.benchmark

    @property
    def project(self) -> Project:
        """Of the group, and so of the run."""
        return self.pair[0].project


def find_rows(
    user: User, request: Mapping[str, Any], errors: list[FieldError], keys: frozenset[str] = KEYS
) -> RequestRows:
    """The rows that a request names. Errors are added to `errors`.

    keys: those that the request may have.
    """
    errors += [
        FieldError("unknown_key", f"There is no setting named {str(key)[:80]!r}.", str(key)[:80])
        for key in list(request)[:MAX_ERRORS]
        if key not in keys
    ]
    if "draft" in keys and not isinstance(request.get("draft", False), bool):
        errors.append(FieldError("invalid", "Must be true or false.", "draft"))
    confirmed = request.get("confirm", [])
    if not isinstance(confirmed, list | tuple) or not all(isinstance(code, str) for code in confirmed):
        errors.append(FieldError("invalid", "Must be a list of the codes you confirm.", "confirm"))
        confirmed = []
    group = _row(AgentGroup, user, request.get("group"), "group", "group", errors)
    benchmark = _row(Benchmark, user, request.get("benchmark"), "benchmark", "benchmark", errors)
    agents = list(group.agents.select_related("model")) if group else []
    if group and not agents:
        errors.append(FieldError("empty_group", "This group has no agents: add one first.", "group"))
    errors += changed_models(group) if group else []
    agents, changes = with_changes(agents, request.get(KEY), errors)
    ids = listed_evaluations(request, errors)
    further = None if ids is None else find_benchmarks(user, ids, EVALUATIONS, errors)
    sets = _training_sets(user, request, errors)
    named = [(EVALUATIONS, row) for row in further or ()] + [(TRAINING_SETS, one.benchmark) for one in sets or ()]
    check_one_project([("group", group), ("benchmark", benchmark), *named], errors)
    return RequestRows(group, benchmark, agents, further, list(confirmed), changes, sets)


def with_further_changes(rows: RequestRows, changes: Changes, errors: list[FieldError]) -> RequestRows:
    """The rows with further changes of their agents. Errors are added at `agents.NAME.SETTING`."""
    if not changes:
        return rows
    agents, _ = with_changes(rows.agents, changes, errors)
    names = [agent.name for agent in agents if agent.name in rows.changes or agent.name in changes]
    merged = {name: {**rows.changes.get(name, {}), **changes.get(name, {})} for name in names}
    return replace(rows, agents=agents, changes=merged)


def _training_sets(user: User, request: Mapping[str, Any], errors: list[FieldError]) -> list[ChosenSet] | None:
    entries = listed_sets(request, errors)
    if entries is None:
        return None
    rows = [(_row(Benchmark, user, pk, "benchmark", TRAINING_SETS, errors), weight) for pk, weight in entries]
    return [ChosenSet(row, weight) for row, weight in rows if row]


def _row(model: type, user: User, value: Any, name: str, field: str, errors: list[FieldError]) -> Any:
    """The row with the id `value` that the user may see, or None with an error at `field`."""
    if value in (None, ""):
        errors.append(FieldError("missing", f"Choose a {name}.", field))
        return None
    number = whole_number(value, MAX_ID)
    rows = model.objects.visible_to(user)  # type: ignore[attr-defined]
    row = None if number is None else rows.filter(pk=number).first()
    if row is None:
        errors.append(FieldError("not_found", f"There is no such {name}.", field))
    return row


def find_benchmarks(user: User, ids: Sequence[Any], field: str, errors: list[FieldError]) -> list[Benchmark]:
    """The user's benchmarks of these ids, in their order; unknown ids are errors at `field`."""
    rows = [_row(Benchmark, user, value, "benchmark", field, errors) for value in ids[:MAX_ERRORS]]
    return [row for row in rows if row]


def check_one_project(named_rows: Sequence[tuple[str, Any]], errors: list[FieldError]) -> None:
    """Add an error for each row that is of another project than the first.

    named_rows: (field, row or None).
    """
    rows = [(field, row) for field, row in named_rows if row is not None]
    for field, row in rows:
        first = rows[0][1]
        if row.project_id != first.project_id:
            message = f"“{row}” is of project “{row.project}”, “{first}” of “{first.project}”: choose from one project."
            errors.append(FieldError("other_project", message, field))


def changed_models(group: AgentGroup) -> list[FieldError]:
    """Errors for local models whose folder is gone or has changed since it was inspected."""
    errors: list[FieldError] = []
    for model in LanguageModel.objects.filter(agents__group=group).distinct():
        try:
            check_unchanged(model, field="group")
        except FieldErrors as refused:
            errors += refused.errors
    return errors
