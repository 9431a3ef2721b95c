"""Applies the alert rules to the metrics of one step. The same steps always give the same alerts.

The state is a small JSON object, which the evaluator stores, so an interruption loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hacrl_web.alerts.rules.signals import START_POINTS, Facts, Series, StepMetrics, others, reward_changes
from hacrl_web.alerts.rules.table import RULES, Rule

State = dict[str, Any]
VERSION = 1
SMALLEST = 0.0001  # shares below it are not written out


@dataclass(frozen=True)
class AlertChange:
    """An alert that a step raises or clears."""

    rule: Rule
    agent: str
    source: str
    is_raised: bool
    number: float
    text: str


def new_state() -> State:
    return {"version": VERSION, "series": {}}


def step_changes(state: State, facts: Facts, number: int, step: StepMetrics) -> list[AlertChange]:
    """The alerts that step `number` changes; updates the state. A repeated step replaces itself and all later ones."""
    changes = []
    for rule in RULES:
        if not rule.applies(facts):
            continue
        for agent, source in _subjects(rule, facts):
            value = rule.read(step, facts, agent, source)
            if value is None:
                continue
            series = state["series"].setdefault(f"{rule.kind}\n{agent}\n{source}", {"start": [], "last": [], "open": 0})
            _append(series, rule, number, value)
            change = _change(series, rule, facts, agent, source)
            if change is not None:
                changes.append(change)
    return changes


def close_all(state: State) -> None:
    """Close all alerts, at the end of the run."""
    for series in state["series"].values():
        series["open"] = 0


def _subjects(rule: Rule, facts: Facts) -> list[tuple[str, str]]:
    """(agent, source) of each series that the rule watches; an agent rule has no source."""
    if rule.scope == "agent":
        return [(agent, "") for agent in facts.agents]
    return [(agent, source) for agent in facts.agents for source in others(facts, agent)]


def _append(series: State, rule: Rule, number: int, value: Any) -> None:
    for points in (series["start"], series["last"]):
        while points and points[-1][0] >= number:  # a resumed attempt repeats steps
            points.pop()
    if len(series["start"]) < START_POINTS:
        series["start"].append([number, value])
    series["last"].append([number, value])
    del series["last"][: -rule.keep]


def _change(state: State, rule: Rule, facts: Facts, agent: str, source: str) -> AlertChange | None:
    num_steps, is_beyond = (rule.clear_after, rule.is_under) if state["open"] else (rule.raise_after, rule.is_over)
    count = len(state["last"])
    if count < num_steps:
        return None
    # The newest first, since it decides most often.
    series = [Series(state["start"], state["last"][:end]) for end in range(count, count - num_steps, -1)]
    if not all(is_beyond(rule.signal(one, facts)) for one in series):
        return None
    number = rule.signal(series[0], facts)
    assert number is not None
    is_raised = not state["open"]
    state["open"] = int(is_raised)
    text = _sentence(rule, facts, agent, source, number, series[0]) if is_raised else ""
    return AlertChange(rule, agent, source, is_raised, number, text)


def _sentence(rule: Rule, facts: Facts, agent: str, source: str, number: float, series: Series) -> str:
    other = ""
    if rule.kind == "split" and (changes := reward_changes(series)):
        other = others(facts, agent)[max(range(1, len(changes)), key=changes.__getitem__) - 1]
    percent = percent_text(number)
    few = f"Only {percent}" if number else "None"
    return rule.sentence.format(value=number, percent=percent, few=few, agent=agent, source=source, other=other)


def percent_text(share: float) -> str:
    """A share in percent, with three digits; a tiny one as `less than 0.01 %`."""
    return "less than 0.01 %" if 0 < share < SMALLEST else f"{100 * share:.3g} %"
