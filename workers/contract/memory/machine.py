"""A machine that trains, and what the settings that a run leaves to it become there.

Nothing of a run depends on the machine but these settings and its batches. The trainer decides them once, before the
first step; its checkpoints keep them, so that a resumed run has the same ones elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from workers.contract.spec.rollout import VLLM_LORA_RANKS
from workers.contract.spec.run import RunSpec

VLLM_WEIGHTS_SHARE = 0.8  # most of vLLM's memory that weights may take: the rest is its cache
ResolvedSettings = dict[str, dict[str, Any]]  # settings by section


class FrozenModel(BaseModel):
    """An immutable value."""

    model_config = ConfigDict(frozen=True)


class Machine(FrozenModel):
    """What a run can use there: memory of each GPU (no GPU: it trains on the CPU), and the machine's own.

    has_vllm: vLLM built for GPUs is installed.  recomputes: gradient checkpointing knows the layers of every model.
    """

    gpus: tuple[int, ...] = ()
    memory: int
    has_vllm: bool = False
    recomputes: bool = True


def resolved_settings(spec: RunSpec, parameters: Sequence[int], machine: Machine) -> ResolvedSettings:
    """The settings that the spec leaves to the machine, as they are there. parameters: weights of each agent's model.

    On Ray the agents may be on other machines: each then has the GPUs that Ray gives it, and the trainer's own engine.
    """
    compute, rollout, gpus = spec.compute, spec.rollout, len(machine.gpus)
    is_here = compute.placement != "ray"
    has_own_gpus = gpus >= len(spec.agents) * compute.processes_per_agent
    values: ResolvedSettings = {"rollout": {}, "compute": {}}
    if rollout.engine == "auto":
        width = 4 if compute.dtype == "float32" else 2
        room = VLLM_WEIGHTS_SHARE * rollout.gpu_memory_utilization * min(machine.gpus, default=0)
        fits = width * max(parameters, default=0) <= room
        takes_lora = all(agent.lora_rank <= VLLM_LORA_RANKS[-1] for agent in spec.agents)
        suits_run = compute.processes_per_agent == 1 and fits and takes_lora and not rollout.samples_ahead
        uses_vllm = is_here and gpus > 0 and machine.has_vllm and suits_run
        values["rollout"]["engine"] = "vllm" if uses_vllm else "transformers"
    if compute.agent_devices == "auto":
        values["compute"]["agent_devices"] = "own" if is_here and has_own_gpus else "shared"
    if compute.placement == "auto":
        is_apart = has_own_gpus and "shared" not in (compute.agent_devices, values["compute"].get("agent_devices"))
        values["compute"]["placement"] = "processes" if is_apart and len(spec.agents) > 1 else "local"
    if compute.gradient_checkpointing is None:
        values["compute"]["gradient_checkpointing"] = gpus > 0 and machine.recomputes
    return values


def with_settings(spec: RunSpec, values: Mapping[str, Mapping[str, Any]]) -> RunSpec:
    """The spec with these settings, by section."""
    sections = {name: getattr(spec, name).model_copy(update=dict(own)) for name, own in values.items()}
    return spec.model_copy(update=sections)
