"""Whether a run fits the hosts that could train it, by what their heartbeats told of their memory.

The estimate itself is the contract's (workers/contract/memory.py). A run may be claimed by
any host, so it is refused only where it fits none of those that are known and alive.
"""

from __future__ import annotations

from collections.abc import Sequence

from hacrl_web.registry.models import Agent
from hacrl_web.runs.models import Host
from hacrl_web.runs.worker.hosts import SILENT_S
from hacrl_web.web.errors import FieldError
from workers.contract.memory import Machine, Shape, estimate_memory, shape_of, shortfall
from workers.contract.spec.run import RunSpec

FIELD = "compute.device"  # what a machine lacks is told beside its choice


def too_large(spec: RunSpec, agents: Sequence[Agent]) -> list[FieldError]:
    """An error where no host that is known has the memory, with what would fit on the largest of them."""
    shapes, machines = _shapes(agents), _machines(spec)
    if shapes is None or not machines or spec.compute.placement != "local":
        return []
    lacking = {name: shortfall(spec, shapes, machine) for name, machine in machines.items()}
    short = {name: shortage for name, shortage in lacking.items() if shortage is not None}
    if len(short) < len(lacking):
        return []
    name, shortage = max(short.items(), key=lambda item: item[1].there / item[1].needed)
    place = f"On host {name}: " if len(short) == 1 else f"On none of {len(short)} hosts; on {name}: "
    return [FieldError("does_not_fit", place + str(shortage), FIELD)]


def memory_needed(spec: RunSpec, agents: Sequence[Agent]) -> str:
    """The estimate in words, for the host that has most room; empty where nothing is known of models or hosts."""
    shapes, machines = _shapes(agents), _machines(spec)
    if shapes is None or not machines:
        return ""
    name, machine = max(machines.items(), key=lambda item: (max(item[1].gpus, default=0), item[1].memory))
    total = estimate_memory(spec, shapes, machine)
    needed, there, what = total.memory, machine.memory, "memory"
    if machine.gpus:
        needed, there, what = total.gpu, min(machine.gpus), "a GPU"
        if needed > there and shortfall(spec, shapes, machine) is None:
            return f"more than {_gib(there)} of a GPU on {name}: batches are halved until they fit"
    return f"about {_gib(needed)} of {_gib(there)} ({what} on {name})"


def _shapes(agents: Sequence[Agent]) -> list[Shape] | None:
    """Of the agents' models as they were registered; None where one of them tells too little."""
    shapes = [shape_of(agent.model.facts.get("sizes") or {}, agent.model.num_parameters) for agent in agents]
    complete = [shape for shape in shapes if shape is not None]
    return complete if complete and len(complete) == len(shapes) else None


def _machines(spec: RunSpec) -> dict[str, Machine]:
    """What the run could use on each host that is alive and takes runs."""
    machines = {}
    for host in Host.objects.with_now():
        memory = [device for device in host.devices if device.get("kind") == "memory"]
        is_silent = host.silent_s is None or host.silent_s > SILENT_S
        if is_silent or host.is_drained or not memory:
            continue
        gpus = [device["total_bytes"] for device in host.devices if device.get("kind") == "gpu"]
        if spec.compute.device == "cuda" and not gpus:
            continue
        usable = tuple(gpus) if spec.compute.device != "cpu" else ()
        machines[host.name] = Machine(gpus=usable, memory=memory[0]["total_bytes"])
    return machines


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
