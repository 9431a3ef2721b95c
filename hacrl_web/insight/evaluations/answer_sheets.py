"""The answers to single questions: two evaluations side by side, agent by agent, and the questions that match a filter.

Answers are stored in chunks of a hundred questions, in columns. The chunks of two steps are read in one query, without
their responses; responses are read for the opened question alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from hacrl_web.runs.models import Run
from hacrl_web.web.page_query import PageQuery, Text
from hacrl_web.web.visible import visible
from workers.contract.events import ANSWERS_AT_ONCE, CORRECT, PARTIAL, UNSCORABLE

# Name in the address -> label.
FILTERS = {
    "": "all questions",
    "gained": "newly solved",
    "lost": "newly lost",
    "wrong": "all incorrect",
    "disagree": "agents disagree",
    "unscorable": "could not be scored",
}


@dataclass(frozen=True)
class QuestionSet:
    """A benchmark's questions in the run's order, in columns."""

    ids: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    difficulties: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sheet:
    """One agent's answers in one evaluation. marks: by question a letter for each sample; empty for other questions."""

    marks: list[str]
    majority: list[str]


@dataclass(frozen=True)
class Mark:
    """One agent's samples for one question. num_samples 0: the question was not in the agent's evaluation."""

    num_correct: int
    num_scored: int
    num_samples: int
    majority: str = ""
    num_partial: int = 0  # with a reward between 0 and 1

    @property
    def is_solved(self) -> bool | None:
        """At least half of the scored samples are correct; None without scored samples."""
        return None if not self.num_scored else 2 * self.num_correct >= self.num_scored

    @property
    def words(self) -> str:
        if not self.num_samples:
            return "not evaluated"
        if not self.num_scored:
            return "could not be scored"
        if self.num_samples > 1:
            unscorable = self.num_samples - self.num_scored
            ending = f", {unscorable} could not be scored" if unscorable else ""
            partial = f", {self.num_partial} with partial credit" if self.num_partial else ""
            return f"{self.num_correct} of {self.num_scored} correct{partial}{ending}"
        return "correct" if self.num_correct else "partial credit" if self.num_partial else "incorrect"

    @property
    def short(self) -> str:
        if not self.num_scored:
            return "–"
        if self.num_samples > 1:
            return f"{self.num_correct}/{self.num_scored}"
        return "✓" if self.num_correct else "~" if self.num_partial else "✗"

    @property
    def kind(self) -> str:
        return {None: "none", True: "correct", False: "incorrect"}[self.is_solved]


@lru_cache(maxsize=4096)  # few marks differ
def mark(letters: str, majority: str = "") -> Mark:
    num_scored = len(letters) - letters.count(UNSCORABLE)
    return Mark(letters.count(CORRECT), num_scored, len(letters), visible(majority), letters.count(PARTIAL))


def read_question_set(run: Run, benchmark: str) -> QuestionSet:
    """Reads a benchmark's questions in the order of the evaluation, as the latest attempt recorded them."""
    columns = ("ids", "subjects", "difficulties", "answers")
    chunks = run.question_chunks.filter(benchmark=benchmark).order_by("attempt", "seq")
    by_first = {first: texts for first, *texts in chunks.values_list("first", *columns)}
    questions = QuestionSet()
    for first in sorted(by_first):
        for name, text in zip(columns, by_first[first], strict=True):
            getattr(questions, name).extend(from_json(text))
    return questions


def read_sheets(run: Run, benchmark: str, steps: Collection[int], count: int) -> dict[tuple[int, str], Sheet]:
    """(step, agent) -> the answers to `count` questions; the latest attempt of a step wins."""
    chunks = run.answer_chunks.filter(benchmark=benchmark, step__in=steps).order_by("attempt", "seq")
    sheets: dict[tuple[int, str], Sheet] = {}
    for step, agent, first, marks, majority in chunks.values_list("step", "agent", "first", "marks", "majority"):
        sheet = sheets.setdefault((step, agent), Sheet([""] * count, [""] * count))
        for column, text in ((sheet.marks, marks), (sheet.majority, majority)):
            values = from_json(text)[: max(0, count - first)]
            column[first : first + len(values)] = values
    return sheets


@dataclass(frozen=True)
class EvaluatedStep:
    """An evaluation: a run and a step of it."""

    run: Run
    step: int


@dataclass(frozen=True)
class EvaluationPair:
    """Two evaluations of the same questions. agents: (place, name in `after`, name in `before`)."""

    questions: QuestionSet
    agents: Sequence[tuple[int, str, str]]
    sheets_before: Sequence[Sheet]
    sheets_after: Sequence[Sheet]
    places_before: Sequence[int | None]  # of each question among those of the other run

    def marks(self, place: int, agent: int) -> tuple[Mark, Mark]:
        """The marks before and after, by the places of the question and of the agent."""
        at = self.places_before[place]
        old, new = self.sheets_before[agent], self.sheets_after[agent]
        before = mark("") if at is None else mark(old.marks[at], old.majority[at])
        return before, mark(new.marks[place], new.majority[place])


def read_pair(benchmark: str, before: EvaluatedStep, after: EvaluatedStep) -> EvaluationPair:
    """Reads both evaluations. Agents of two runs are paired by name, or by place if the runs share no name."""
    questions = read_question_set(after.run, benchmark)
    count = len(questions.ids)
    if before.run.pk == after.run.pk:
        new = old = read_sheets(after.run, benchmark, {before.step, after.step}, count)
        count_before, places = count, [*range(count)]
    else:
        new = read_sheets(after.run, benchmark, {after.step}, count)
        ids = read_question_set(before.run, benchmark).ids
        count_before, place_of = len(ids), {name: place for place, name in enumerate(ids)}
        old = read_sheets(before.run, benchmark, {before.step}, count_before)
        places = [place_of.get(name) for name in questions.ids]
    names, others = after.run.agent_names, before.run.agent_names
    agents = [
        (place, name, _partner(name, place, names, others))
        for place, name in enumerate(names)
        if (after.step, name) in new
    ]
    unevaluated = Sheet([""] * count_before, [""] * count_before)
    return EvaluationPair(
        questions,
        agents,
        [old.get((before.step, partner), unevaluated) for _, _, partner in agents],
        [new[after.step, name] for _, name, _ in agents],
        places,
    )


def _partner(name: str, place: int, names: Sequence[str], others: Sequence[str]) -> str:
    """The agent of the other run to compare with; empty if there is none."""
    if name in others:
        return name
    return others[place] if not set(names) & set(others) and place < len(others) else ""


class QuestionQuery(PageQuery):
    """Which questions are listed. show: a key of FILTERS.  agent: the only one that counts.  q: a part of the id."""

    show: Text = ""
    agent: Text = ""
    subject: Text = ""
    difficulty: Text = ""
    q: Text = ""


def matching_places(pair: EvaluationPair, query: QuestionQuery) -> tuple[list[int], dict[str, int]]:
    """Places of the questions that match, in their order; and how many questions each of FILTERS would list."""
    questions, needle = pair.questions, query.q.lower()
    agents = [at for at, (_, name, _) in enumerate(pair.agents) if name == query.agent] or range(len(pair.agents))
    places = [
        place
        for place in range(len(questions.ids))
        if (not query.subject or questions.subjects[place] == query.subject)
        and (not query.difficulty or questions.difficulties[place] == query.difficulty)
        and (not needle or needle in questions.ids[place].lower())
    ]
    counted, matching = dict.fromkeys(FILTERS, 0), []
    for place in places:
        passed = _passed(pair, place, agents)
        for show in passed:
            counted[show] += 1
        if query.show in passed:
            matching.append(place)
    return matching, counted


def _passed(pair: EvaluationPair, place: int, agents: Sequence[int]) -> list[str]:
    """The filters that a question passes."""
    at = pair.places_before[place]
    after = [mark(pair.sheets_after[agent].marks[place]) for agent in agents]
    before = [mark("" if at is None else pair.sheets_before[agent].marks[at]) for agent in agents]
    turns = {(old.is_solved, new.is_solved) for old, new in zip(before, after, strict=True)}
    is_passed = {
        "": True,
        "gained": (False, True) in turns,
        "lost": (True, False) in turns,
        "wrong": all(one.num_scored and not one.num_correct for one in after),
        "disagree": {True, False} <= {is_solved for _, is_solved in turns},
        "unscorable": any(one.num_scored < one.num_samples for one in after),
    }
    return [show for show, passes in is_passed.items() if passes]


def texts_of_questions(run: Run, benchmark: str, places: Collection[int]) -> dict[int, str]:
    """The texts of the questions at these places."""
    firsts = {place // ANSWERS_AT_ONCE * ANSWERS_AT_ONCE for place in places}
    chunks = run.question_chunks.filter(benchmark=benchmark, first__in=firsts).order_by("attempt", "seq")
    by_chunk = {first: from_json(text) for first, text in chunks.values_list("first", "questions")}
    return {
        place: visible(by_chunk[first][place - first])
        for place in places
        if (first := place // ANSWERS_AT_ONCE * ANSWERS_AT_ONCE) in by_chunk and place - first < len(by_chunk[first])
    }


def responses(evaluation: EvaluatedStep, benchmark: str, place: int) -> dict[str, str]:
    """agent -> its first response to the question at a place, as it is stored."""
    first = place // ANSWERS_AT_ONCE * ANSWERS_AT_ONCE
    chunks = evaluation.run.answer_chunks.filter(benchmark=benchmark, step=evaluation.step, first=first)
    by_agent: dict[str, str] = {}
    for agent, text in chunks.order_by("attempt", "seq").values_list("agent", "responses"):
        texts: list[Any] = from_json(text)
        if place - first < len(texts):
            by_agent[agent] = visible(texts[place - first])
    return by_agent
