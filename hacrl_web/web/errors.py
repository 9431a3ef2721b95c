"""Errors of a request, by field: shown beside the fields of a form, or as the one error body of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import field as dataclass_field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from workers.contract.spec.algorithm import LEFT_CODE, SECTION, algorithms, field_path

if TYPE_CHECKING:
    from django.forms import Form

MAX_ERRORS = 50
API_PREFIX = "/api/"  # begins the addresses whose errors are JSON


@dataclass(frozen=True)
class RequestFix:
    """A change with which the request would be accepted. request: what to replace in it, as the request has it."""

    label: str
    request: Mapping[str, Any]


@dataclass(frozen=True)
class FieldError:
    """field: dotted path; None for an error of the whole request."""

    code: str
    message: str
    field: str | None
    fixes: tuple[RequestFix, ...] = dataclass_field(default=(), hash=False)

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON, with `fixes` only where there are some."""
        return {name: value for name, value in asdict(self).items() if name != "fixes" or value}


class FieldErrors(ValueError):
    """The request is refused, and nothing was written. status: the HTTP status of the refusal."""

    def __init__(self, errors: Iterable[FieldError], status: int = 422) -> None:
        self.errors = list(errors)
        self.status = status
        super().__init__("; ".join(f"{e.field}: {e.message}" if e.field else e.message for e in self.errors))

    @property
    def text(self) -> str:
        """The messages as one text, without their fields."""
        return " ".join(error.message for error in self.errors)

    @classmethod
    def single(cls, code: str, message: str, field: str | None = None, status: int = 422) -> Self:
        return cls([FieldError(code, message, field)], status)

    def as_body(self) -> dict[str, Any]:
        """The body of every error answer of the API."""
        errors = [error.as_dict() for error in self.errors]
        return {"error": errors[0], "errors": errors}

    def add_to(self, form: Form) -> None:
        """Add each error to its field; errors without a field of the form to the form."""
        for error in self.errors:
            form.add_error(error.field if error.field in form.fields else None, error.message)


def half_character(data: Any, path: str = "") -> str | None:
    """The dotted path of a text or a key in JSON that holds a lone surrogate, which no database stores; else None."""
    if isinstance(data, str):
        return None if data.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in data) else path
    if isinstance(data, Mapping):
        if any(half_character(key) is not None for key in data):
            return path
        items: Iterable[tuple[Any, Any]] = data.items()
    else:
        items = enumerate(data) if isinstance(data, list) else ()
    places = (half_character(item, f"{path}.{key}".lstrip(".")) for key, item in items)
    return next((place for place in places if place is not None), None)


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` names for a message: `a, b and others`."""
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


# For the person who filled in the field; pydantic's own texts are for programmers.
_PLAIN = {
    "missing": "This field is required.",
    "extra_forbidden": "There is no setting of this name.",
    "greater_than": "Must be greater than {gt}.",
    "greater_than_equal": "Must be at least {ge}.",
    "less_than": "Must be less than {lt}.",
    "less_than_equal": "Must be at most {le}.",
    "finite_number": "Must be a finite number.",
    "float_parsing": "Must be a number such as 0.001 (with a point, not a comma).",
    "float_type": "Must be a number.",
    "int_parsing": "Must be a whole number.",
    "int_parsing_size": "This number is too large.",
    "int_from_float": "Must be a whole number.",
    "int_type": "Must be a whole number.",
    "bool_parsing": "Must be true or false.",
    "bool_type": "Must be true or false.",
    "literal_error": "Must be one of {expected}.",
    "string_type": "Must be text.",
    "string_too_short": "Must not be empty.",
    "string_too_long": "Must have at most {max_length} characters.",
    "string_pattern_mismatch": "Has characters that are not allowed here.",
    "string_unicode": "Is not valid Unicode text.",
    "too_long": "At most {max_length} are possible.",
    "too_short": "At least {min_length} is needed.",
    "model_type": "Must be an object with settings.",
    "union_tag_invalid": "Must be one of {expected_tags}.",
    "model_attributes_type": "Must be an object with settings.",
    "list_type": "Must be a list.",
    "tuple_type": "Must be a list.",
    "dict_type": "Must be an object with settings.",
}


def _bound_text(bound: float | str) -> str:
    """1000000.0 as `1,000,000`; four digits stay together. A time is a text already."""
    if isinstance(bound, str):
        return bound
    return f"{int(bound):,}" if abs(bound) >= 10_000 and bound == int(bound) else f"{bound:g}"


def plain_message(item: Mapping[str, Any]) -> str:
    """The text of one of pydantic's errors, for the person who filled in the field."""
    kind, context = item["type"], item.get("ctx", {})
    if kind != "value_error":
        # pydantic's own text is not a template: it may quote braces of the input.
        bounds = {name: _bound_text(context[name]) for name in ("gt", "ge", "lt", "le") if name in context}
        return _PLAIN[kind].format_map(context | bounds) if kind in _PLAIN else str(item["msg"])
    text = str(context.get("error", item["msg"]))
    begins_with_a_field = "_" in text.partition(" ")[0]  # mini_batch_size keeps its spelling
    return (text if begins_with_a_field else text[:1].upper() + text[1:]) + ("" if text.endswith((".", "?")) else ".")


def _no_such_setting(place: tuple[int | str, ...]) -> str:
    """An algorithm is named: another may have the setting."""
    if len(place) == 3 and place[0] == SECTION and place[1] in algorithms():
        near = get_close_matches(str(place[2]), algorithms()[str(place[1])].model_fields, 1, cutoff=0.75)
        return f"{place[1]} has no setting of this name." + (f" Did you mean {near[0]}?" if near else "")
    return _PLAIN["extra_forbidden"]


def plain_errors(error: ValidationError) -> list[FieldError]:
    """pydantic's errors with dotted field paths and plain texts."""
    errors = []
    for item in error.errors(include_url=False)[:MAX_ERRORS]:
        kind, message = item["type"], plain_message(item)
        value, place = item.get("input"), field_path(item["loc"])
        if kind == "extra_forbidden":
            message = _no_such_setting(item["loc"])
        if kind == "union_tag_invalid":  # of the algorithm, by its name
            kind, value, place = "literal_error", item["ctx"]["tag"], f"{place}.name"
        if value == "":
            message = "Must not be empty."
        elif (
            isinstance(value, str | int | float)
            and not isinstance(value, bool)
            and kind not in ("extra_forbidden", LEFT_CODE)
        ):
            message += f" You gave {str(value)[:60]!r}." if isinstance(value, str) else f" You gave {str(value)[:60]}."
        code = {"extra_forbidden": "unknown_key", "value_error": "invalid"}.get(kind, kind)
        errors.append(FieldError(code, message, place[:200]))
    return errors
