"""What-if: recorded rollouts, weighed again with hypothetical settings of the run's algorithm.

First-order: the rollouts, their rewards and their ratios s stay as recorded. Another exponent, bound or clip mode
changes weights only; another capability window or clamp changes omega too, and with it baselines and A.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from hacrl_web.insight.what_if.rows import read
from hacrl_web.insight.what_if.sums import Pairs, check_recorded, hypothetical, recorded
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.contract.spec import teaching
from workers.contract.spec.run import RunSpec

NO_WEIGHT = (
    "Every weight on record for these steps is 0, so there are no shares to show: no rollout taught anything. "
    "This happens if all answers to a question get the same reward, because each advantage is then 0."
)
NOT_VARIED = "What-if does not vary this setting."


def why_nothing(spec: RunSpec) -> str:
    """Why none of the settings acts on this run; empty if they do."""
    rule = spec.algorithm
    if rule.is_recorded_only:
        return "This version no longer has the rule of this run, so it cannot weigh its rollouts again."
    if not rule.hypothetical_settings():
        return f"This run follows {rule.name}, which has no setting that weighs shared rollouts."
    if not rule.shares_rollouts or len(spec.agents) == 1:
        return "No rollout was shared in this run: each weight is of an agent's own rollout, and none of these acts."
    return ""


def what_if_answer(
    run: Run, first: int, last: int, settings: Mapping[str, Any], *, checks: bool = False
) -> dict[str, Any]:
    """Recorded and hypothetical numbers of every ordered pair. checks: with RecordedCheck. Error: FieldErrors."""
    began = time.perf_counter()
    spec = recorded_spec(run)
    nothing = why_nothing(spec)
    if nothing:
        return {"nothing": nothing, "pairs": [], "steps": 0}
    if last < first:
        raise FieldErrors.single("invalid", "The last step must not be before the first.", "last")
    if constants := [name for name in settings if is_constant(name, spec)]:
        raise FieldErrors.single("invalid", NOT_VARIED, constants[0])
    try:
        other = with_hypothetical(spec, settings)
    except ValidationError as error:
        raise FieldErrors(plain_errors(error)) from error
    rows = read(run, first, last, spec.algorithm.capability_options.window, spec.overlong)
    before, after = recorded(rows, spec.rule), hypothetical(rows, spec.rule, other.rule)
    if checks and rows.steps and rows.check is None:
        rows.check = check_recorded(rows, spec.rule)
    return {
        "nothing": "",
        "agents": run.agent_names,
        "first": rows.steps[0] if rows.steps else None,
        "last": rows.steps[-1] if rows.steps else None,
        "steps": len(rows.steps),
        "is_thinned": rows.is_thinned,
        "rows": rows.num_rows,
        "pairs": _pairs_answer(before, after),
        "bounds": [_bounds(one) for one in (spec, other)],
        "cautions": [
            *([NO_WEIGHT] if rows.steps and not any(pair.weight for pair in before.values()) else []),
            *(one.message for one in teaching.cautions_of(other) if one not in teaching.cautions_of(spec)),
        ],
        "check": rows.check if checks else None,
        "clone": _clone_query(spec, other),
        "elapsed_ms": round(1000 * (time.perf_counter() - began), 1),
    }


def is_constant(name: str, spec: RunSpec) -> bool:
    """True for a setting of the run's algorithm with whose other values What-if cannot weigh its rollouts."""
    return name in type(spec.algorithm).model_fields and name not in spec.algorithm.hypothetical_settings()


def with_hypothetical(spec: RunSpec, settings: Mapping[str, Any]) -> RunSpec:
    """The run's spec with other values. Error: pydantic.ValidationError."""
    values = spec.model_dump(mode="json")
    values["algorithm"] |= settings
    return RunSpec.model_validate(values)


def _pairs_answer(before: Pairs, after: Pairs) -> list[dict[str, Any]]:
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


def _bounds(spec: RunSpec) -> dict[str, float | None]:
    """The cross band's lower bound at a step's first and last cross update, Eq. (14); None without a clip."""
    # Own mini-batches come before.
    first, last = (spec.rule.shared_band(update) for update in (spec.updates_per_block, spec.last_update))
    return {
        "first": first[0] if first else None,
        "last": last[0] if last else None,
        "delta_step": getattr(spec.rule, "delta_step", None),
    }


def _clone_query(spec: RunSpec, other: RunSpec) -> str:
    """The query that opens the clone form with the settings that differ."""
    changed = {
        f"algorithm.{name}": getattr(other.algorithm, name)
        for name in spec.algorithm.hypothetical_settings()
        if getattr(other.algorithm, name) != getattr(spec.algorithm, name)
    }
    return urlencode(changed)
