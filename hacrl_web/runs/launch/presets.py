"""Presets: values that a choice fills in. The form shows them for users to change; launch requests name one.

Presets of a machine say what they need there with the agents of a group. LoRA is a setting of the run in them
(training.lora_rank), so that they can be launched with any group; an agent whose group gives it a rank keeps that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.text import slugify

from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.models import Agent
from hacrl_web.runs.launch.controls import CAUTIONS, Confirmation
from hacrl_web.runs.launch.fit.memory_fit import needed_in_words, shapes_of
from hacrl_web.runs.variants.grid import ablations
from hacrl_web.web.errors import FieldError
from workers.algorithms.registry import algorithms, own_settings
from workers.contract.demo_recipe import CONFIRM, demo_settings
from workers.contract.memory.machine import Machine
from workers.contract.memory.plan import shortfall
from workers.contract.spec.algorithm import DEFAULT, RECOMMENDED, RECOMMENDED_PASSES
from workers.contract.spec.run import RunSpec

GIB = 2**30
KEY = "preset"  # of a launch request
OF_FORM = {"": None, "true": True}  # texts of the form's fields as values


@dataclass(frozen=True)
class MachinePreset:
    """Settings for a machine of this size."""

    name: str
    label: str
    machine: Machine
    values: dict[str, Any]


@dataclass(frozen=True)
class PresetMemory:
    """What a preset needs with a group, in words."""

    name: str
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
        "gpu-24gb",
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
        "gpu-80gb",
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
        "paper-8x80gb",
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
        "laptop",
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
    """Each preset: its name and label, {dotted field: value}, and the cautions that it confirms."""
    sections = demo_settings(DEFAULT)
    demo = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    del demo["algorithm.name"]  # chosen above the preset
    rows = [_row(one.name, one.label, one.values) for one in MACHINE_PRESETS]
    rows.append(_row("demo", "The demo's settings (small models on a CPU)", demo, CONFIRM))
    shared = {"algorithm.name": RECOMMENDED, "training.num_iterations": RECOMMENDED_PASSES}
    label = f"Our study's advice: {algorithms()[RECOMMENDED].label.lower()}, {RECOMMENDED_PASSES} passes over each step"
    rows.append(_row("study", label, shared))
    for pair, alpha, delta, delta_step in _PAIRS:
        own = {"algorithm.alpha": alpha, "algorithm.delta": delta, "algorithm.delta_step": delta_step}
        rows.append(_row(f"paper-{slugify(pair.replace('.', '-'))}", f"Paper: {pair}", {**_PAPER, **own}))
    return rows


def _row(name: str, label: str, values: dict[str, Any], codes: Iterable[str] = ()) -> dict[str, Any]:
    confirmations = [Confirmation(code, str(values[CAUTIONS[code]])) for code in codes]
    boxes = [{"field": one.field, "value": one.value, "text": one.text} for one in confirmations]
    return {"name": name, "label": label, "values": values, "confirm": boxes, "codes": list(codes)}


def with_preset(request: Mapping[str, Any], errors: list[FieldError], *, is_sweep: bool = False) -> dict[str, Any]:
    """A launch request with the settings of the preset that it names, wherever it has none of its own.

    It confirms the cautions of the preset's values that it keeps. Errors are added to `errors`.
    """
    own = {key: value for key, value in request.items() if key != KEY}
    if KEY not in request:
        return own
    offered = {row["name"]: row for row in presets()}
    name = request[KEY]
    if not isinstance(name, str) or name not in offered:
        errors.append(FieldError("not_found", f"There is no such preset. There are: {', '.join(offered)}.", KEY))
        return own
    row = offered[name]
    sections = sections_of(row["values"])
    algorithm = own.get("algorithm", {})
    own["algorithm"] = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    sections["algorithm"] = _of_algorithms(sections.get("algorithm", {}), own, is_sweep)
    codes = [code for code in row["codes"] if not _has(own, CAUTIONS[code])]
    confirm = own.get("confirm", [])
    if isinstance(confirm, list | tuple):
        own["confirm"] = [*confirm, *codes]
    for section, values in sections.items():
        mine = own.get(section, {})
        own[section] = {**values, **mine} if isinstance(mine, Mapping) else mine
    return own


def _of_algorithms(values: dict[str, Any], request: Mapping[str, Any], is_sweep: bool) -> dict[str, Any]:
    """Of a preset's settings of algorithms those that one of the request's algorithms has."""
    if not is_sweep:
        section = request["algorithm"]
        name = section.get("name", values.get("name", DEFAULT)) if isinstance(section, Mapping) else DEFAULT
        return own_settings(str(name), values)
    values = {key: value for key, value in values.items() if key != "name"}  # a sweep names its algorithms elsewhere
    names = [name for name in _list(request, "algorithms") if isinstance(name, str)]
    names += [ablations()[key][0] for key in _list(request, "ablations") if isinstance(key, str) and key in ablations()]
    used = {key for name in names for key in own_settings(name, values)}
    return {key: value for key, value in values.items() if key in used}


def _list(request: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = request.get(key)
    return value if isinstance(value, list | tuple) else ()


def _has(request: Mapping[str, Any], path: str) -> bool:
    section, _, name = path.partition(".")
    values = request.get(section)
    return isinstance(values, Mapping) and name in values


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
        rows.append(PresetMemory(preset.name, preset.label, text, lacking is None))
    return rows


def preset_spec(preset: MachinePreset, agents: Sequence[dict[str, Any]]) -> RunSpec:
    """The run that a preset describes. agents: as AgentSpec takes them."""
    sections = sections_of(preset.values)
    return RunSpec.model_validate({"agents": list(agents), "data": {"train_path": "-"}, **sections})


def sections_of(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Values by dotted path as the sections of a launch request."""
    sections: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = OF_FORM.get(value, value) if isinstance(value, str) else value
    return sections
