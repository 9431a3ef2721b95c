"""The line above the Collaboration tab's sentences: what has become of each learner from the first step until now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hacrl_web.insight.checkpoints.checkpoints import accuracies
from hacrl_web.insight.collaboration.collaboration import as_percent
from hacrl_web.insight.collaboration.step_summary import Summary, summary_of
from hacrl_web.runs.models import Run


def so_far(run: Run, steps: dict[int, int]) -> list[dict[str, Any]]:
    """By agent: the peers' share of what moved it, and its held-out accuracy, at the first and at the newest step.

    steps: from recorded_steps. Empty where no step is recorded. A part that is not known is an empty text.
    """
    if not steps:
        return []
    ends = [summary_of(run, steps, step) for step in (min(steps), max(steps))]
    scores = accuracies(run)
    return [
        {"name": name, "peers": _then_now(*(_peers(one, name) for one in ends)), "accuracy": _accuracy(scores, name)}
        for name in run.agent_names
    ]


def _then_now(then: str, now: str) -> str:
    return f"{then} → {now}" if then and now else ""


def _peers(summary: Summary, learner: str) -> str:
    """The peers' share of the sum of |weight| of one learner's step; empty where nothing moved it, or no peer could."""
    weights = {
        source: sums.weight_positive + sums.weight_negative
        for (to, source), sums in summary.pairs.items()
        if to == learner
    }
    total = sum(weights.values())
    return as_percent(total - weights.get(learner, 0.0), total) if total and len(weights) > 1 else ""


def _accuracy(scores: Mapping[int, Mapping[str, float]], agent: str) -> str:
    """Of its first and its last evaluation; empty before the second one."""
    values = [scores[step][agent] for step in sorted(scores) if agent in scores[step]]
    return f"{values[0]:.3f} → {values[-1]:.3f}" if len(values) > 1 else ""
