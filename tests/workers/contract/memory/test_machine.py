"""What the settings that a run leaves to the machine become: vLLM, GPUs of agents, gradient checkpointing."""

from __future__ import annotations

from typing import Any

import pytest

from workers.contract.memory.machine import Machine, chosen_engine, resolved_settings, with_settings
from workers.contract.spec.run import RunSpec

GIB = 2**30
CPU = Machine(memory=64 * GIB)
GPU = Machine(gpus=(24 * GIB,), memory=64 * GIB, has_vllm=True)


def spec_of(**sections: Any) -> RunSpec:
    agents = [{"name": name, "model": "m"} for name in "ab"]
    return RunSpec.model_validate({"agents": agents, "data": {"train_path": "q.jsonl"}, **sections})


def values(machine: Machine, parameters: int = 10**9, **sections: Any) -> tuple[Any, ...]:
    """(engine, agent_devices, gradient_checkpointing) there."""
    spec = spec_of(**sections)
    there = with_settings(spec, resolved_settings(spec, [parameters] * 2, machine))
    return there.rollout.engine, there.compute.agent_devices, there.compute.gradient_checkpointing


def test_settings_of_a_cpu_a_gpu_and_several():
    assert values(CPU) == ("transformers", "shared", False)
    assert values(GPU) == ("vllm", "shared", True)
    assert values(GPU.model_copy(update={"has_vllm": False})) == ("transformers", "shared", True)
    assert values(GPU.model_copy(update={"gpus": (24 * GIB,) * 2})) == ("vllm", "own", True)


def test_agents_work_at_the_same_time_where_each_has_a_gpu():
    def placement(machine: Machine, **compute: Any) -> str:
        spec = spec_of(compute=compute)
        return with_settings(spec, resolved_settings(spec, [10**9] * 2, machine)).compute.placement

    two = GPU.model_copy(update={"gpus": (24 * GIB,) * 2})
    assert [placement(machine) for machine in (CPU, GPU, two)] == ["local", "local", "processes"]
    assert placement(two, agent_devices="own") == "processes"
    assert placement(two, agent_devices="shared") == "local"
    assert placement(GPU, agent_devices="own") == "local"  # both would use the one GPU
    assert placement(two, processes_per_agent=2) == "local"
    assert placement(two, placement="local") == "local"
    assert placement(two, device="cuda", placement="ray") == "ray"


def test_vllm_needs_room_for_the_weights_and_one_process_of_each_agent():
    # .8 x .3 x 24 GiB = 5.76 GiB are 3.09e9 weights of two bytes
    assert values(GPU, 3_090_000_000)[0] == "vllm"
    assert values(GPU, 3_100_000_000)[0] == "transformers"
    two = GPU.model_copy(update={"gpus": (24 * GIB,) * 2})
    assert values(two, compute={"processes_per_agent": 2}) == ("transformers", "shared", True)
    assert values(two, compute={"placement": "ray"}) == ("transformers", "shared", True)
    assert values(GPU, training={"lora_rank": 512})[0] == "vllm"
    assert values(GPU, training={"lora_rank": 513})[0] == "transformers"  # more than vLLM takes


def test_engine_is_chosen_by_model_length_and_steps_with_the_reason():
    def choice(parameters: int, machine: Machine = GPU, **sections: Any) -> tuple[str, str]:
        return chosen_engine(spec_of(**sections), [10**8, parameters], machine)

    short, long = {"max_completion_length": 1024}, {"max_completion_length": 1025}
    assert choice(1_700_000_000, rollout=short)[0] == "transformers"
    assert choice(1_700_000_000, rollout=long)[0] == "vllm"
    assert choice(1_700_000_001, rollout=short)[0] == "vllm"
    assert choice(2 * 10**9, training={"steps": 10})[0] == "vllm"
    assert choice(2 * 10**9, training={"steps": 9}) == (
        "transformers",
        "the run has fewer than 10 steps, and vLLM's engines take minutes to start",
    )
    assert choice(2 * 10**9, CPU) == ("transformers", "the run has no GPU")
    without = GPU.model_copy(update={"has_vllm": False})
    assert choice(2 * 10**9, without)[1] == "vLLM is not installed in its build for GPUs"


def test_what_samples_ahead_is_not_vllm():
    assert values(GPU, rollout={"max_staleness": 1})[0] == "transformers"


def test_layers_that_cannot_be_recomputed_are_not():
    assert values(GPU.model_copy(update={"recomputes": False}))[2] is False


@pytest.mark.parametrize("machine", [CPU, GPU])
def test_a_choice_of_the_user_is_no_matter_of_the_machine(machine):
    compute = {"agent_devices": "own", "gradient_checkpointing": False, "placement": "local"}
    chosen = {"rollout": {"engine": "vllm"}, "compute": compute}
    assert resolved_settings(spec_of(**chosen), [10**9] * 2, machine) == {"rollout": {}, "compute": {}}
