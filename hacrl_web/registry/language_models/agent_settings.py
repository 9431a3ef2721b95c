"""What an agent has of its own, from a form's texts or from JSON: read and checked by the contract's AgentSpec.

No bound is written here. What AgentSpec refuses comes back beside its field, and never reaches a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from hacrl_web.registry.models import AGENT_SETTINGS, Agent
from hacrl_web.registry.values import Checker
from hacrl_web.web.errors import plain_errors
from workers.contract.spec.agent import AgentSpec

FIELDS = ("learning_rate", "prompt_format", *AGENT_SETTINGS)
KEYWORDS = "chat_template_kwargs"
MAX_TEXT = 20_000


def take_settings(checker: Checker, row: Agent, fields: Mapping[str, Any]) -> None:
    """Put the asked settings into the row; what is wrong with them is noted, and an empty one is the default."""
    place = f"agents.{row.position}"
    settings = {name: fields[name] for name in FIELDS if fields.get(name) is not None and fields.get(name) != ""}
    if isinstance(settings.get(KEYWORDS), str):
        settings[KEYWORDS] = _parsed(settings[KEYWORDS])
    for name in [name for name, value in settings.items() if _is_unstorable(value)]:
        checker.add(f"{place}.{name}", "bad_character", f"No NUL character, and at most {MAX_TEXT} characters.")
        del settings[name]
    try:
        spec = AgentSpec.model_validate({"name": "agent", "model": "-", **settings})
    except ValidationError as error:
        _note(checker, place, error)
        return
    row.learning_rate, row.prompt_format = spec.learning_rate, spec.prompt_format
    own = {name: getattr(spec, name) for name in AGENT_SETTINGS}
    row.settings = {name: value for name, value in own.items() if value != AgentSpec.model_fields[name].default}


def _parsed(text: str) -> Any:
    """The JSON value of a text; a text that is none stays itself, for AgentSpec to refuse."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_unstorable(value: Any) -> bool:
    """True for texts that a database refuses, or that are longer than any template."""
    texts = [value]
    if isinstance(value, Mapping):
        texts = [*value.keys(), *value.values()]
    strings = [text for text in texts if isinstance(text, str)]
    return any("\0" in text for text in strings) or sum(map(len, strings)) > MAX_TEXT


def _note(checker: Checker, place: str, error: ValidationError) -> None:
    """AgentSpec's errors, one for each field."""
    places = set()
    for item in plain_errors(error):
        name, _, rest = (item.field or "").partition(".")
        if name in places:
            continue
        places.add(name)
        message = item.message
        if name == KEYWORDS and item.code != "invalid":
            key = rest.rpartition(".")[0] or rest
            wrong = f" The value of {key!r} is none of these." if key else ""
            message = (
                f'A JSON object of true, false, whole numbers and texts is needed, such as {{"think": false}}.{wrong}'
            )
        checker.add(f"{place}.{name}", item.code, message)


def note_same_seeds(checker: Checker, rows: Sequence[Agent]) -> None:
    """Two agents of one seed would make the same random choices; an agent without one has it from its name."""
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
