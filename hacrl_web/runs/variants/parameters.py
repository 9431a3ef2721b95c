"""The parameters of a search: which values a setting may take, as people write them and as numbers.

`0.0001..0.01 log` is a range on a logarithmic scale, `1..8` one on a linear scale, and `a, b` a list of choices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hacrl_web.runs.variants.grid import MAX_SWEEP_RUNS
from hacrl_web.runs.variants.varied import VARIED, is_varied, read_value, value_text
from hacrl_web.web.errors import FieldError

DIGITS = 4  # significant digits of a drawn number: more would only make names and tables longer
MAX_PARAMETERS = 20
MAX_TEXT = 1000  # characters of a range or a list
RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)(?:\s+(\S.*?))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A setting that a search varies: a range from low to high, both included, or choices."""

    name: str
    low: float | int | None = None  # both int: whole numbers
    high: float | int | None = None
    is_log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True for a range of whole numbers."""
        return isinstance(self.low, int)

    @property
    def size(self) -> int | None:
        """The number of values of the parameter; None for a range of real numbers."""
        if self.choices:
            return len(self.choices)
        return int(self.high) - int(self.low) + 1 if self.is_whole else None  # type: ignore[arg-type]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that are checked before any trial: all choices, or the two ends of the range."""
        return self.choices or (self.low, self.high)

    @property
    def request(self) -> str | list[Any]:
        """The parameter as a request has it: the text of a range, or the list of choices."""
        if self.choices:
            return list(self.choices)
        return f"{value_text(self.low)}..{value_text(self.high)}" + (" log" if self.is_log else "")

    @property
    def text(self) -> str:
        """The parameter as the form shows it."""
        return ", ".join(map(value_text, self.choices)) if self.choices else str(self.request)

    def rounded(self, value: float) -> float | int:
        """A drawn number with few digits, within the range."""
        number = round(value) if self.is_whole else float(f"{value:.{DIGITS}g}")
        return min(max(number, self.low), self.high)  # type: ignore[type-var, return-value]


def parameters_of(request: Any, errors: list[FieldError]) -> dict[str, Parameter]:
    """The object {"alpha": "1..4", "training.learning_rate": [1e-6, 3e-6]} as parameters, in the order of names.

    Errors are added to `errors`, one for each parameter.
    """
    path = "search.parameters"
    if not isinstance(request, Mapping) or not request:
        message = "Search: give at least one setting a range or values, such as training.learning_rate: 1e-6..1e-4 log."
        errors.append(FieldError("missing", message, path))
        return {}
    if len(request) > MAX_PARAMETERS:
        errors.append(FieldError("too_long", f"A search varies at most {MAX_PARAMETERS} settings.", path))
        return {}
    parameters = {}
    for name in sorted(request, key=str):
        try:
            parameters[name] = _parameter(name, request[name])
        except ValueError as problem:
            errors.append(FieldError("invalid", str(problem), f"{path}.{str(name)[:80]}"))
    return parameters


def _parameter(name: Any, written: Any) -> Parameter:
    """Error: ValueError, in words for people."""
    if not isinstance(name, str) or not is_varied(name):
        raise ValueError(f"A search varies {VARIED}")
    if name.startswith("evaluation."):
        raise ValueError("Trials are compared by their evaluations, which must be alike: vary this in a grid.")
    if isinstance(written, str):
        if len(written) > MAX_TEXT:
            raise ValueError(f"At most {MAX_TEXT} characters are possible.")
        if ".." in written:
            return _range(name, written)
        written = written.replace(",", " ").split()
    if not isinstance(written, list | tuple) or not written:
        raise ValueError("Give a range such as 1..8 or 0.0001..0.01 log, or values such as 1, 2, 4.")
    return _choices(name, written)


def _range(name: str, text: str) -> Parameter:
    parts = RANGE.fullmatch(text)
    if parts is None:
        raise ValueError(f"A range has two numbers, such as 1..8 or 0.0001..0.01 log. You gave {text.strip()[:60]!r}.")
    if parts[3] not in (None, "log"):
        raise ValueError(f"After a range only the word log is possible. You gave {parts[3][:60]!r}.")
    low, high = _value(name, parts[1]), _value(name, parts[2])
    if any(isinstance(end, bool | str) for end in (low, high)):
        raise ValueError("A range is for numbers: give this setting's values with commas between them.")
    if low >= high:
        raise ValueError(f"A range begins with its lower number. You gave {parts[1]}..{parts[2]}.")
    if parts[3] and low <= 0:
        raise ValueError(f"A log range begins above 0. You gave {parts[1]}: begin above it, or leave out log.")
    if not math.isfinite(high - low):
        raise ValueError("The range is too wide for a computer's numbers: give narrower ends.")
    return Parameter(name, low, high, parts[3] is not None)


def _choices(name: str, written: list[Any] | tuple[Any, ...]) -> Parameter:
    if len(written) > MAX_SWEEP_RUNS:
        raise ValueError(f"At most {MAX_SWEEP_RUNS} values are possible.")
    values = tuple(_value(name, one) for one in written)
    if len(set(values)) < len(values):
        raise ValueError("Each value may be named once.")
    if len(values) == 1:
        raise ValueError("One value leaves nothing to search: give a range or several values.")
    return Parameter(name, choices=values)


def _value(name: str, value: Any) -> Any:
    """The value as the setting reads it. Error: ValueError."""
    errors: list[FieldError] = []
    values = read_value(name, value, errors)
    if errors:
        raise ValueError(errors[0].message)
    return values[0]
