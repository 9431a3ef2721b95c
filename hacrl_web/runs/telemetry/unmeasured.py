"""Metrics that have no chart because the settings of a run do not record or use them."""

from __future__ import annotations

from collections.abc import Collection

from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.runs.telemetry.ended_run_cache import cached_by_run
from hacrl_web.web.errors import FieldErrors
from workers.contract.spec.run import RunSpec

OF_TURNS = ("turns/mean", "tool_calls/mean", "tool_calls/failed_frac")  # recorded with an environment


def unmeasured(run: Run, spec: RunSpec, engine: str) -> list[str]:
    """The metrics that a run does not measure. engine: the one that sampled."""
    rule, interval = spec.algorithm, spec.telemetry.alignment_interval
    measured = {
        "kl": rule.beta > 0,
        "omega": rule.uses_omega,
        "gradient_alignment": 0 < interval <= spec.training.steps,
        "engine_logp_difference": engine != "transformers",
        "engine_logp_difference/max": engine != "transformers",
        "curriculum/resting_frac": run.spec.get("training", {}).get("curriculum_rest", 0) > 0,  # of earlier versions
        "overlong_penalty/mean": spec.overlong.cache > 0,
        **dict.fromkeys(OF_TURNS, spec.rollout.environment != "none"),
    }
    return [name for name, is_measured in measured.items() if not is_measured]


def unmeasured_by_all(runs: Collection[Run]) -> list[str]:
    """Metrics that none of the runs measures, without a query; a run with unreadable settings may have any."""
    of_each = cached_by_run("unmeasured", runs, lambda some: {run.pk: _unmeasured_by(run) for run in some}).values()
    return sorted(set.intersection(*map(set, of_each))) if of_each else []


def _unmeasured_by(run: Run) -> list[str]:
    try:
        spec = recorded_spec(run)
    except FieldErrors:
        return []
    is_left_to_cpu = spec.rollout.engine == "auto" and spec.compute.device == "cpu"
    return unmeasured(run, spec, "transformers" if is_left_to_cpu else spec.rollout.engine)
