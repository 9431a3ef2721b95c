"""Settings of single agents in one run, in place of those that the group gives them.

A request has {agent: {setting: value}}; a form sends lines such as `left: learning_rate = 1e-5; lora_rank = 16`.
A value of null, or an empty one, is the default of the run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hacrl_web.registry.agent_groups.agent_settings import check_seeds, take_settings
from hacrl_web.registry.base.values import Checker
from hacrl_web.registry.models import AGENT_FIELDS, MAX_AGENTS, Agent
from hacrl_web.web.errors import FieldError, listed

KEY = "agents"
Changes = dict[str, dict[str, Any]]


def changes_of_text(text: str) -> Changes:
    """One line for each agent: `NAME: setting = value; setting = value`, or `NAME: {JSON}`. Error: ValueError."""
    changes: Changes = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, rest = (part.strip() for part in line.partition(":"))
        if not colon or not name:
            raise ValueError(f"“{line[:60]}” names no agent: write NAME: setting = value.")
        if name in changes:
            raise ValueError(f"{name[:60]} has two lines: write one.")
        changes[name] = _of_json(name, rest) if rest.startswith("{") else _of_pairs(rest)
    return changes


def _of_json(name: str, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"What follows {name[:60]}: is no JSON object.")
    return values


def _of_pairs(text: str) -> dict[str, Any]:
    values = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        setting, sign, value = (part.strip() for part in entry.partition("="))
        if not sign:
            raise ValueError(f"“{entry[:60]}” has no value: write setting = value.")
        values[setting] = value
    return values


def text_of_changes(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """The lines that `changes_of_text` reads, by name: PostgreSQL does not keep the order of a JSON object."""
    return "\n".join(f"{name}: {_text(values)}" for name, values in sorted(changes.items()))


def _text(values: Mapping[str, Any]) -> str:
    is_plain = all(
        isinstance(value, int | float | str) and not {";", "=", "\n"} & set(str(value)) and str(value).strip()
        for value in values.values()
    )
    if not is_plain:
        return json.dumps(values, ensure_ascii=False, sort_keys=True)
    return "; ".join(f"{setting} = {value}" for setting, value in sorted(values.items()))


def with_changes(agents: Sequence[Agent], value: Any, errors: list[FieldError]) -> tuple[list[Agent], Changes]:
    """Copies of the agents with the changes of a request, and these. Errors are added at `agents.NAME.SETTING`."""
    try:
        changes = changes_of_text(value) if isinstance(value, str) else value
    except ValueError as error:
        errors.append(FieldError("invalid", str(error), KEY))
        return list(agents), {}
    if changes in (None, "") or changes == {}:
        return list(agents), {}
    if not isinstance(changes, Mapping) or not all(isinstance(one, Mapping) for one in changes.values()):
        message = "Must be an object with an object of settings for each agent that differs from its group."
        errors.append(FieldError("invalid", message, KEY))
        return list(agents), {}
    if agents:  # else the missing group is the error
        errors += _unknown(changes, [agent.name for agent in agents])
    checker = Checker()
    rows = [_changed(checker, agent, changes[agent.name]) if agent.name in changes else agent for agent in agents]
    check_seeds(checker, rows)
    errors += [_named(error, agents) for error in checker.errors]
    return rows, {str(name): dict(values) for name, values in changes.items() if values}


def _unknown(changes: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> list[FieldError]:
    """Errors for agents that the group does not have, and for what their lines set."""
    errors = []
    for name, values in list(changes.items())[:8]:
        if name in names:
            continue
        message = f"The group has no agent “{str(name)[:80]}”: it has {listed(names, MAX_AGENTS)}."
        errors.append(FieldError("unknown_agent", message + _nearest(str(name), names), KEY))
        errors += [
            FieldError("unknown_key", _no_setting(one), KEY) for one in list(values)[:8] if one not in AGENT_FIELDS
        ]
    return errors


def _no_setting(name: Any) -> str:
    message = f"An agent has no setting “{str(name)[:80]}” of its own."
    return message + (_nearest(str(name), AGENT_FIELDS) or f" Its settings: {', '.join(AGENT_FIELDS)}.")


def _nearest(text: str, names: Sequence[str]) -> str:
    """A question for the name that may be meant; empty where none is near. A part of a name is near."""
    by_lower = {name.lower(): name for name in names}
    part = [name for name in by_lower if text.strip() and text.strip().lower() in name]
    near = part if len(part) == 1 else get_close_matches(text.lower(), by_lower, 1, cutoff=0.6)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""


def _changed(checker: Checker, agent: Agent, values: Mapping[str, Any]) -> Agent:
    row = copy.copy(agent)
    for name in values:
        if name not in AGENT_FIELDS:
            checker.add(f"agents.{agent.position}.{str(name)[:40]}", "unknown_key", _no_setting(name))
    own = {name: agent.setting(name) for name in AGENT_FIELDS}
    take_settings(checker, row, own | {name: value for name, value in values.items() if name in AGENT_FIELDS})
    return row


def _named(error: FieldError, agents: Sequence[Agent]) -> FieldError:
    """The error at the agent's name, as the request has it, in place of its position."""
    start, position, setting = (*(error.field or "").split(".", 2), "", "")[:3]
    name = next((agent.name for agent in agents if str(agent.position) == position), "")
    if start != KEY or not name:
        return error
    return FieldError(error.code, f"{name}, {setting}: {error.message}", f"{KEY}.{name}.{setting}")
