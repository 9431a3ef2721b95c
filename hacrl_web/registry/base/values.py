"""Checks single values of a request, from a form's text or from JSON; errors are collected by field."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Model

from hacrl_web.accounts.models import Project
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import MAX_ID, whole_number

MAX_NAME = 80
COPY = " copy"  # ends the name that a copy begins with
# As RunSpec accepts them; float() alone would also read "1_0", "nan", and digits of other scripts.
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
# A word in braces, such as {answer}; an argument of LaTeX, as in \boxed{answer} and x_{max}, is none.
TEMPLATE_FIELD = re.compile(r"(?<![\\\w}\]^])\{([A-Za-z_]\w+)\}")
PLAUSIBLE_SECRET = re.compile(r"[!-~]{1,400}")
# Characters that change the writing direction of the text after them.
BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
ValueT = TypeVar("ValueT")


class ValueProblem(ValueError):
    """One value is invalid: an error code and its message."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Checker:
    """Collects the errors of all fields, so that one answer reports them together."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def add(self, field: str, code: str, message: str) -> None:
        self.errors.append(FieldError(code, message, field))

    def take(self, field: str, check: Callable[..., ValueT], *arguments: Any, **options: Any) -> ValueT | None:
        """The result of `check`, or None after recording its error."""
        try:
            return check(*arguments, **options)
        except ValueProblem as problem:
            self.add(field, problem.code, str(problem))
        except FieldErrors as refused:
            self.errors.extend(refused.errors)
        return None

    def finish(self, *values: Any) -> Any:
        """The values, if no error was recorded. Error: FieldErrors, 404 if all errors are missing objects."""
        if self.errors:
            raise FieldErrors(self.errors, 404 if all(e.code == "not_found" for e in self.errors) else 422)
        return values


def text(value: object, most: int) -> str:
    """A single line of text, not empty."""
    if not isinstance(value, str):
        raise ValueProblem("not_text", "Text is needed.")
    line = value.strip()
    if not line:
        raise ValueProblem("missing", "This field is required.")
    if len(line) > most:
        raise ValueProblem("too_long", f"At most {most} characters; you gave {len(line)}.")
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in BIDI_CONTROLS for letter in line):
        raise ValueProblem("bad_character", "Control characters are not allowed.")
    if all(unicodedata.category(letter)[0] in "CMZ" for letter in line):  # spaces without width, marks without a letter
        raise ValueProblem("invisible", "It has no visible character: write at least one letter or digit.")
    return line


def lines(value: object, most: int, missing: str = "") -> str:
    """Some lines of text, mended; where they must not be blank, `missing` says so."""
    if not isinstance(value, str):
        raise ValueProblem("not_text", "Text is needed.")
    text = value.replace("\x00", "").replace("\r\n", "\n").encode("utf-8", "replace").decode()
    if missing and not text.strip():
        raise ValueProblem("missing", missing)
    if len(text) > most:
        raise ValueProblem("too_long", f"At most {most:,} characters; you gave {len(text):,}.")
    return text


def plausible_key(value: object) -> str:
    """A key or password; empty without one."""
    if not isinstance(value, str):
        raise ValueProblem("not_text", "Text is needed.")
    if (text := value.strip()) and not PLAUSIBLE_SECRET.fullmatch(text):
        raise ValueProblem("invalid", "Paste the whole key: at most 400 letters, digits and signs, no spaces.")
    return text


def name(value: object) -> str:
    """A name, as lists and charts show it."""
    line = text(value, MAX_NAME)
    if "/" in line or "\\" in line:
        raise ValueProblem("bad_character", "Slashes are not allowed in a name.")
    return line


def bounded_number(value: object, *, above: float | None = None, least: float | None = None, most: float) -> float:
    """A finite number within its bounds, from a number or its text."""
    bounds = f"above {above:g} and at most" if above is not None else f"from {least:g} to"
    allowed = f"A number {bounds} {most:g} is needed, with a decimal point, such as 0.1 or 1e-6."
    is_number = NUMBER.fullmatch(value.strip()) if isinstance(value, str) else not isinstance(value, bool)
    if not isinstance(value, (int, float, str)) or not is_number:
        raise ValueProblem("not_a_number", allowed)
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result) or result > most:
        raise ValueProblem("out_of_bounds", allowed)
    if (above is not None and result <= above) or (least is not None and result < least):
        raise ValueProblem("out_of_bounds", allowed)
    return result


def row_id_from(value: object) -> int:
    """The id of a row."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, bool) or not isinstance(text, (int, str)) or text == "":
        raise ValueProblem("missing", "Choose one.")
    row_id = whole_number(text, MAX_ID)
    if row_id is None:
        raise ValueProblem("bad_id", "An id is a whole number.")
    return row_id


def choice(value: object, allowed: Iterable[str]) -> str:
    """One of the allowed words."""
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        raise ValueProblem("not_a_choice", f"Choose one of: {', '.join(words)}.")
    return value


def check_fields(template: str) -> None:
    """Check that a prompt has no field but {question}. Error: ValueProblem."""
    field = next((name for name in TEMPLATE_FIELD.findall(template) if name != "question"), "")
    if field:
        raise ValueProblem(
            "unknown_field",
            f"There is no field {{{field}}}, only {{question}}: remove it, or write {{ {field} }} if braces are meant.",
        )


@contextmanager
def unique_name(name: str) -> Iterator[None]:
    """A transaction that writes a row of this name. Error: FieldErrors if another request has just taken the name."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise name_taken(name) from None


def check_name_is_free(model: type[Model], project: Project, name: str) -> None:
    """Error: FieldErrors if the project already has a row of this name."""
    if model._default_manager.filter(project=project, name=name).exists():
        raise name_taken(name)


def name_taken(name: str) -> FieldErrors:
    """The error for a name that the project already has."""
    return FieldErrors.single(
        "name_taken", f"This project already has one named “{name}”. Choose another name.", "name"
    )
