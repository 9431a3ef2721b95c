"""The cost of runs before they are launched: rollouts, tokens, memory, training time, disk.

Rollouts follow from the settings; with dynamic sampling they are the most that there can be. Time is the median
seconds per rollout of completed runs of the same group on the same benchmark, of the same algorithm if there are any.
Without such runs there is no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.launch.fit.memory_fit import memory_needed
from hacrl_web.runs.launch.plan import checked_run, plan_of
from hacrl_web.runs.models import GENERATED, Run, State, Sweep, TelemetryEvent
from hacrl_web.web.errors import FieldError
from workers.contract.spec import teaching
from workers.contract.spec.run import RunSpec

MAX_MEASURED = 50  # newest completed runs
# Of a checkpoint: bfloat16 weights, their float32 masters and AdamW's two moments. With LoRA: merged weights alone.
BYTES_PER_PARAMETER = 2 + 4 + 2 * 4
BYTES_WITH_LORA = 4
# The settings that say how many rollouts and tokens there are.
COUNTED = {
    *("training.steps", "training.train_batch_size", "algorithm.name"),
    *("rollout.num_generations", "rollout.max_completion_length", "rollout.max_extra_prompts"),
}
UNTRAINED = "Nothing is trained, and the time of evaluations alone is not estimated."


@dataclass(frozen=True)
class Cost:
    """Of all runs together. device_seconds, disk_bytes: null where no run was measured yet; basis says why."""

    runs: int
    rollouts: int  # those of extra prompts included
    extra_rollouts: int  # of them, the most that dynamic sampling adds
    max_tokens: int  # every response as long as it may be
    device_seconds: float | None
    disk_bytes: int | None  # of the checkpoints that stay
    basis: str  # the source of device_seconds, in words
    basis_runs: int
    memory: str  # of the largest run, in words; empty if unknown
    void_settings: list[str]  # settings that were changed and have no effect, each with its reason


def _without_refused(request: Mapping[str, Any], errors: Sequence[FieldError]) -> dict[str, Any] | None:
    """The request without the settings that were refused; None if the number of rollouts or tokens depends on one."""
    rest = {key: dict(value) if isinstance(value, Mapping) else value for key, value in request.items()}
    for field in {error.field or "" for error in errors}:
        section, dot, name = field.partition(".")
        if field in COUNTED or not dot or not isinstance(rest.get(section), dict):
            return None
        rest[section].pop(name, None)
    training = rest.get("training", {})
    if "train_batch_size" in training and "mini_batch_size" not in training:  # the default may not divide it
        training["mini_batch_size"] = training["train_batch_size"]
    return rest


def estimate(user: User, request: Mapping[str, Any], kind: type[Run | Sweep]) -> Cost:
    """The cost of a launch request. Error: LaunchError."""
    plan = plan_of(user, request, kind)
    return cost_of(user, plan.specs, *plan.rows.pair)


def partial_estimate(user: User, request: Mapping[str, Any]) -> Cost | None:
    """The cost of a run whose request is refused, as far as it does not depend on what was refused; else None."""
    errors: list[FieldError] = []
    run, rows = checked_run(user, request, errors)
    is_whole = run is not None
    if run is None and (rest := _without_refused(request, errors)) is not None:
        run, rows = checked_run(user, rest, [])
    if run is None or not rows.agents or rows.group is None or rows.benchmark is None:
        return None
    cost = cost_of(user, [run.spec], rows.group, rows.benchmark)
    return cost if is_whole else replace(cost, memory="", disk_bytes=None, void_settings=[])


def cost_of(user: User, specs: Sequence[RunSpec], group: AgentGroup, benchmark: Benchmark) -> Cost:
    """The cost of these runs of one group on one benchmark, measured on the runs that the user may see."""
    paces = _seconds_per_rollout(user, group, benchmark)
    every = [pace for of_algorithm in paces.values() for pace in of_algorithm]
    rollouts = [rollouts_of(spec) for spec in specs]
    seconds = [
        number * median(paces.get(spec.algorithm.name, every))
        for spec, number in zip(specs, rollouts, strict=True)
        if every
    ]
    checkpoint = _checkpoint_bytes(user, group, specs[0])
    # Variants of a sweep differ in the algorithm; gspox2 has twice the rollouts.
    largest = max(specs, key=lambda spec: (spec.num_generations, spec.algorithm.shares_rollouts))
    return Cost(
        runs=len(specs),
        rollouts=sum(rollouts),
        extra_rollouts=sum(map(extra_rollouts_of, specs)),
        max_tokens=sum(n * spec.rollout.max_completion_length for n, spec in zip(rollouts, specs, strict=True)),
        device_seconds=sum(seconds) if any(seconds) else None,
        disk_bytes=None if checkpoint is None else checkpoint * sum(map(_num_kept, specs)),
        basis=_basis(every, specs, set(paces)) if any(rollouts) else UNTRAINED,
        basis_runs=len(every),
        memory=memory_needed(largest, list(group.agents.select_related("model"))),
        void_settings=_void_everywhere(specs),
    )


def _void_everywhere(specs: Sequence[RunSpec]) -> list[str]:
    """The settings that act in none of these runs."""
    by_run = [teaching.blockers(spec) | spec.void_settings() for spec in specs]
    return [f"{path}: {why}." for path, why in by_run[0].items() if all(path in one for one in by_run)]


def rollouts_of(spec: RunSpec) -> int:
    """Most rollouts that a run generates for training: steps x agents x prompts x rollouts per prompt."""
    batch = spec.training.steps * len(spec.agents) * spec.training.train_batch_size * spec.num_generations
    return batch + extra_rollouts_of(spec)


def extra_rollouts_of(spec: RunSpec) -> int:
    """The most of them that dynamic sampling adds."""
    return spec.training.steps * len(spec.agents) * spec.rollout.max_extra_prompts * spec.num_generations


def _seconds_per_rollout(user: User, group: AgentGroup, benchmark: Benchmark, **like: Any) -> dict[str, list[float]]:
    """Of completed runs, by algorithm, with their evaluations and checkpoints."""
    completed = Run.objects.visible_to(user).filter(group=group, benchmark=benchmark, state=State.COMPLETED, **like)
    newest = completed.exclude(data_folder=GENERATED).order_by("-finished_at")[:MAX_MEASURED]
    by_algorithm: dict[str, list[float]] = {}
    for algorithm, progress in newest.values_list("algorithm", "progress"):
        seconds, rollouts = progress.get("elapsed_s") or 0, progress.get("rollouts_generated") or 0
        if seconds > 0 and rollouts > 0:
            by_algorithm.setdefault(algorithm, []).append(seconds / rollouts)
    return by_algorithm


def seconds_like(user: User, group: AgentGroup, benchmark: Benchmark, spec: RunSpec) -> float | None:
    """The time of a run by those that were measured with answers as long; None where there was none."""
    length = spec.rollout.max_completion_length
    paces = _seconds_per_rollout(user, group, benchmark, spec__rollout__max_completion_length=length)
    every = paces.get(spec.algorithm.name) or [pace for of_algorithm in paces.values() for pace in of_algorithm]
    return rollouts_of(spec) * median(every) if every else None


def _basis(paces: list[float], specs: Sequence[RunSpec], measured: set[str]) -> str:
    extra = " With all extra prompts; a step samples them only while prompts have no signal."
    if not any(map(extra_rollouts_of, specs)):
        extra = ""
    if not paces:
        return "No run of this group has completed on this benchmark yet, so nothing is known of the time." + extra
    unmeasured = {str(spec.algorithm.name) for spec in specs} - measured
    runs = "1 completed run" if len(paces) == 1 else f"{len(paces)} completed runs"
    text = f"Measured: {runs} of this group on this benchmark, {median(paces):.3g} s a rollout (median)."
    if unmeasured:
        text += f" Not measured yet, so the median of the others is used: {', '.join(sorted(unmeasured))}."
    return text + extra


def _checkpoint_bytes(user: User, group: AgentGroup, spec: RunSpec) -> int | None:
    """One checkpoint of the whole group: the size of the newest one, or an estimate from the number of parameters."""
    runs = Run.objects.visible_to(user).filter(group=group, spec__training__lora_rank=spec.training.lora_rank)
    runs = runs.exclude(data_folder=GENERATED)
    newest = runs.filter(state=State.COMPLETED).order_by("-finished_at").values("pk")[:1]
    saved = TelemetryEvent.objects.filter(run__in=newest, type="checkpoint").order_by("-seq")
    for payload in saved.values_list("payload", flat=True)[:1]:
        if isinstance(payload.get("size_bytes"), int):
            return int(payload["size_bytes"])
    total = 0
    for row, agent in zip(group.agents.select_related("model"), spec.agents, strict=True):
        if row.model.num_parameters is None:
            return None
        total += row.model.num_parameters * (BYTES_WITH_LORA if agent.lora_rank else BYTES_PER_PARAMETER)
    return total


def _num_kept(spec: RunSpec) -> int:
    """Checkpoints that stay after a run: the newest ones, and the best."""
    options, steps, interval = spec.checkpoint, spec.training.steps, spec.save_interval
    saved = ceil(steps / interval) if interval else min(1, steps)
    return min(saved, options.keep + options.keep_best)
