"""Which rollouts a page asks for: the query of the Rollouts tab, read without ever failing.

What cannot be read is left out and named, so that an old or odd address still shows something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from hacrl_web.insight.rollouts.rescued_prompts import LESSONS

MAX_TEXT = 200
MAX_NUMBER = 2**31 - 1
SIGNS = ("positive", "negative", "zero")
CLIPS = {"lower": "lower", "inside": "none", "upper": "upper"}
UNSCORABLE = "none"


@dataclass(frozen=True)
class Filter:
    """What a rollout must be. agent: who sampled it; learner and the settings below it: what it taught whom."""

    steps: tuple[int, int] | None = None
    prompt: str = ""
    agent: str = ""
    reward: tuple[float, float] | None = None
    is_unscorable: bool = False
    min_tokens: int | None = None
    max_tokens: int | None = None
    text: str = ""
    learner: str = ""
    sign: str = ""
    lesson: str = ""  # of one step, learner and agent only
    clip: str = ""
    min_advantage: float | None = None
    max_advantage: float | None = None
    given: Mapping[str, str] = field(default_factory=dict)  # what was understood, as it was written
    ignored: tuple[str, ...] = ()

    @property
    def is_of_learner(self) -> bool:
        """Whether it asks what a rollout taught, so that a rollout is found once for each learner."""
        return bool(self.learner or self.sign or self.clip) or (self.min_advantage, self.max_advantage) != (None, None)

    def query(self, **more: Any) -> str:
        """The address's query of this filter, and further parts of it."""
        return urlencode({**self.given, **{name: value for name, value in more.items() if value not in (None, "")}})


class _ParameterReader:
    """Takes values out of a query and remembers what it could not read."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.query = query
        self.given: dict[str, str] = {}
        self.ignored: list[str] = []

    def text(self, name: str) -> str:
        return str(self.query.get(name, "")).replace("\x00", "").strip()[:MAX_TEXT]

    def keep(self, name: str, value: Any) -> Any:
        """Note whether `value` could be made of what stands under a name."""
        written = self.text(name)
        if value is None:
            if written:
                self.ignored.append(f"{name} {written[:40]!r}")
            return None
        self.given[name] = written
        return value

    def one_of(self, name: str, allowed: Sequence[str] | Mapping[str, str]) -> str:
        written = self.text(name)
        return self.keep(name, written if written in allowed else None) or ""

    def whole(self, name: str) -> int | None:
        return self.keep(name, _whole(self.text(name)))

    def number(self, name: str) -> float | None:
        return self.keep(name, _number(self.text(name)))


def _whole(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    return None if number is None else min(number, MAX_NUMBER)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _steps(text: str) -> tuple[int, int] | None:
    """`12` or `10-20`."""
    low, dash, high = text.partition("-")
    ends = _whole(low.strip()), _whole(high.strip() if dash else low.strip())
    return None if None in ends else (min(ends), max(ends))  # type: ignore[type-var, return-value]


def _reward(text: str) -> tuple[float, float] | None:
    """`1`, or `0.2..0.8`."""
    low, dots, high = text.partition("..")
    ends = _number(low), _number(high if dots else low)
    return None if None in ends else (min(ends), max(ends))  # type: ignore[type-var, return-value]


def _is_of_one_pair(values: Mapping[str, Any]) -> bool:
    """Whether it asks for one step, one learner and one peer of it."""
    steps, learner, agent = values["steps"], values["learner"], values["agent"]
    return bool(steps and steps[0] == steps[1] and learner and agent and learner != agent)


def read_filter(query: Mapping[str, str], agents: Sequence[str]) -> Filter:
    """The filter that a query asks for. agents: names of the run's agents."""
    reader = _ParameterReader(query)
    is_unscorable = reader.text("reward") == UNSCORABLE
    agent, source = reader.one_of("agent", agents), reader.one_of("source", agents)
    if agent and source:  # two words for one thing: the second one counts
        reader.given.pop("agent")
    values = {
        "steps": reader.keep("step", _steps(reader.text("step"))),
        "prompt": reader.keep("prompt", reader.text("prompt") or None) or "",
        "agent": source or agent,
        "learner": reader.one_of("learner", agents),
        "reward": reader.keep("reward", (0.0, 0.0) if is_unscorable else _reward(reader.text("reward"))),
        "is_unscorable": is_unscorable,
        "sign": reader.one_of("sign", SIGNS),
        "clip": reader.one_of("clip", CLIPS),
        "min_advantage": reader.number("min_advantage"),
        "max_advantage": reader.number("max_advantage"),
        "min_tokens": reader.whole("min_tokens"),
        "max_tokens": reader.whole("max_tokens"),
        "text": reader.keep("q", reader.text("q") or None) or "",
    }
    values["lesson"] = reader.one_of("lesson", LESSONS)
    if values["lesson"] and not _is_of_one_pair(values):  # of many steps it would take long to find
        reader.ignored.append("lesson without one step, a learner and another agent that sampled")
        reader.given.pop("lesson")
        values["lesson"] = ""
    return Filter(**values, given=reader.given, ignored=tuple(reader.ignored))


@dataclass(frozen=True)
class PageCursor:
    """A place among the rows of a run: a step, and the number of an event of it."""

    step: int
    seq: int

    def __str__(self) -> str:
        return f"{self.step}.{self.seq}"


def read_cursor(text: str) -> PageCursor | None:
    """`12.3456`; None of anything else."""
    step, _, seq = text.partition(".")
    if not (step.isascii() and step.isdigit() and seq.isascii() and seq.isdigit() and len(text) <= 30):
        return None
    return PageCursor(min(int(step), MAX_NUMBER), min(int(seq), 2**62))
