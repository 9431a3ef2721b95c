"""What the What-if tab shows: recorded and hypothetical numbers of every ordered pair, side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from hacrl_web.insight.what_if.rows import Rows, read
from hacrl_web.insight.what_if.what_if import (
    KNOBS,
    Pairs,
    RecordedCheck,
    check_recorded,
    hypothetical,
    recorded,
    with_hypothetical,
)
from hacrl_web.runs.models import Run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldError, FieldErrors, plain_errors
from workers.contract.contribution_weight import clip_lower_bound
from workers.contract.spec.algorithm import AlgorithmSpec
from workers.contract.spec.run import RunSpec

NO_WEIGHT = (
    "Every weight on record for these steps is 0, so there are no shares to show: nobody was taught anything. "
    "So it is where all answers to a question get the same reward, for then each advantage is 0."
)


def why_nothing(spec: RunSpec) -> str:
    """Why this run has nothing to turn; empty where it has."""
    rule = spec.algorithm
    if rule.name != "hacpo":
        return f"This run follows {rule.name}, whose weights have no alpha, delta, window or clamp."
    if not rule.sharing or len(spec.agents) == 1:
        return "No rollout was shared in this run: every weight is that of an own rollout, on which none of these acts."
    return ""


def what_if_answer(
    run: Run, first: int, last: int, knobs: Mapping[str, Any], *, checks: bool = False
) -> dict[str, Any]:
    """Recorded and hypothetical numbers of every ordered pair. checks: also how well they are given back.

    Error: FieldErrors.
    """
    began = time.perf_counter()
    spec = stored_spec(run)
    nothing = why_nothing(spec)
    if nothing:
        return {"nothing": nothing, "pairs": [], "steps": 0}
    if last < first:
        raise FieldErrors([FieldError("invalid", "The last step must not be before the first.", "last")])
    try:
        other = with_hypothetical(spec, knobs)
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from error
    rows = read(run, first, last, spec.algorithm.capability_window)
    before, after = recorded(rows, spec.rule), hypothetical(rows, spec.rule, other.rule)
    return {
        "nothing": "",
        "agents": run.agent_names,
        "first": rows.steps[0] if rows.steps else None,
        "last": rows.steps[-1] if rows.steps else None,
        "steps": len(rows.steps),
        "is_thinned": rows.is_thinned,
        "rows": rows.num_rows,
        "pairs": _told(before, after),
        "bounds": [_bounds(one) for one in (spec, other)],
        "cautions": [
            *([NO_WEIGHT] if rows.steps and not any(pair.weight for pair in before.values()) else []),
            *(caution.message for caution in other.cautions() if caution not in spec.cautions()),
        ],
        "check": _check(rows, spec.rule)._asdict() if rows.steps and checks else None,
        "clone": clone_query(spec, other),
        "elapsed_ms": round(1000 * (time.perf_counter() - began), 1),
    }


def _check(rows: Rows, rule: AlgorithmSpec) -> RecordedCheck:
    """Once for rows in memory."""
    if rows.checked is None:
        rows.checked = check_recorded(rows, rule)
    result: RecordedCheck = rows.checked
    return result


def _told(before: Pairs, after: Pairs) -> list[dict[str, Any]]:
    totals = [
        {learner: sum(pair.weight for (k, _), pair in pairs.items() if k == learner) for learner, _ in pairs}
        for pairs in (before, after)
    ]
    return [
        {
            "learner": place[0],
            "source": place[1],
            **{
                name: pairs[place].as_dict() | {"share": pairs[place].weight / of[place[0]] if of[place[0]] else None}
                for name, pairs, of in (("recorded", before, totals[0]), ("hypothetical", after, totals[1]))
            },
        }
        for place in before
    ]


def _bounds(spec: RunSpec) -> dict[str, float]:
    """The cross band's lower bound at a step's first and last cross update, Eq. (14)."""
    rule = spec.rule
    return {
        "first": clip_lower_bound(spec.updates_per_block, rule),  # own mini-batches come before
        "last": spec.last_lower_bound,
        "delta_step": rule.delta_step,
    }


def clone_query(spec: RunSpec, other: RunSpec) -> str:
    """What the clone form is opened with: the settings that differ."""
    changed = {
        f"algorithm.{name}": getattr(other.algorithm, name)
        for name in KNOBS
        if getattr(other.algorithm, name) != getattr(spec.algorithm, name)
    }
    return urlencode(changed)
