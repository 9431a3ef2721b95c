"""Presets of the new-run form: values that a choice fills in, for users to change."""

from __future__ import annotations

from typing import Any

from hacrl_web.runs.launch.form import CAUTIONS, Confirmation
from workers.algorithms.registry import algorithms
from workers.contract.demo_recipe import CONFIRM, demo_settings
from workers.contract.spec.algorithm import DEFAULT, RECOMMENDED, RECOMMENDED_PASSES

# Sec. 4.1: what all runs of the paper have in common.
_PAPER: dict[str, Any] = {
    "training.steps": 58,
    "training.train_batch_size": 128,
    "training.mini_batch_size": 64,
    "training.num_iterations": 1,
    "training.learning_rate": 1e-6,
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
    rows: list[dict[str, Any]] = [
        {"label": "The demo's settings (small models on a CPU)", "values": demo, "confirm": boxes}
    ]
    shared = {"algorithm.name": RECOMMENDED, "training.num_iterations": RECOMMENDED_PASSES}
    label = f"Our study's advice: {algorithms()[RECOMMENDED].label.lower()}, {RECOMMENDED_PASSES} passes over each step"
    rows.append({"label": label, "values": shared, "confirm": []})
    for pair, alpha, delta, delta_step in _PAIRS:
        own = {"algorithm.alpha": alpha, "algorithm.delta": delta, "algorithm.delta_step": delta_step}
        rows.append({"label": f"Paper: {pair}", "values": {**_PAPER, **own}, "confirm": []})
    return rows
