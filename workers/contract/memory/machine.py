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
# Where the trainer's own graphed sampler is the better choice: docs/gpu.md measured 12 ms a token for 512 rows of 0.5
# billion weights, and for 0.1 billion .26 s a step where vLLM took .65; a pair's engines start in two minutes.
GRAPHED_PARAMETERS, GRAPHED_TOKENS, VLLM_STEPS = 1_700_000_000, 1024, 10
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
    compute, gpus = spec.compute, len(machine.gpus)
    is_here = compute.placement != "ray"
    has_own_gpus = gpus >= len(spec.agents) * compute.processes_per_agent
    values: ResolvedSettings = {"rollout": {}, "compute": {}}
    if spec.rollout.engine == "auto":
        values["rollout"]["engine"], _ = chosen_engine(spec, parameters, machine)
    if compute.agent_devices == "auto":
        values["compute"]["agent_devices"] = "own" if is_here and has_own_gpus else "shared"
    if compute.placement == "auto":
        is_apart = has_own_gpus and "shared" not in (compute.agent_devices, values["compute"].get("agent_devices"))
        values["compute"]["placement"] = "processes" if is_apart and len(spec.agents) > 1 else "local"
    if compute.gradient_checkpointing is None:
        values["compute"]["gradient_checkpointing"] = gpus > 0 and machine.recomputes
    return values


def chosen_engine(spec: RunSpec, parameters: Sequence[int], machine: Machine) -> tuple[str, str]:
    """What `rollout.engine: auto` is on that machine, and why, as the end of a sentence. parameters: as above."""
    compute, rollout, largest = spec.compute, spec.rollout, max(parameters, default=0)
    room = VLLM_WEIGHTS_SHARE * rollout.gpu_memory_utilization * min(machine.gpus, default=0)
    is_short = rollout.max_completion_length <= GRAPHED_TOKENS
    reasons = {
        "the run has no GPU": not machine.gpus,
        "agents on Ray sample by themselves": compute.placement == "ray",
        "vLLM is not installed in its build for GPUs": not machine.has_vllm,
        "an agent has several processes": compute.processes_per_agent > 1,
        "rollouts are sampled ahead": rollout.samples_ahead,
        f"vLLM takes LoRA matrices of rank {VLLM_LORA_RANKS[-1]} at most": any(
            agent.lora_rank > VLLM_LORA_RANKS[-1] for agent in spec.agents
        ),
        "the weights do not fit into rollout.gpu_memory_utilization": (4 if compute.dtype == "float32" else 2) * largest
        > room,
        f"the run has fewer than {VLLM_STEPS} steps, and vLLM's engines take minutes to start": spec.training.steps
        < VLLM_STEPS,
        f"no model has more than {GRAPHED_PARAMETERS / 1e9:g} billion weights and responses have at most "
        f"{GRAPHED_TOKENS:,} tokens": largest <= GRAPHED_PARAMETERS and is_short,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    return ("transformers", reason) if reason else ("vllm", "models or responses are large and the weights fit")


def with_settings(spec: RunSpec, values: Mapping[str, Mapping[str, Any]]) -> RunSpec:
    """The spec with these settings, by section."""
    sections = {name: getattr(spec, name).model_copy(update=dict(own)) for name, own in values.items()}
    return spec.model_copy(update=sections)
