"""Registers, checks and deletes language models, for the pages, the API and the demo.

Each function checks everything, then writes everything or nothing. Errors are raised as FieldErrors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db import transaction

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import project_of_new, require
from hacrl_web.registry.base import locations, values
from hacrl_web.registry.base.children import INSPECTOR, TOKEN_OPTION
from hacrl_web.registry.hub_tokens.service import usable_hub_token
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.web.errors import FieldError, FieldErrors, listed

MAX_NAMED = 5  # in a message
MAX_LISTED = 50


class ModelRefused(FieldErrors):
    """A model that failed its checks; `checks` holds all of them, also those that passed."""

    def __init__(self, errors: Sequence[FieldError], checks: list[dict[str, Any]]) -> None:
        super().__init__(errors)
        self.checks = checks


Inspected = tuple[list[dict[str, Any]], dict[str, Any]]


def register_model(
    owner: User,
    *,
    location: str,
    kind: str = "local",
    revision: str = "",
    name: str = "",
    provenance: Mapping[str, Any] | None = None,
    project: Project | None = None,
    inspected: Inspected | None = None,
) -> LanguageModel:
    """Inspect a model and write its row. Errors: FieldErrors, ModelRefused; then nothing is written.

    provenance: of a model that a run has trained.  project: None for the owner's current one.
    inspected: the answer of read_model_facts, where it was asked already.
    """
    checker = values.Checker()
    checker.take("kind", values.choice, kind, LanguageModel.Kind.values)
    place = checker.take("location", _checked_location, kind, location)
    version = checker.take("revision", locations.checked_revision, revision) if kind == "hub" else ""
    row_name = checker.take("name", values.name, name or (Path(place).name if place else "model"))
    place, version, row_name = checker.finish(place, version, row_name)
    project = project or project_of_new(owner)
    require(owner, project, Role.MEMBER)
    values.check_name_is_free(LanguageModel, project, row_name)
    token = usable_hub_token(owner, project) if kind == "hub" else ""
    checks, facts = inspected or read_model_facts(place, version, token)
    if kind == "local":
        facts["folder_fingerprint"] = locations.folder_fingerprint(Path(place))
    elif re.fullmatch("[0-9a-f]{40}", str(facts.get("commit"))):
        # The inspected commit: the registered model stays the same when its branch changes.
        facts["asked_revision"], version = version, facts["commit"]
    row = LanguageModel(owner=owner, project=project, name=row_name, kind=kind, location=place, revision=version)
    row.provenance = dict(provenance or {})
    row.architecture = str(facts.get("architecture") or "")[:200]
    row.num_parameters = _count(facts.get("num_parameters"))
    row.vocab_size = _count(facts.get("vocab_size"))
    row.tokenizer_hash = str(facts.get("tokenizer_hash") or "")[:128]
    row.has_chat_template = facts.get("has_chat_template") is True
    row.context_length = _count(facts.get("context_length"))
    row.facts = facts | {"checks": checks}
    with values.unique_name(row_name):
        row.save(force_insert=True)
    return row


def _checked_location(kind: str, location: object) -> str:
    if not isinstance(location, str):
        raise values.ValueProblem("not_text", "Text is needed.")
    return locations.checked_hub_id(location) if kind == "hub" else str(locations.checked_folder(location))


def read_model_facts(location: str, revision: str, hub_token: str = "") -> Inspected:
    """The checks, all passed, and the facts. Errors: FieldErrors, ModelRefused."""
    options = [*TOKEN_OPTION[: bool(hub_token)], "model", location, *([f"--revision={revision}"] if revision else [])]
    answer = INSPECTOR.ask(*options, at="location", hub_token=hub_token)
    checks: list[dict[str, Any]] = [
        {"name": str(one.get("name") or "check"), "ok": one.get("ok") is True, "detail": str(one.get("detail") or "")}
        for one in answer.get("checks") or []
        if isinstance(one, dict)
    ]
    failed = [check for check in checks if not check["ok"]]
    facts = answer.get("facts")
    if failed:
        message = "; ".join(": ".join(filter(None, (check["name"], check["detail"]))) for check in failed)
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    if not checks or not isinstance(facts, dict):
        message = str(answer.get("error") or "The inspection returned no facts about this model.")
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    return checks, facts


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def check_unchanged(model: LanguageModel, field: str = "agents") -> None:
    """Check that a local model's folder has not moved or changed since it was registered. Error: FieldErrors."""
    if model.kind != LanguageModel.Kind.LOCAL:
        return
    try:
        folder = locations.checked_folder(model.location)
        is_same = str(folder) == model.location and locations.is_unchanged(
            folder, model.facts.get("folder_fingerprint", "")
        )
    except FieldErrors as refused:
        message = f"The folder of model “{model.name}” can no longer be used: {refused.errors[0].message}"
        raise FieldErrors.single("model_gone", message, field) from None
    if not is_same:
        message = f"The folder of model “{model.name}” has changed since it was registered. Register it again."
        raise FieldErrors.single("model_changed", message, field)


def delete_model(model: LanguageModel) -> None:
    """Delete the row and no file. Error: FieldErrors (409) while a group uses the model."""
    with transaction.atomic():
        locked = LanguageModel.objects.select_for_update(of=("self",)).get(pk=model.pk)
        names = list(groups_with(locked).values_list("name", flat=True))
        if names:
            one = len(names) == 1
            text = f"{len(names)} agent group{' uses' if one else 's use'} this model: {listed(names, MAX_NAMED)}."
            text += f" Delete {'it' if one else 'them'} first."
            raise FieldErrors.single("in_use", text, status=409)
        locked.delete()


def groups_with(model: LanguageModel) -> Any:
    """Query of the groups that use a model, newest first; all of them are of its project."""
    return AgentGroup.objects.filter(agents__model=model).distinct()
