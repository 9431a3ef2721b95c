"""The base of every section of settings, and fields that carry bounds, help text and source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

# Characters that a name may not hold: controls, and those that change the writing direction of the rest of a page.
UNPRINTABLE = r"\x00-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
MAX_TEMPLATE = 20_000  # characters of a prompt template


class SettingsSection(BaseModel):
    """A group of settings: immutable, finite numbers only, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, str_strip_whitespace=True)


class Slider(NamedTuple):
    """The ends and the grain of a setting's slider in What-if."""

    low: float
    high: float
    grain: float


class If(dict[str, Any]):
    """A condition on another setting: it has one of `values`; without values, it is above 0.

    path: `section.name`, or the name alone of a setting of the same section. A list or a text is so if it is not empty.
    """

    def __init__(self, path: str, *values: str | bool) -> None:
        super().__init__(path=path, values=list(values))


# A setting acts while each entry holds; an entry of several conditions holds while one of them does.
Needs = Sequence[Mapping[str, Any] | Sequence[Mapping[str, Any]]]


def setting(
    default: Any = ...,
    *,
    help: str,
    source: str,
    label: str = "",
    unit: str = "",
    slider: Slider | None = None,
    is_hypothetical: bool = False,
    needs: Needs = (),
    changes_results: bool = True,
    **bounds: Any,
) -> Any:
    """A field with its help text, the source of its default, and its unit.

    slider, or is_hypothetical for a choice: What-if weighs recorded rollouts with other values of it.
    needs: what other settings must be for this one to act. Form, API and command line say so where it does not.
    changes_results: False for one of speed, memory or records alone, which parts no rows of a board.
    """
    is_hypothetical = is_hypothetical or slider is not None
    extra: dict[str, Any] = {
        "source": source,
        "label": label,
        "unit": unit,
        "slider": slider,
        "hypothetical": is_hypothetical,
        "needs": alternatives(needs),
        "changes_no_result": not changes_results,
    }
    return Field(default, description=help, json_schema_extra={k: v for k, v in extra.items() if v}, **bounds)


def label_of(name: str, schema: Mapping[str, Any]) -> str:
    """What a form calls a setting: its label, else its name in words. schema: its part of the JSON schema."""
    return schema.get("label") or name.replace("_", " ").capitalize()


def alternatives(needs: Needs) -> list[list[Mapping[str, Any]]]:
    """The `needs` with each entry as a list of conditions."""
    return [[entry] if isinstance(entry, Mapping) else list(entry) for entry in needs]


def void_because(needs: Needs, value_of: Callable[[str], Any]) -> str:
    """The first setting whose value makes another void: its path; empty where the other acts.

    value_of: the value of a path; None for a setting that the run does not have, whose condition holds.
    """
    for conditions in alternatives(needs):
        if not any(_holds(one["values"], value_of(one["path"])) for one in conditions):
            return str(conditions[0]["path"])
    return ""


def _holds(values: Sequence[Any], value: Any) -> bool:
    if not values and isinstance(value, list | tuple | str):
        return bool(value)
    return value is None or (value in values if values else value > 0)


def _plain_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if isinstance(value, str) and "_" in value:  # Python would read 1_0 as 10
        raise ValueError("must be a number without underscores")
    return value


def none_if_empty(value: Any) -> Any:
    """The empty text is what a form sends; `auto` is what people write."""
    return None if isinstance(value, str) and value.strip() in ("", "auto") else value


def _texts(value: Any) -> Any:
    """Several texts as a form sends them: nothing, a JSON list, or a single text as it is."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        if isinstance(texts := json.loads(value), list):
            return texts
    return [value] if value else []


def _holds_question(template: str) -> str:
    if "{question}" not in template:
        raise ValueError("the template must contain {question}")
    return template


Count = Annotated[int, BeforeValidator(_plain_number)]
Number = Annotated[float, BeforeValidator(_plain_number)]
Share = Annotated[Number, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, le=1), BeforeValidator(_plain_number)]
Decay = Annotated[float, Field(ge=0, lt=1), BeforeValidator(_plain_number)]
Million = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(_plain_number)]
Length = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_plain_number)]
Batch = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_plain_number)]
Interval = Annotated[int, Field(ge=0, le=100_000), BeforeValidator(_plain_number)]
# Empty selects a value by the algorithm, the run or the machine.
OwnNumber = Annotated[Number | None, BeforeValidator(none_if_empty)]
OwnCount = Annotated[Count | None, BeforeValidator(none_if_empty)]
OwnSwitch = Annotated[bool | None, BeforeValidator(none_if_empty)]
PromptTemplate = Annotated[str, Field(max_length=MAX_TEMPLATE), AfterValidator(_holds_question)]
Texts = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=False)], ...],
    BeforeValidator(_texts),
]
