"""Checks the settings, names and labels of run.json as forms and API check those that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from hacrl_web.insight.bundle.layout import RUN_NAME, RunFacts, RunFile
from hacrl_web.insight.bundle.reader import bundle_refusal
from hacrl_web.registry import values
from hacrl_web.runs.labels import checked_labels, split_tags
from hacrl_web.runs.stored_spec import readable_spec
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.contract.spec.run import RunSpec

ValueT = TypeVar("ValueT")


def checked_spec(facts: RunFacts) -> RunSpec:
    """The run's settings as this version reads them. Error: FieldErrors, also for a name that no run can have."""
    try:
        readable_spec(facts.spec | {"name": facts.name})
        return readable_spec(facts.spec)
    except ValidationError as error:
        first = plain_errors(error)[0]
        raise bundle_refusal(f"This version cannot read the run's settings: {first.field}: {first.message}") from None


def completed(raw: Any, settings: Any) -> Any:
    """Settings as their bundle has them, with all that they leave out.

    settings: the same as RunSpec reads them. What old versions stored beside stays; a value of another type, such as
    "4" for 4, is replaced, because pages rely on types.
    """
    if isinstance(raw, dict) and isinstance(settings, dict):
        pairs = [(key, one, settings.get(key, one)) for key, one in raw.items()]
        plain = bool | int | float | str
        result = {key: completed(one, other) for key, one, other in pairs if key in settings or isinstance(one, plain)}
        return result | {key: one for key, one in settings.items() if key not in result}
    if isinstance(raw, list) and isinstance(settings, list):
        return [completed(*both) for both in zip(raw, settings, strict=True)] if len(raw) == len(settings) else settings
    return raw if raw is None or type(raw) is type(settings) else settings


def check_words(content: RunFile) -> None:
    """Names of objects that people name, with tags and notes, which become what the run stores. Error: FieldErrors."""
    group, run = content.group, content.run
    _checked("owner", values.text, content.owner, 150)
    run.tags, run.notes = _checked("tags, notes", checked_labels, split_tags(run.tags), run.notes)
    if group:
        group.name = _checked("group.name", values.name, group.name)
        for agent in group.agents:
            agent.model.name = _checked("the name of a model", values.name, agent.model.name)


def _checked(what: str, check: Callable[..., ValueT], *arguments: Any) -> ValueT:
    try:
        return check(*arguments)
    except (values.ValueProblem, FieldErrors) as problem:
        raise bundle_refusal(f"{RUN_NAME}, {what}: {problem}") from None
