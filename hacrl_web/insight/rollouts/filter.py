"""Which rollouts a page lists: the query of the Rollouts tab, shared with the API."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from django.db.models import Q
from django.http import QueryDict
from pydantic import AfterValidator, Field

from hacrl_web.insight.rescued_prompts import CORRECT, NOT_CORRECT
from hacrl_web.web.page_query import MAX_ID, PageQuery, Text, clean_text, whole_number

SIGNS = {"positive": Q(advantage__gt=0), "negative": Q(advantage__lt=0), "zero": Q(advantage=0)}
CLIPS = {"lower": "lower", "inside": "none", "upper": "upper"}  # in the address -> as recorded
# The source's rollouts on rescued prompts, and on avoided ones.
PROMPT_KINDS = {"rescue": CORRECT, "mistake": NOT_CORRECT}
UNSCORABLE = "none"
SORTS = {  # a sort -> what it is by
    "weight": "|weight|, how much a rollout moved the learner",
    "surprise": "surprise, how far the ratio s is from 1",
}
SHARED = "yes"
LISTINGS = {"rollouts": True}


@dataclass(frozen=True)
class PageCursor:
    """A place among the rows of a run: a step, and the number of one of its events."""

    step: int
    seq: int

    def __str__(self) -> str:
        return f"{self.step}.{self.seq}"


def read_cursor(text: str) -> PageCursor | None:
    """`12.3456`; None for any other text."""
    step_text, _, seq_text = text.partition(".")
    step, seq = whole_number(step_text), whole_number(seq_text, MAX_ID)
    return None if step is None or seq is None else PageCursor(step, seq)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _steps(text: str) -> tuple[int, int] | None:
    """`12` or `10-20`."""
    ends = [whole_number(end.strip()) for end in text.split("-", 1)]
    numbers = [end for end in ends if end is not None]
    return (min(numbers), max(numbers)) if len(numbers) == len(ends) else None


def _rewards(text: str) -> tuple[float, float] | None:
    """`1` or `0.2..0.8`."""
    ends = [_number(end) for end in text.split("..", 1)]
    numbers = [end for end in ends if end is not None]
    return (min(numbers), max(numbers)) if len(numbers) == len(ends) else None


def _readable(read: Callable[[str], object]) -> AfterValidator:
    """Refuses a text for which `read` returns None."""

    def checked(text: str) -> str:
        if text and read(text) is None:
            raise ValueError("cannot be read")
        return text

    return AfterValidator(checked)


Whole = Annotated[Text, _readable(whole_number)]
Number = Annotated[Text, _readable(_number)]
Cursor = Annotated[Text, _readable(read_cursor)]


class RolloutFilter(PageQuery):
    """What a listed rollout must be, and where the page begins. Values stay as written, for links and form fields.

    agent, source: two names for who sampled it. From `learner` on: what it taught a learner.
    """

    step: Annotated[Text, _readable(_steps)] = ""
    prompt: Text = ""
    training_set: Text = Field("", alias="set")
    agent: Text = ""
    source: Text = ""
    reward: Annotated[Text, _readable(lambda text: text == UNSCORABLE or _rewards(text))] = ""
    min_tokens: Whole = ""
    max_tokens: Whole = ""
    text: Text = Field("", alias="q")
    learner: Text = ""
    sign: Annotated[Text, _readable(SIGNS.get)] = ""
    clip: Annotated[Text, _readable(CLIPS.get)] = ""
    prompt_kind: Annotated[Text, _readable(PROMPT_KINDS.get)] = ""  # of one step and pair only
    min_advantage: Number = ""
    max_advantage: Number = ""
    shared: Annotated[Text, _readable({SHARED: True}.get)] = ""  # what the learner's peers sampled
    sort: Annotated[Text, _readable(SORTS.get)] = ""  # the order of steps, if empty
    listing: Annotated[Text, _readable(LISTINGS.get)] = Field("", alias="list")  # prompts, if empty
    after: Cursor = ""
    before: Cursor = ""

    @classmethod
    def read(cls, query: QueryDict) -> Self:
        """The query with unreadable values left out; saved addresses name `prompt_kind` lesson."""
        return super().read(_renamed(query))

    @property
    def steps(self) -> tuple[int, int] | None:
        return _steps(self.step)

    @property
    def rewards(self) -> tuple[float, float] | None:
        return _rewards(self.reward)

    @property
    def is_unscorable(self) -> bool:
        return self.reward == UNSCORABLE

    @property
    def is_of_learner(self) -> bool:
        """Whether it is about what rollouts taught: then a rollout is listed once for each learner."""
        conditions = (self.learner, self.sign, self.clip, self.min_advantage, self.max_advantage)
        return any((*conditions, self.shared, self.sort))

    def begin(self, size: int) -> int:
        """The number of rows before a page of a sorted list, which its cursor holds."""
        cursor = read_cursor(self.before or self.after)
        place = cursor.seq if cursor else 0
        return max(0, place - size) if self.before else place

    @property
    def is_of_one_pair(self) -> bool:
        """Whether it names one step, one learner and one peer of it."""
        steps = self.steps
        return bool(steps and steps[0] == steps[1] and self.learner and self.agent not in ("", self.learner))


def _renamed(query: QueryDict) -> QueryDict:
    """The query with today's names of parameters."""
    if "lesson" not in query or "prompt_kind" in query:
        return query
    renamed = query.copy()
    [renamed["prompt_kind"]] = renamed.pop("lesson")[-1:]
    return renamed


def read_filter(query: QueryDict, agents: Sequence[str]) -> tuple[RolloutFilter, list[str]]:
    """The filter of an address, and its parameters that are left out. agents: names of the run's agents."""
    query = _renamed(query)
    rollout_filter = RolloutFilter.read(query)
    names = {name: getattr(rollout_filter, name) for name in ("agent", "source", "learner")}
    unknown = {name: "" for name, agent in names.items() if agent and agent not in agents}
    ignored = [f"{name} {clean_text(query[name])[:40]!r}" for name in (*rollout_filter.ignored, *unknown)]
    source = "" if "source" in unknown else names["source"]
    rollout_filter = rollout_filter.model_copy(update=unknown | ({"agent": source, "source": ""} if source else {}))
    if rollout_filter.prompt_kind and not rollout_filter.is_of_one_pair:  # over many steps the search would take long
        ignored.append("prompt_kind without one step, a learner and another agent that sampled")
        rollout_filter = rollout_filter.model_copy(update={"prompt_kind": ""})
    return rollout_filter, ignored
