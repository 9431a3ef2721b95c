"""Presets of the new-run form: values that a choice fills in, for users to change.

Presets of a machine say what they need there with the agents of a group. LoRA is a setting of the run in them
(training.lora_rank), so that they can be launched with any group; an agent whose group gives it a rank keeps that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.registry.models import Agent
from hacrl_web.runs.launch.form import CAUTIONS, Confirmation
from hacrl_web.runs.launch.memory_fit import needed_in_words, shapes_of
from hacrl_web.runs.launch.plan import agent_values
from workers.algorithms.registry import algorithms
from workers.contract.demo_recipe import CONFIRM, demo_settings
from workers.contract.machine import Machine
from workers.contract.memory_plan import shortfall
from workers.contract.spec.algorithm import DEFAULT, RECOMMENDED, RECOMMENDED_PASSES
from workers.contract.spec.run import RunSpec

GIB = 2**30


@dataclass(frozen=True)
class MachinePreset:
    """Settings for a machine of this size."""

    label: str
    machine: Machine
    values: dict[str, Any]


@dataclass(frozen=True)
class PresetMemory:
    """What a preset needs with a group, in words."""

    label: str
    text: str
    fits: bool


# Every preset of a machine sets all of these, so that none of another preset stays.
_ANY_MACHINE: dict[str, Any] = {
    "training.micro_batch_size": 64,
    "training.tokens_per_micro_batch": 0,
    "training.num_iterations": 1,
    "training.learning_rate": 1e-6,
    "training.lora_rank": 0,
    "training.lora_learning_rate_factor": 10,
    "training.lr_schedule": "constant",
    "training.warmup_steps": 0,
    "training.adam_beta2": 0.999,
    "rollout.engine": "auto",
    "rollout.num_generations": 8,
    "rollout.temperature": 1.0,
    "rollout.rollout_batch_size": 512,
    "rollout.gpu_memory_utilization": 0.3,
    "algorithm.beta": 0,
    "evaluation.max_questions": 500,
    "evaluation.num_samples": 1,
    "evaluation.temperature": 0,
    "checkpoint.save_steps": "",
    "compute.device": "auto",
    "compute.dtype": "auto",
    "compute.placement": "auto",
    "compute.agent_devices": "auto",
    "compute.gradient_checkpointing": "auto",
    "compute.offload": "none",
    "compute.processes_per_agent": 1,
    "compute.sharding": "none",
}
# Sec. 4.1: what all runs of the paper have in common.
_PAPER: dict[str, Any] = {
    "training.steps": 58,
    "training.train_batch_size": 128,
    "training.mini_batch_size": 64,
    "training.num_iterations": 1,
    "training.learning_rate": 1e-6,
    "training.lora_rank": 0,
    "training.lr_schedule": "constant",
    "training.warmup_steps": 0,
    "training.adam_beta2": 0.999,
    "rollout.num_generations": 8,
    "rollout.temperature": 1.0,
    "rollout.max_prompt_length": 1024,
    "rollout.max_completion_length": 4096,
    "algorithm.epsilon": "",  # each algorithm's own, so that GRPO and GSPO can be compared
    "algorithm.epsilon_high": "",
    "algorithm.beta": 1e-3,
    "algorithm.capability_window": 5,
    "algorithm.cross_clip_gradient": "zero",
    "evaluation.eval_interval": 10,
}
MACHINE_PRESETS = (
    MachinePreset(
        "One 24 GB GPU, two models up to 1.5B",
        Machine(gpus=(24 * GIB,), memory=64 * GIB),
        _ANY_MACHINE
        | {
            "training.steps": 100,
            "training.train_batch_size": 32,
            "training.mini_batch_size": 16,
            "training.lora_rank": 16,
            "rollout.max_prompt_length": 512,
            "rollout.max_completion_length": 1024,
            "rollout.rollout_batch_size": 256,
            "evaluation.eval_interval": 20,
        },
    ),
    MachinePreset(
        "One 80 GB GPU, two models up to 4B",
        Machine(gpus=(80 * GIB,), memory=128 * GIB),
        _ANY_MACHINE
        | {
            "training.steps": 100,
            "training.train_batch_size": 64,
            "training.mini_batch_size": 32,
            "training.lora_rank": 32,
            "rollout.max_prompt_length": 1024,
            "rollout.max_completion_length": 2048,
            "evaluation.eval_interval": 20,
        },
    ),
    MachinePreset(
        "8 x 80 GB, the paper",
        Machine(gpus=(80 * GIB,) * 8, memory=1024 * GIB),
        _ANY_MACHINE
        | _PAPER
        | {
            # Eight of the paper's GPUs: four for each of two agents.
            "training.micro_batch_size": 4,
            "rollout.rollout_batch_size": 128,
            "compute.agent_devices": "own",
            "compute.gradient_checkpointing": "true",
            "compute.processes_per_agent": 4,
            "compute.sharding": "fsdp2",
        },
    ),
    MachinePreset(
        "Laptop CPU, SmolLM2",
        Machine(memory=16 * GIB),
        _ANY_MACHINE
        | {
            "training.steps": 30,
            "training.train_batch_size": 8,
            "training.mini_batch_size": 8,
            "training.micro_batch_size": 8,
            "training.learning_rate": 4e-5,  # of the pretrained demo, whose agents are of this size
            "training.lora_rank": 16,
            "rollout.temperature": 0.7,  # at 1.0 a model of this size rarely answers right
            "rollout.max_prompt_length": 256,
            "rollout.max_completion_length": 128,
            "rollout.rollout_batch_size": 64,
            "evaluation.eval_interval": 10,
            "evaluation.max_questions": 50,
            "compute.device": "cpu",
        },
    ),
)

# Pair, alpha, delta, delta_step. Table 5 prints the lower bound 1 - delta under "delta".
_PAIRS = (
    ("Qwen3-4B + Qwen3-4B-Instruct", 3.0, 0.2, 0.01),
    ("Qwen3-1.7B-Base + Qwen3-4B-Base", 1.0, 0.2, 0.025),
    ("Qwen3-4B-Base + Qwen3-8B-Base", 3.0, 0.2, 0.025),
    ("Llama3.2-1B-Instruct + Llama3.2-3B-Instruct", 1.0, 0.1, 0.01),
    ("Qwen3-1.7B-Base + Llama3.2-1B-Instruct", 1.0, 0.2, 0.025),
    ("Qwen3-4B-Base + Llama3.2-3B-Instruct", 1.0, 0.2, 0.025),
)


def presets() -> list[dict[str, Any]]:
    """Each preset: its label, {dotted field: value}, and the cautions that it confirms."""
    sections = demo_settings(DEFAULT)
    demo = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    del demo["algorithm.name"]  # chosen above the preset
    confirmations = [Confirmation(code, str(demo[CAUTIONS[code]])) for code in CONFIRM]
    boxes = [{"field": one.field, "value": one.value, "text": one.text} for one in confirmations]
    rows: list[dict[str, Any]] = [{"label": one.label, "values": one.values, "confirm": []} for one in MACHINE_PRESETS]
    rows.append({"label": "The demo's settings (small models on a CPU)", "values": demo, "confirm": boxes})
    shared = {"algorithm.name": RECOMMENDED, "training.num_iterations": RECOMMENDED_PASSES}
    label = f"Our study's advice: {algorithms()[RECOMMENDED].label.lower()}, {RECOMMENDED_PASSES} passes over each step"
    rows.append({"label": label, "values": shared, "confirm": []})
    for pair, alpha, delta, delta_step in _PAIRS:
        own = {"algorithm.alpha": alpha, "algorithm.delta": delta, "algorithm.delta_step": delta_step}
        rows.append({"label": f"Paper: {pair}", "values": {**_PAPER, **own}, "confirm": []})
    return rows


def memory_of_presets(agents: Sequence[Agent]) -> list[PresetMemory]:
    """What each preset of a machine needs there with these agents; none where the size of a model is unknown."""
    shapes = shapes_of(agents)
    if shapes is None:
        return []
    rows = []
    for preset in MACHINE_PRESETS:
        spec = preset_spec(preset, [agent_values(agent) for agent in agents])
        lacking = shortfall(spec, shapes, preset.machine)
        text = needed_in_words(spec, shapes, preset.machine) if lacking is None else str(lacking)
        rows.append(PresetMemory(preset.label, text, lacking is None))
    return rows


def preset_spec(preset: MachinePreset, agents: Sequence[dict[str, Any]]) -> RunSpec:
    """The run that a preset describes. agents: as AgentSpec takes them."""
    sections: dict[str, Any] = {}
    for path, value in preset.values.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return RunSpec.model_validate({"agents": list(agents), "data": {"train_path": "-"}, **sections})
