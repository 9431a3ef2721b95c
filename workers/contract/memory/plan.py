"""Part of the contract: whether a run fits a machine's memory, and what would make it fit. No torch, no Django.

Agents of `placement: local` take turns: what each holds at all times adds up, what it holds at its own moments does
not. A GPU that runs out halves its batches by itself (memory.py), so what counts there is one sequence at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Any

from pydantic import BaseModel, ConfigDict

from workers.contract.memory.footprint import Part, Shape, gpu_of, parts_of
from workers.contract.spec.run import RunSpec

# The CUDA context and the libraries' workspaces of one process on a GPU.
CUDA_CONTEXT_BYTES = 600 * 2**20
# Python, torch and its libraries in one process, before a model is loaded.
PROCESS_BYTES = 500 * 2**20
NUM_FIXES = 3
MAX_TOGETHER = 5  # settings that a fix changes at most
LORA_RANK, FEW_ROLLOUTS, SHORT_RESPONSE = 16, 8, 1024


class Machine(BaseModel):
    """What a run can use: the memory of each GPU (none: it trains on the processors), and the machine's own."""

    model_config = ConfigDict(frozen=True)
    gpus: tuple[int, ...] = ()
    memory: int


class MemoryEstimate(BaseModel):
    """Peaks of a whole run. gpu: of the fullest GPU, 0 without one.  memory: of the machine's own."""

    model_config = ConfigDict(frozen=True)
    gpu: int
    memory: int


class Fix(BaseModel):
    """A change after which the run fits, in words, and the peak that was too high as it is then."""

    model_config = ConfigDict(frozen=True)
    change: str
    peak: int


class Shortfall(BaseModel):
    """A run that does not fit."""

    model_config = ConfigDict(frozen=True)
    where: str  # "a GPU" or "this machine"
    needed: int
    there: int
    fixes: tuple[Fix, ...]

    def __str__(self) -> str:
        text = f"The run needs about {_gib(self.needed)} on {self.where}, which has {_gib(self.there)}."
        if not self.fixes:
            return text + " No setting helps: choose smaller models, or more and larger GPUs."
        return text + " Any of these fits: " + "; ".join(f"{fix.change} ({_gib(fix.peak)})" for fix in self.fixes) + "."


def estimate_memory(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> MemoryEstimate:
    """The memory of a run with these models, in the order of its agents, on that machine."""
    compute, gpus, size = spec.compute, len(machine.gpus), spec.compute.processes_per_agent
    gpu_bytes = min(machine.gpus, default=0)
    every = [
        parts_of(spec, agent, shape, on_gpu=gpus > 0, gpu_bytes=gpu_bytes)
        for agent, shape in zip(spec.agents, shapes, strict=True)
    ]
    is_parallel = compute.placement != "local"
    processes = PROCESS_BYTES * (1 + (len(every) * size if size > 1 else 0))
    if not gpus:
        return MemoryEstimate(gpu=0, memory=_peak([_all(parts, size) for parts in every], is_parallel) + processes)
    held: dict[int, list[list[Part]]] = {}
    for index, parts in enumerate(every):
        for rank in range(size):
            held.setdefault(gpu_of(compute, index, rank, gpus), []).append([p for p in parts if not p.is_host])
    contexts = {gpu: CUDA_CONTEXT_BYTES * (len(each) if size > 1 else 1) for gpu, each in held.items()}
    on_host = [_all([part for part in parts if part.is_host], size) for parts in every]
    resting = sum(part.size for each in held.values() for parts in each for part in parts if part.moment == "always")
    rests = compute.offloads_idle
    return MemoryEstimate(
        gpu=max(_peak(each, is_parallel, rests=rests) + contexts[gpu] for gpu, each in held.items()),
        memory=_peak(on_host, is_parallel) + processes + (resting if rests else 0),
    )


def _all(parts: Sequence[Part], processes: int) -> list[Part]:
    """What all processes of an agent hold together."""
    return [part.model_copy(update={"size": part.size * processes}) for part in parts]


def _peak(held: Sequence[Sequence[Part]], is_parallel: bool, *, rests: bool = False) -> int:
    """The most that agents hold together in one place. rests: only the one whose turn it is holds anything."""
    always, moments = [], []
    for parts in held:
        sums: dict[str, int] = {}
        for part in parts:
            sums[part.moment] = sums.get(part.moment, 0) + part.size
        always.append(sums.pop("always", 0))
        moments.append(max(sums.values(), default=0))
    if is_parallel:
        return sum(always) + sum(moments)
    if rests:
        return max(a + m for a, m in zip(always, moments, strict=True))
    return sum(always) + max(moments, default=0)


def shortfall(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> Shortfall | None:
    """None where the run fits; else what it lacks and up to three changes that mend it."""
    lacking = _lacking(spec, shapes, machine)
    if lacking is None:
        return None
    needed, there, is_gpu = lacking
    fixes = []
    for words, settings in islice(_changes(spec, shapes, machine), NUM_FIXES):
        total = estimate_memory(_least(_changed(spec, settings) or spec, machine), shapes, machine)
        fixes.append(Fix(change=words, peak=total.gpu if is_gpu else total.memory))
    return Shortfall(where="a GPU" if is_gpu else "this machine", needed=needed, there=there, fixes=tuple(fixes))


def _lacking(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> tuple[int, int, bool] | None:
    """Needed, there, whether on a GPU; None where it fits."""
    total = estimate_memory(_least(spec, machine), shapes, machine)
    if machine.gpus and total.gpu > min(machine.gpus):
        return total.gpu, min(machine.gpus), True
    return (total.memory, machine.memory, False) if total.memory > machine.memory else None


def _least(spec: RunSpec, machine: Machine) -> RunSpec:
    """The spec with the batches that halving can come down to."""
    if not machine.gpus or spec.compute.sharding != "none":
        return spec
    return _changed(spec, {"training.micro_batch_size": 1, "rollout.rollout_batch_size": 1}) or spec


Change = tuple[str, dict[str, Any]]  # in words, and as settings by dotted path


def _changed(spec: RunSpec, settings: dict[str, Any]) -> RunSpec | None:
    """The spec with other settings; None where they do not go with the rest."""
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
    single = list(_single_changes(spec, machine))
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
            if any(smaller.items() <= settings.items() for smaller in changes):  # less would do
                more.append(change)
                continue
            changes.append(settings)
            yield change
    yield from more


def _single_changes(spec: RunSpec, machine: Machine) -> Iterator[Change]:
    gpus, compute = len(machine.gpus), spec.compute
    is_halved = _least(spec, machine) is not spec  # smaller batches come by themselves
    if spec.training.micro_batch_size > 1 and not is_halved:
        yield "micro_batch_size 1", {"training.micro_batch_size": 1}
    if spec.rollout.rollout_batch_size > FEW_ROLLOUTS and not is_halved:
        yield f"rollout_batch_size {FEW_ROLLOUTS}", {"rollout.rollout_batch_size": FEW_ROLLOUTS}
    if not compute.gradient_checkpointing:
        yield "gradient_checkpointing", {"compute.gradient_checkpointing": True}
    if gpus > 1 and compute.agent_devices == "shared":
        yield "agent_devices own", {"compute.agent_devices": "own"}
    for offload in ("optimizer", "idle", "both") if gpus and compute.sharding == "none" else ():
        yield f"offload {offload}", {"compute.offload": offload}
    for processes in (2, 4, 8):
        if processes <= gpus and (compute.sharding == "none" or compute.processes_per_agent < processes):
            more = {"compute.processes_per_agent": processes, "compute.sharding": "fsdp2", "compute.offload": "none"}
            few = {"training.micro_batch_size": 1, "rollout.rollout_batch_size": FEW_ROLLOUTS}  # not halved any more
            yield f"sharding fsdp2, processes_per_agent {processes}, micro_batch_size 1", more | few
    if compute.dtype == "float32" or (compute.dtype == "auto" and not gpus):
        yield "dtype bfloat16", {"compute.dtype": "bfloat16"}
    if not spec.is_evaluation_only and not all(agent.lora_rank for agent in spec.agents):
        yield f"lora_rank {LORA_RANK} for every agent", {"agents.lora_rank": LORA_RANK}
    if spec.rollout.max_completion_length > SHORT_RESPONSE:
        yield f"max_completion_length {SHORT_RESPONSE}", {"rollout.max_completion_length": SHORT_RESPONSE}


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
