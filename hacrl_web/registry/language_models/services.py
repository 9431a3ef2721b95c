"""Registering models and groups: the single path of the forms, the API and the demo. Benchmarks: `benchmarks`.

Each function checks everything, then writes everything or nothing. What is wrong comes back as FieldErrors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db import IntegrityError, models, transaction

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import project_of_new, require
from hacrl_web.registry import locations, values
from hacrl_web.registry.children import INSPECTOR
from hacrl_web.registry.language_models.agent_settings import note_same_seeds, take_settings
from hacrl_web.registry.models import MAX_AGENTS, Agent, AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors


class ModelRefused(FieldErrors):
    """A model that did not pass; `checks` are those made, the failed ones included."""

    def __init__(self, errors: Sequence[FieldError], checks: list[dict[str, Any]]) -> None:
        super().__init__(errors)
        self.checks = checks


def _name_taken(model: type[models.Model], project: Project, name: str) -> FieldErrors | None:
    if model._default_manager.filter(project=project, name=name).exists():
        return values.name_taken(name)
    return None


# Language models


def register_model(
    owner: Any,
    *,
    location: str,
    kind: str = "local",
    revision: str = "",
    name: str = "",
    provenance: Mapping[str, Any] | None = None,
    project: Project | None = None,
) -> LanguageModel:
    """Inspect a model and write its row. provenance: of a model that a run has trained.

    project: the run's then; without one, where the owner works now.

    Errors: FieldErrors, ModelRefused; then nothing is written.
    """
    checker = values.Checker()
    checker.take("kind", values.choice, kind, LanguageModel.Kind.values)
    where = _checked_location(checker, kind, location)
    version = checker.take("revision", locations.checked_revision, revision) if kind == "hub" else ""
    named = checker.take("name", values.name, name or (Path(where).name if where else "model"))
    where, version, named = checker.finish(where, version, named)
    project = project or project_of_new(owner)
    require(owner, project, Role.MEMBER)
    is_taken = _name_taken(LanguageModel, project, named)
    if is_taken:
        raise is_taken
    checks, facts = read_model_facts(where, version)
    if kind == "local":
        facts["folder_fingerprint"] = locations.folder_fingerprint(Path(where))
    else:
        version = _pinned(version, facts)
    row = LanguageModel(owner=owner, project=project, name=named, kind=kind, location=where, revision=version)
    row.provenance = dict(provenance or {})
    row.architecture = str(facts.get("architecture") or "")[:200]
    row.num_parameters = _count(facts.get("num_parameters"))
    row.vocab_size = _count(facts.get("vocab_size"))
    row.tokenizer_hash = str(facts.get("tokenizer_hash") or "")[:128]
    row.has_chat_template = facts.get("has_chat_template") is True
    row.context_length = _count(facts.get("context_length"))
    row.facts = facts | {"checks": checks}
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # the same name came in while this one was inspected
        raise values.name_taken(named) from None
    return row


def _checked_location(checker: values.Checker, kind: str, location: str) -> str | None:
    check = locations.checked_hub_id if kind == "hub" else locations.checked_folder
    if not isinstance(location, str):
        checker.add("location", "not_text", "Text is needed.")
        return None
    where = checker.take("location", check, location)
    return None if where is None else str(where)


def read_model_facts(location: str, revision: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The checks, all passed, and the facts. Errors: FieldErrors, ModelRefused."""
    answer = INSPECTOR.ask("model", location, *([f"--revision={revision}"] if revision else []), at="location")
    checks = [_check(check) for check in answer.get("checks") or [] if isinstance(check, dict)]
    failed = [check for check in checks if not check["ok"]]
    facts = answer.get("facts")
    if failed:
        message = "; ".join(": ".join(filter(None, (check["name"], check["detail"]))) for check in failed)
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    if not checks or not isinstance(facts, dict):
        message = str(answer.get("error") or "The inspection said nothing about this model.")
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    return checks, facts


def _pinned(revision: str, facts: dict[str, Any]) -> str:
    """The commit that was inspected, so that a branch that moves on does not change a registered model."""
    commit = facts.get("commit")
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40}", commit):
        return revision
    facts["asked_revision"] = revision
    return commit


def _check(check: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": str(check.get("name") or "check"),
        "ok": check.get("ok") is True,
        "detail": str(check.get("detail") or ""),
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def check_unchanged(model: LanguageModel, field: str = "agents") -> None:
    """Before a launch: the folder is still where it was and what it was. Error: FieldErrors."""
    if model.kind != LanguageModel.Kind.LOCAL:
        return
    try:
        folder = locations.checked_folder(model.location)
        is_same = str(folder) == model.location and locations.folder_fingerprint(folder) == model.facts.get(
            "folder_fingerprint", ""
        )
    except FieldErrors as refused:
        message = f"The folder of model “{model.name}” can no longer be used: {refused.errors[0].message}"
        raise FieldErrors([FieldError("model_gone", message, field)]) from None
    if not is_same:
        message = f"The folder of model “{model.name}” has changed since it was registered. Register it again."
        raise FieldErrors([FieldError("model_changed", message, field)])


# Agent groups


def create_group(owner: Any, *, name: str, agents: Sequence[Mapping[str, Any]]) -> AgentGroup:
    """Write a group and its agents; an agent has `model` (id), `name` and the fields of agent_settings.FIELDS.

    Errors: FieldErrors, with fields such as `agents.1.name`.
    """
    checker = values.Checker()
    named = checker.take("name", values.name, name)
    if not 1 <= len(agents) <= MAX_AGENTS:
        checker.add("agents", "agent_count", f"Choose 1 to {MAX_AGENTS} models; these are {len(agents)}.")
    rows = [_agent(checker, owner, position, agent) for position, agent in enumerate(agents[:MAX_AGENTS])]
    _name_agents(checker, rows)
    note_same_seeds(checker, rows)
    project = _common_project(checker, owner, rows)
    if named is not None and (is_taken := _name_taken(AgentGroup, project, named)):
        checker.errors.extend(is_taken.errors)
    (named,) = checker.finish(named)
    group = AgentGroup(owner=owner, project=project, name=named)
    try:
        with transaction.atomic():
            group.save(force_insert=True)
            for row in rows:
                row.group = group
            Agent.objects.bulk_create(rows)
    except IntegrityError:
        raise values.name_taken(named) from None
    return group


def _common_project(checker: values.Checker, owner: Any, rows: list[Agent]) -> Project:
    """The project of the models, in which the group will be; those of another are errors."""
    models_of = [(row, row.model) for row in rows if row.model_id is not None]
    project = models_of[0][1].project if models_of else project_of_new(owner)
    for row, model in models_of:
        if model.project_id != project.pk:
            message = f"“{model.name}” is of project “{model.project}”, the first model of “{project}”: choose of one."
            checker.add(f"agents.{row.position}.model", "other_project", message)
    return project


def _agent(checker: values.Checker, owner: Any, position: int, fields: Mapping[str, Any]) -> Agent:
    """The agent's row, as far as its values could be read."""
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
    """Names are unique; an agent without one takes its model's, numbered where that is taken."""
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
