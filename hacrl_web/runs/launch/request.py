"""The launch request that would make a run again: what a clone begins with, as JSON or YAML for other hands."""

from __future__ import annotations

from typing import Any

from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.launch import SECTIONS
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.stored_spec import stored_spec


def request_of(user: Any, run: Run) -> dict[str, Any]:
    """As POST /runs takes it. A group or benchmark that is gone is null.

    `confirm`: the cautions that it confirmed, none of a draft.
    """
    spec = stored_spec(run)
    values = spec.model_dump(mode="json")
    sections = {name: values[name] for name in SECTIONS}
    paths = [one["train_path"] for one in sections["evaluation"].get("benchmarks", ())]
    benchmarks = Benchmark.objects.visible_to(user).filter(train_path__in=paths)
    ids = dict(benchmarks.values_list("train_path", "pk"))
    sections["evaluation"]["benchmarks"] = [ids[path] for path in paths if path in ids]
    confirmed = [] if run.state == State.DRAFT else [caution.code for caution in spec.cautions()]
    return {
        "name": run.name,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        "seed": spec.seed,
        **sections,
        "confirm": confirmed,
        "cloned_from": str(run.pk),
    }
