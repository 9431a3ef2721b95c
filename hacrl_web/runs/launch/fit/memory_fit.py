"""Whether a run fits the hosts that could train it, by the memory that their heartbeats report.

The estimate is in workers/contract/memory/footprint.py. Any host may claim a run: it is refused only if it fits none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hacrl_web.registry.models import Agent
from hacrl_web.runs.models import Host
from hacrl_web.web.errors import FieldError, RequestFix
from workers.contract.memory.footprint import Shape, estimate_memory, shape_of
from workers.contract.memory.machine import Machine
from workers.contract.memory.plan import fitted, shortfall
from workers.contract.spec.run import RunSpec


def too_large(spec: RunSpec, agents: Sequence[Agent]) -> list[FieldError]:
    """An error where no host has the memory, with what would fit on the largest of them."""
    shapes, machines = shapes_of(agents), live_machines(spec.compute.device)
    if shapes is None or not machines or spec.compute.placement == "ray":
        return []
    shortages = {}
    for name, machine in machines.items():
        if (shortage := shortfall(spec, shapes, machine)) is None:
            return []
        shortages[name] = shortage
    name, shortage = max(shortages.items(), key=lambda item: item[1].available / item[1].needed)
    place = f"On host {name}: " if len(shortages) == 1 else f"On none of {len(shortages)} hosts; on {name}: "
    fixes = tuple(RequestFix(str(fix), _request(fix.settings, agents)) for fix in shortage.fixes)
    return [FieldError("does_not_fit", place + str(shortage), "compute.device", fixes)]


def _request(settings: Mapping[str, Any], agents: Sequence[Agent]) -> dict[str, Any]:
    """Settings by dotted path as a launch request has them."""
    request: dict[str, Any] = {}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        if section == "agents":
            for agent in agents:
                request.setdefault(section, {}).setdefault(agent.name, {})[name] = value
        else:
            request.setdefault(section, {})[name] = value
    return request


def memory_needed(spec: RunSpec, agents: Sequence[Agent]) -> str:
    """The estimate in words, for the host with most memory; empty if models or hosts are unknown."""
    shapes, machines = shapes_of(agents), live_machines(spec.compute.device)
    if shapes is None or not machines:
        return ""
    name, machine = max(machines.items(), key=lambda item: (max(item[1].gpus, default=0), item[1].memory))
    return needed_in_words(spec, shapes, machine, f" on {name}")


def needed_in_words(spec: RunSpec, shapes: Sequence[Shape], machine: Machine, where: str = "") -> str:
    """The estimate on that machine in words, with batches as they are fitted to it."""
    total = estimate_memory(fitted(spec, shapes, machine), shapes, machine)
    needed, available, device = total.memory, machine.memory, "memory"
    if machine.gpus:
        needed, available, device = total.gpu, min(machine.gpus), "a GPU"
        if needed > available and shortfall(spec, shapes, machine) is None:
            return f"more than {_gib(available)} of a GPU{where}: batches are halved until they fit"
    return f"about {_gib(needed)} of {_gib(available)} ({device}{where})"


def shapes_of(agents: Sequence[Agent]) -> list[Shape] | None:
    """The shapes of the agents' models; None if the size of one is unknown."""
    shapes = [shape_of(agent.model.facts.get("sizes") or {}, agent.model.num_parameters) for agent in agents]
    complete = [shape for shape in shapes if shape is not None]
    return complete if complete and len(complete) == len(shapes) else None


def live_machines(device: str) -> dict[str, Machine]:
    """What a run could use on each live host that takes runs. device: auto, cpu or cuda."""
    machines = {}
    for host in Host.objects.with_now():
        memory = [device for device in host.devices if device.get("kind") == "memory"]
        if host.is_silent or host.is_drained or not memory:
            continue
        gpus = [device["total_bytes"] for device in host.devices if device.get("kind") == "gpu"]
        if device == "cuda" and not gpus:
            continue
        usable = tuple(gpus) if device != "cpu" else ()
        has_vllm = "vllm" in (host.versions or {})
        machines[host.name] = Machine(gpus=usable, memory=memory[0]["total_bytes"], has_vllm=has_vllm)
    return machines


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
