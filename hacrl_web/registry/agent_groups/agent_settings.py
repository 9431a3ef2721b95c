"""The settings of an agent, from a form's texts or from JSON; AgentSpec checks them.

All bounds are AgentSpec's. Its errors are shown beside the fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from hacrl_web.registry.base.values import Checker, check_fields
from hacrl_web.registry.models import AGENT_FIELDS, AGENT_SETTINGS, Agent, LanguageModel
from hacrl_web.web.errors import half_character, plain_errors
from workers.contract.settings import MAX_TEMPLATE
from workers.contract.spec.agent import AgentSpec

KEYWORDS = "chat_template_kwargs"


def take_settings(checker: Checker, row: Agent, fields: Mapping[str, Any]) -> None:
    """Write the settings into the row, and record errors. An empty value means the default."""
    place = f"agents.{row.position}"
    settings = {name: fields[name] for name in AGENT_FIELDS if fields.get(name) is not None and fields.get(name) != ""}
    if isinstance(settings.get(KEYWORDS), str):
        with suppress(ValueError, RecursionError):  # AgentSpec refuses a text that is not JSON
            settings[KEYWORDS] = json.loads(settings[KEYWORDS])
    for name in [name for name, value in settings.items() if _is_unstorable(value)]:
        checker.add(
            f"{place}.{name}",
            "bad_character",
            f"No NUL character or half of one; and at most {MAX_TEMPLATE} characters.",
        )
        del settings[name]
    try:
        spec = AgentSpec.model_validate({"name": "agent", "model": "-", **settings})
    except ValidationError as error:
        _add_errors(checker, place, error)
        return
    checker.take(f"{place}.prompt_template", check_fields, spec.prompt_template)
    if spec.thinking != "auto" and row.model_id is not None and not row.model.has_thinking_switch:
        message = f"The chat template of model “{row.model.name}” has no thinking switch: choose auto."
        if "has_thinking_switch" not in row.model.facts:
            message = (
                f"Model “{row.model.name}” was not checked for a thinking switch: register it again, or choose auto."
            )
        checker.add(f"{place}.thinking", "no_switch", message)
    row.learning_rate, row.prompt_format = spec.learning_rate, spec.prompt_format
    own = {name: getattr(spec, name) for name in AGENT_SETTINGS}
    row.settings = {name: value for name, value in own.items() if value != AgentSpec.model_fields[name].default}


def agent_values(agent: Agent) -> dict[str, Any]:
    """An agent's settings, for AgentSpec."""
    model = agent.model
    return {
        **agent.settings,
        "name": agent.name,
        "model": model.location,
        "revision": (model.revision or None) if model.kind == LanguageModel.Kind.HUB else None,
        "learning_rate": agent.learning_rate,
        "prompt_format": agent.prompt_format,
    }


def _is_unstorable(value: Any) -> bool:
    """True for texts that a database refuses, or that are longer than any template."""
    if half_character(value) is not None:
        return True
    items = [*value.keys(), *value.values()] if isinstance(value, Mapping) else [value]
    strings = [item for item in items if isinstance(item, str)]
    return any("\0" in text for text in strings) or sum(map(len, strings)) > MAX_TEMPLATE


def _add_errors(checker: Checker, place: str, error: ValidationError) -> None:
    """Record AgentSpec's errors, one for each field."""
    names = set()
    for item in plain_errors(error):
        name, _, rest = (item.field or "").partition(".")
        message = item.message
        if name == KEYWORDS and item.code != "invalid":
            message = 'A JSON object of true, false, whole numbers and texts is needed, such as {"think": false}.'
            key = rest.rpartition(".")[0] or rest
            message += f" The value of {key!r} is none of these." if key else ""
        if name not in names:
            checker.add(f"{place}.{name}", item.code, message)
        names.add(name)


def check_seeds(checker: Checker, rows: Sequence[Agent]) -> None:
    """Record an error for two agents of one seed, who would make the same random choices.

    An agent without a seed gets one from its name.
    """
    by_seed: dict[int, Agent] = {}
    for row in rows:
        if not row.name:
            continue
        seed = AgentSpec.model_construct(name=row.name, seed=row.settings.get("seed")).stable_seed
        other = by_seed.setdefault(seed, row)
        if other is not row and other.name != row.name:
            named = row if "seed" in row.settings else other
            peer = other if named is row else row
            message = f"Agent “{peer.name}” has the same seed, so the same random choices: give each its own, or none."
            checker.add(f"agents.{named.position}.seed", "same_seed", message)
