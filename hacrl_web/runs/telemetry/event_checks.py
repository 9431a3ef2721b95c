"""Whether an event of a bundle is one that a trainer writes: pages rely on the types of its fields.

Rows of tables of their own (rollouts, contributions, questions, answers) are converted when they are stored; the other
events are stored as JSON, so their fields are checked here.
"""

from __future__ import annotations

import json
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
_LARGEST = 2**53  # beyond it a number of JSON is not exact, and no count reaches it


def _reading(kind: type[events.Body]) -> type[events.Body]:
    """The same fields; what an older or newer version writes besides is left alone."""
    config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
    return type(kind.__name__, (kind,), {"model_config": config, "__module__": __name__})


_BY_TYPE = {str(kind.model_fields["type"].default): _reading(kind) for kind in _KINDS}


def problem_of(record: Record) -> str:
    """What is wrong with an event, or empty. A number that was not finite is null (`nonfinite`)."""
    kind = _BY_TYPE.get(record["type"])
    if kind is None:
        return ""
    fields = {name: record[name] for name in kind.model_fields if record.get(name) is not None}
    if isinstance(record.get("nonfinite"), dict):
        fields = {name: _filled(value) for name, value in fields.items()}
    if large := next((name for name, value in fields.items() if _has_large_number(value)), ""):
        return f"{large} has a number that is too large"
    try:
        kind.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        first = plain_errors(error)[0]
        return f"{first.field}: {first.message}"
    return ""


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return 0.0 if value is None else value


def _has_large_number(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_large_number(item) for item in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -_LARGEST <= value <= _LARGEST
