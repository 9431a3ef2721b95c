"""The harness's results as events: every metric by task, filter and standard error.

They are checked, because others write them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from workers.contract.events import HarnessResult, HarnessScore
from workers.contract.spec.harness import HARNESS
from workers.harness.command import HarnessFailed

MAX_TASKS = 10_000
MAX_SCORES = 200  # of one task
MAX_TEXT = 200  # characters of a name
_STDERR = "_stderr"
_LARGEST = 1e300


def harness_results(answer: Mapping[str, Any], agent: str) -> list[HarnessResult]:
    """An event for each task and group. Error: HarnessFailed."""
    results = _table(answer, "results")
    groups = _table(answer, "groups", optional=True)
    if not results or len(results) > MAX_TASKS:
        raise HarnessFailed(f"lm-evaluation-harness gave results of {len(results):,} tasks")
    events = []
    for task, values in {**results, **groups}.items():
        if not isinstance(values, Mapping):
            raise HarnessFailed(f"the results of lm-evaluation-harness on {str(task)[:MAX_TEXT]} are no object")
        scores = list(_scores(values, answer, task))
        if not scores and task not in groups and values.get("sample_len") != 0:
            continue  # the head of a tag, which has no score of its own
        counts = _entry(answer, "n-samples", task)
        shots = _entry(answer, "n-shot", task)
        version = _entry(answer, "versions", task)
        events.append(
            HarnessResult(
                agent=agent,
                harness=HARNESS,
                version=str(answer.get("lm_eval_version") or "")[:MAX_TEXT],
                task=str(task)[:MAX_TEXT],
                task_version="" if version in (None, "Yaml") else str(version)[:MAX_TEXT],
                is_group=task in groups,
                num_fewshot=_count(shots),
                num_questions=_count(counts.get("effective") if isinstance(counts, Mapping) else None),
                num_available=_count(counts.get("original") if isinstance(counts, Mapping) else None),
                has_chat_template=bool(answer.get("chat_template")),
                scores=scores[:MAX_SCORES],
            )
        )
    if not any(event.scores for event in events):
        raise HarnessFailed("lm-evaluation-harness gave no score: the log has its output")
    return events


def _scores(values: Mapping[str, Any], answer: Mapping[str, Any], task: str) -> Iterator[HarnessScore]:
    """The scores of keys such as `exact_match,strict-match`, with `exact_match_stderr,strict-match`."""
    directions = _entry(answer, "higher_is_better", task)
    for key, value in values.items():
        metric, separator, name = str(key).partition(",")
        if not separator or metric.endswith(_STDERR) or isinstance(value, bool):
            continue
        if not isinstance(value, int | float):
            continue
        is_higher_better = directions.get(metric) if isinstance(directions, Mapping) else None
        yield HarnessScore(
            metric=metric[:MAX_TEXT],
            filter=name[:MAX_TEXT],
            value=_finite(value),
            stderr=_finite(values.get(f"{metric}{_STDERR},{name}")),
            higher_is_better=is_higher_better if isinstance(is_higher_better, bool) else None,
        )


def _table(answer: Mapping[str, Any], key: str, *, optional: bool = False) -> Mapping[str, Any]:
    """Error: HarnessFailed."""
    table = answer.get(key) or {}
    if not isinstance(table, Mapping) or (not table and not optional):
        raise HarnessFailed(f"the results of lm-evaluation-harness have no {key!r}")
    return table


def _entry(answer: Mapping[str, Any], key: str, task: str) -> Any:
    table = answer.get(key)
    return table.get(task) if isinstance(table, Mapping) else None


def _finite(value: Any) -> float | None:
    """None for `N/A`, and for what is no finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > _LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if is_count else None
