"""Decides which events the shipper stores as they are.

None whose fields have wrong types, no flood of metric names, no step back, no event of an earlier attempt.

A refused event is replaced by a warning with its number, so no loss goes unrecorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic_core import from_json

from hacrl_web.runs.telemetry.event_checks import problem_of
from hacrl_web.runs.telemetry.tables import HEAD

Record = dict[str, Any]
NAME_CHARACTERS = 200
NAMES_PER_RUN = 2000
MAX_PATTERNS = 50
MAX_NAMES_OF_PATTERN = 200
MAX_SHAPES, MAX_SHAPE = 1000, 2**16  # and the characters of one
_FIELDS = ("values", "ratios", "nonfinite")
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_NUMBER = r"(?:-?\d[-+.\deE]{0,24}|null)"  # no number of ours has more characters
_NEVER = re.compile(r"(?!)")  # matches nothing
_STRINGS, _TOKENS = re.compile(_STRING), re.compile(f"({_STRING})|{_NUMBER}")


class EventRefused(ValueError):
    """Why an event is not stored as it is."""


class FieldsRefused(EventRefused):
    """The event's fields are not those of its type."""


class Admission:
    """Checks the events of one run against those that its shipper has read before."""

    def __init__(self) -> None:
        self._newest_attempt = 0
        self._last_step: dict[tuple[Any, ...], int] = {}
        self._names: set[str] = set(_FIELDS)
        self._shapes: set[str] = set()  # of payloads that were checked: their texts without numbers
        self._patterns: dict[tuple[int, ...], re.Pattern[str]] = {}  # of shapes that came again, by their counts

    @contextmanager
    def undone_by_error(self) -> Iterator[None]:
        """Forgets the steps of the events in its block if the block fails: they will be read again."""
        before = self._newest_attempt, dict(self._last_step)
        try:
            yield
        except BaseException:
            self._newest_attempt, self._last_step = before
            raise

    def check(self, record: Record, payload_text: str | None) -> None:
        """payload_text: of a metrics event that was not parsed. Error: EventRefused."""
        attempt = record["attempt"]
        if attempt < self._newest_attempt:
            raise EventRefused(f"it is of attempt {attempt}, after attempt {self._newest_attempt}")
        if attempt > self._newest_attempt:
            self._newest_attempt = attempt
            self._last_step.clear()
        if record["type"] == "metrics":
            self._check_step(record)
            self._check_payload(record, payload_text)
        elif problem := problem_of(record):
            raise FieldsRefused(problem)

    def _check_step(self, record: Record) -> None:
        step = record.get("step")
        if not isinstance(step, int):
            return
        place = (str(record.get("agent"))[:80], str(record.get("source"))[:80])
        last = self._last_step.get(place, 0)
        if step < last:
            raise EventRefused(f"it goes back to step {step}, after step {last}")
        self._last_step[place] = step

    def _check_payload(self, record: Record, text: str | None) -> None:
        if text is None:
            text = json.dumps({name: record[name] for name in _FIELDS if name in record}, separators=(",", ":"))
        counts = text.count('"'), _count("[", text), _count("{", text)
        pattern = self._patterns.get(counts)
        if pattern is not None and pattern.fullmatch(text):
            return
        shape = _TOKENS.sub(lambda token: token[1] or "0", text)
        if shape in self._shapes:
            if counts[0] <= 2 * MAX_NAMES_OF_PATTERN and len(self._patterns) < MAX_PATTERNS:
                self._patterns.setdefault(counts, _pattern(shape) or _NEVER)
            return
        names = [name[1:-1] for name in _STRINGS.findall(shape)]
        longest = max(map(len, names), default=0)
        if longest > NAME_CHARACTERS:
            raise EventRefused(f"a name in it has {longest:,} characters; at most {NAME_CHARACTERS} are allowed")
        if len(self._names.union(names)) > NAMES_PER_RUN + len(_FIELDS):
            raise EventRefused(f"the run would have more than {NAMES_PER_RUN:,} metric names")
        payload = _parsed(text)
        if own := next((name for name in HEAD if name in payload), ""):
            raise FieldsRefused(f"{own} stands among its values")
        if problem := problem_of(record | payload):
            raise FieldsRefused(problem)
        self._names.update(names)
        if len(self._shapes) < MAX_SHAPES and len(shape) <= MAX_SHAPE:
            self._shapes.add(shape)


def _count(character: str, text: str) -> int:
    """How often a character is in a text: ten times as fast as `count` where it is there at most once, as usual."""
    first = text.find(character)
    return 0 if first < 0 else 1 if text.find(character, first + 1) < 0 else text.count(character)


def _parsed(text: str) -> Record:
    try:
        payload: Record = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise EventRefused(f"it is not JSON: {error}") from None
    return payload


def _pattern(shape: str) -> re.Pattern[str] | None:
    """What every payload of this shape matches, and none with a text, list or object in a number's place.

    Quotes and opening brackets are counted before. Ten times as fast as finding the shape.
    None for a shape with more than a number or a pair between two texts: it would be tried in too many ways.
    """
    strings_and_rest = re.split(f"({_STRING})", shape)
    strings_and_rest[::2] = [re.sub("0(?:,0)?", '[^"]+', re.escape(rest)) for rest in strings_and_rest[::2]]
    if any(rest.count("+") > 1 for rest in strings_and_rest[::2]):
        return None
    strings_and_rest[1::2] = map(re.escape, strings_and_rest[1::2])
    return re.compile("".join(strings_and_rest))
