"""Whether a machine has the memory that a run needs, and settings with which the run fits.

A trainer that runs out of GPU memory halves its batches, so on a GPU batches of one sequence count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Any

from workers.contract.memory.footprint import Shape, estimate_memory
from workers.contract.memory.machine import FrozenModel, Machine, resolved_settings, with_settings
from workers.contract.spec.run import RunSpec

NUM_FIXES = 3
BUDGET_SHARE = 0.85  # of the memory that micro-batches may fill, for what the estimate does not know
MAX_TOKENS = 100_000_000
MAX_TOGETHER = 5  # most settings that a fix changes
LORA_RANK, FEW_ROLLOUTS, SHORT_RESPONSE = 16, 8, 1024


class Fix(FrozenModel):
    """A change of settings with which the run fits, in words; the settings, by dotted path; and the peak after it.

    The path `agents.NAME` is a setting of every agent.
    """

    change: str
    settings: dict[str, Any]
    peak: int

    def __str__(self) -> str:
        return f"{self.change} ({_gib(self.peak)})"


class Shortfall(FrozenModel):
    """A run that does not fit."""

    where: str  # "a GPU" or "this machine"
    needed: int
    available: int
    fixes: tuple[Fix, ...]

    def __str__(self) -> str:
        text = f"The run needs about {_gib(self.needed)} on {self.where}, which has {_gib(self.available)}."
        if not self.fixes:
            return text + " No setting helps: choose smaller models, or more or larger GPUs."
        return text + " Any of these fits: " + "; ".join(map(str, self.fixes)) + "."


def shortfall(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> Shortfall | None:
    """What a run lacks, with up to three changes after which it fits; None if it fits."""
    lacking = _lacking(spec, shapes, machine)
    if lacking is None:
        return None
    needed, available, is_gpu = lacking
    where, fixes = "a GPU" if is_gpu else "this machine", []
    for words, settings in islice(_changes(spec, shapes, machine), NUM_FIXES):
        total = estimate_memory(_least(_changed(spec, settings) or spec, machine), shapes, machine)
        fixes.append(Fix(change=words, settings=settings, peak=total.gpu if is_gpu else total.memory))
    return Shortfall(where=where, needed=needed, available=available, fixes=tuple(fixes))


def _lacking(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> tuple[int, int, bool] | None:
    """Bytes needed, bytes available, whether of a GPU; None if the run fits."""
    total = estimate_memory(_least(spec, machine), shapes, machine)
    if machine.gpus and total.gpu > min(machine.gpus):
        return total.gpu, min(machine.gpus), True
    return (total.memory, machine.memory, False) if total.memory > machine.memory else None


def _least(spec: RunSpec, machine: Machine) -> RunSpec:
    """The spec with the smallest batches to which the trainer goes by itself."""
    settings: dict[str, Any] = {"rollout.rollout_batch_size": 1}
    if not spec.training.tokens_per_micro_batch or (machine.gpus and spec.compute.sharding == "none"):
        settings["training.micro_batch_size"] = 1
    return _changed(spec, settings) or spec


def fitted(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> RunSpec:
    """The spec with batches that fit: tokens_per_micro_batch filled in, rollout_batch_size lowered.

    Where all fits, it stays as it is; a tokens_per_micro_batch of the user's own stays too.
    machine: the memory that the run may take.
    """

    def fits(settings: dict[str, Any]) -> bool:
        total = estimate_memory(_changed(spec, settings) or spec, shapes, machine)
        fits_gpu = not machine.gpus or total.gpu <= BUDGET_SHARE * min(machine.gpus)
        return fits_gpu and total.memory <= BUDGET_SHARE * machine.memory

    longest = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    tokens, rows = "training.tokens_per_micro_batch", "rollout.rollout_batch_size"
    settings: dict[str, Any] = {}
    # Passes and rollouts are at different times: each must fit beside the least of the other.
    batch = spec.rollout.rollout_batch_size
    while batch > 1 and not fits({"training.micro_batch_size": 1, rows: batch}):
        settings[rows] = batch = (batch + 1) // 2
    high = min(spec.training.micro_batch_size * longest, MAX_TOKENS)
    if not (spec.is_evaluation_only or spec.training.tokens_per_micro_batch or fits({rows: 1})):
        low = longest
        while high - low > longest // 8:  # low fits, or nothing does
            middle = (low + high) // 2
            low, high = (middle, high) if fits({tokens: middle, rows: 1}) else (low, middle)
        settings[tokens] = low
    return (_changed(spec, settings) or spec) if settings else spec


Change = tuple[str, dict[str, Any]]  # in words, and as settings by dotted path


def _changed(spec: RunSpec, settings: dict[str, Any]) -> RunSpec | None:
    """The spec with these settings changed; None if the rest excludes them."""
    values = spec.model_dump(mode="json")
    for path, value in settings.items():
        section, _, name = path.partition(".")
        for part in values["agents"] if section == "agents" else [values[section]]:
            part[name] = value
    try:
        return RunSpec.model_validate(values)
    except ValueError:
        return None


def _changes(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> Iterator[Change]:
    """Changes after which the run fits: those of one setting, cheapest first, then those of two, and so on."""
    there = resolved_settings(spec, [shape.parameters for shape in shapes], machine)
    single = list(_single_changes(with_settings(spec, there), machine))
    changes: list[dict[str, Any]] = []
    more: list[Change] = []
    for count in range(1, MAX_TOGETHER + 1):
        for some in combinations(single, count):
            settings = {path: value for _, each in some for path, value in each.items()}
            is_contradiction = len(settings) < sum(len(each) for _, each in some)
            changed = None if is_contradiction else _changed(spec, settings)
            if changed is None or _lacking(changed, shapes, machine) is not None:
                continue
            change = " and ".join(words for words, _ in some), settings
            if any(smaller.items() <= settings.items() for smaller in changes):  # a part of it is enough
                more.append(change)
                continue
            changes.append(settings)
            yield change
    yield from more


def _single_changes(spec: RunSpec, machine: Machine) -> Iterator[Change]:
    gpus, compute = len(machine.gpus), spec.compute
    is_halved = gpus > 0 and compute.sharding == "none"  # then the trainer makes batches smaller itself
    if spec.training.tokens_per_micro_batch and not is_halved:
        yield "tokens_per_micro_batch 0, which fits", {"training.tokens_per_micro_batch": 0}
    if spec.rollout.samples_ahead:
        yield "max_staleness 0", {"rollout.max_staleness": 0}
    if not compute.gradient_checkpointing:
        yield "gradient_checkpointing", {"compute.gradient_checkpointing": True}
    if gpus > 1 and compute.agent_devices == "shared":
        yield "agent_devices own", {"compute.agent_devices": "own"}
    for offload in ("optimizer", "idle", "both") if gpus and compute.sharding == "none" else ():
        yield f"offload {offload}", {"compute.offload": offload}
    for processes in (2, 4, 8):
        if processes <= gpus and (compute.sharding == "none" or compute.processes_per_agent < processes):
            more = {"compute.processes_per_agent": processes, "compute.sharding": "fsdp2", "compute.offload": "none"}
            few = {"training.micro_batch_size": 1, "rollout.rollout_batch_size": FEW_ROLLOUTS}  # shards are not halved
            yield f"sharding fsdp2, processes_per_agent {processes}, micro_batch_size 1", more | few
    if compute.dtype == "float32" or (compute.dtype == "auto" and not gpus):
        yield "dtype bfloat16", {"compute.dtype": "bfloat16"}
    if not spec.is_evaluation_only and not all(agent.lora_rank for agent in spec.agents):
        yield f"lora_rank {LORA_RANK} for every agent", {"agents.lora_rank": LORA_RANK}
    if spec.rollout.max_completion_length > SHORT_RESPONSE:
        yield f"max_completion_length {SHORT_RESPONSE}", {"rollout.max_completion_length": SHORT_RESPONSE}


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
