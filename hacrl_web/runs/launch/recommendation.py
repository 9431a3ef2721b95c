"""The settings that suit a group, a benchmark and the largest live host: a preset of a machine, fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.models import Agent, Benchmark
from hacrl_web.runs.launch.fit.memory_fit import live_machines, shapes_of
from hacrl_web.runs.launch.presets import MACHINE_PRESETS, MachinePreset, preset_spec, presets
from workers.contract.memory.machine import Machine
from workers.contract.memory.plan import shortfall

TINY_PARAMETERS = 10_000_000  # models below learn with the demo's settings, not with those of pretrained ones
DEMO_LABEL = "The demo's settings"
CARD_SHARE = 0.85  # a 24 GB card reports about 22 GiB
PROMPT, COMPLETION = "rollout.max_prompt_length", "rollout.max_completion_length"
BATCH, MINI_BATCH = "training.train_batch_size", "training.mini_batch_size"


@dataclass(frozen=True)
class Recommendation:
    """Values by dotted path, the cautions that they confirm, and the reason in words."""

    label: str
    reason: str
    values: dict[str, Any]
    confirm: list[dict[str, str]]


def recommended(agents: Sequence[Agent], benchmark: Benchmark | None = None) -> Recommendation | None:
    """None without agents, and where no host has reported its devices or no preset fits."""
    machines = live_machines("auto")
    if not agents or not machines:
        return None
    name, machine = max(machines.items(), key=lambda item: (max(item[1].gpus, default=0), item[1].memory))
    row = _demo() if are_tiny(agents) else _fitting(agents, machine)
    if row is None:
        return None
    values, limits = _limited(row["values"], agents, benchmark)
    reason = f"For {len(agents)} agents on {name} ({_in_words(machine)}): “{row['label']}”"
    return Recommendation(row["label"], ", ".join([reason, *limits]) + ".", values, row["confirm"])


def are_tiny(agents: Sequence[Agent]) -> bool:
    return all(0 < (agent.model.num_parameters or 0) < TINY_PARAMETERS for agent in agents)


def _demo() -> dict[str, Any]:
    return next(row for row in presets() if row["label"].startswith(DEMO_LABEL))


def _fitting(agents: Sequence[Agent], machine: Machine) -> dict[str, Any] | None:
    """The preset of the largest machine that is no larger than this one and holds the agents."""
    shapes, values = shapes_of(agents), [agent_values(agent) for agent in agents]
    fitting = [
        preset
        for preset in MACHINE_PRESETS
        if _has(machine, preset) and (shapes is None or shortfall(preset_spec(preset, values), shapes, machine) is None)
    ]
    if not fitting:
        return None
    best = max(fitting, key=lambda preset: sum(preset.machine.gpus))
    return {"label": best.label, "values": best.values, "confirm": []}


def _has(machine: Machine, preset: MachinePreset) -> bool:
    """Whether the machine has the GPUs for which the preset is made; without GPUs, whether the preset needs none."""
    gpus = preset.machine.gpus
    if not gpus or not machine.gpus:
        return not gpus and not machine.gpus
    return len(machine.gpus) >= len(gpus) and min(machine.gpus) >= CARD_SHARE * gpus[0]


def _limited(
    values: dict[str, Any], agents: Sequence[Agent], benchmark: Benchmark | None
) -> tuple[dict[str, Any], list[str]]:
    """The values within the shortest context and the number of questions, and what was lowered, in words."""
    values, limits = dict(values), []
    context, total = shortest_context(agents), values[PROMPT] + values[COMPLETION]
    if context and total > context:
        values[PROMPT] = max(1, values[PROMPT] * context // total)
        values[COMPLETION] = max(1, context - values[PROMPT])
        limits.append(f"prompts and answers shortened to the models' {context} tokens")
    questions = benchmark.num_train if benchmark else 0
    if 0 < questions < values[BATCH]:
        values[BATCH] = 2 ** (questions.bit_length() - 1)
        values[MINI_BATCH] = min(values[MINI_BATCH], values[BATCH])
        if values[BATCH] % values[MINI_BATCH]:
            values[MINI_BATCH] = values[BATCH]
        limits.append(f"{values[BATCH]} prompts a step, for the benchmark has {questions} questions")
    return values, limits


def shortest_context(agents: Sequence[Agent]) -> int:
    """0 where no model has a known limit."""
    return min((agent.model.context_length for agent in agents if agent.model.context_length), default=0)


def _in_words(machine: Machine) -> str:
    if machine.gpus:
        return f"{len(machine.gpus)} x {min(machine.gpus) / 2**30:.0f} GiB GPU"
    return f"CPU, {machine.memory / 2**30:.0f} GiB"
