"""Whether an event is one that a trainer writes: pages rely on the types of its fields.

Rows of tables of their own (rollouts, contributions, questions, answers) are converted when they are stored; the other
events are stored as JSON, so their fields are checked here.
"""

from __future__ import annotations

import json
from collections.abc import Container
from math import inf
from typing import Any

from pydantic import ConfigDict, ValidationError

from hacrl_web.web.errors import plain_errors
from workers.contract import events

Record = dict[str, Any]
_KINDS: tuple[type[events.Body], ...] = (
    events.Started,
    events.Progress,
    events.Metrics,
    events.Evaluation,
    events.HarnessResult,
    events.Checkpoint,
    events.Log,
    events.LeftOut,
    events.Finished,
)
_MOST_EXACT = 2**53  # beyond it a number of JSON is not exact, and no count reaches it
_MOST = 1e300  # sums and squares of what is larger are infinite
_MOST_ENTRIES = 20_000  # of a field, at all depths; pages show them


def _reading(kind: type[events.Body]) -> type[events.Body]:
    """A model with the same fields that ignores what an older or newer version writes besides."""
    config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    return type(kind.__name__, (kind,), {"model_config": config, "__module__": __name__})


_BY_TYPE = {str(kind.model_fields["type"].default): _reading(kind) for kind in _KINDS}


def problem_of(record: Record) -> str:
    """What is wrong with an event, or empty. A number that was not finite is null (`nonfinite`)."""
    kind = _BY_TYPE.get(record["type"])
    if kind is None:
        return ""
    fields = {name: record[name] for name in kind.model_fields if name in record}
    places = record.get("nonfinite", {})
    if not isinstance(places, dict) or not all(isinstance(what, str) for what in places.values()):
        return "nonfinite: Should name a place and what is there"
    if places:
        fields = {name: _filled(value, name, places) for name, value in fields.items()}
    if large := next((name for name, value in fields.items() if _has_large_number(value)), ""):
        return f"{large} has a number that is too large"
    if long := next((name for name, value in fields.items() if _num_entries(value) > _MOST_ENTRIES), ""):
        return f"{long} has more than {_MOST_ENTRIES:,} entries"
    try:
        kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        first = plain_errors(error)[0]
        return f"{first.field}: {first.message}"
    return ""


def _filled(value: Any, place: str, places: Container[str]) -> Any:
    """Replaces each null that stands for a number that is not finite by that number."""
    if isinstance(value, dict):
        return {key: _filled(item, f"{place}.{key}", places) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, f"{place}.{index}", places) for index, item in enumerate(value)]
    return 0.0 if value is None and place in places else value


def _num_entries(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return len(value) + sum(map(_num_entries, value.values() if isinstance(value, dict) else value))


def _has_large_number(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_large_number, value.values() if isinstance(value, dict) else value))
    most = _MOST_EXACT if isinstance(value, int) else _MOST if isinstance(value, float) else inf
    return most < inf and not -most <= value <= most
