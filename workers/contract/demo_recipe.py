"""Part of the contract: names, files and settings of the demo. No torch, no Django.

`workers.demo.make` creates its two agents and their questions. docs/LOG.md has the measurements behind the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.algorithms.registry import own_settings
from workers.contract.spec.algorithm import RECOMMENDED

RECIPE_VERSION = 1
SEED = 0
ALGORITHMS = ("hacpo", RECOMMENDED, "naive_source", "gspo", "gspox2")
ALGORITHM_SETTINGS = {"delta": 0.8, "delta_step": 0.025, "alpha": 1.0, "beta": 0.0}
ENGINES = ("transformers", "vllm")
# Code by which a launch request confirms delta 0.8; see the delta trap in docs/LOG.md.
CONFIRM = ("delta_above_half",)

BENCHMARK_NAME = "Order of operations"
TRAIN_FILE = "train.jsonl"
HELD_OUT_FILE = "held_out.jsonl"
RECIPE_FILE = "recipe.json"
QUESTION_FIELD = "question"
ANSWER_FIELD = "answer"
SKILLS = {
    "multiply first": "a+b*c",
    "left to right": "a-b+c",
    "brackets of a sum": "a*(b+c)",
    "brackets of a difference": "(a-b)*c",
}
# By the agent's folder in the cache: its name in charts.
AGENTS = {"qwen3": "Qwen3 100k", "llama": "Llama 250k"}


def is_of_demo(spec: Mapping[str, Any]) -> bool:
    """Whether the agents of a run's spec are those of the demo."""
    return {agent["name"] for agent in spec["agents"]} == set(AGENTS.values())


def demo_settings(algorithm: str, engine: str = ENGINES[0]) -> dict[str, dict[str, Any]]:
    """The RunSpec sections of a demo run that differ from the defaults."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"the demo runs {', '.join(ALGORITHMS)}, not {algorithm!r}")
    return {
        "algorithm": {"name": algorithm, **own_settings(algorithm, ALGORITHM_SETTINGS)},
        "rollout": {
            "engine": engine,
            "num_generations": 8,
            "temperature": 1.0,
            "max_prompt_length": 16,
            "max_completion_length": 26,
        },
        "training": {
            "steps": 40,
            "train_batch_size": 24,
            # One mini-batch per block: GSPO has 1 update a step, sharing (own, cross) and GSPOx2 (halves) have 2.
            "mini_batch_size": 24,
            "micro_batch_size": 192,
            "learning_rate": 4e-4,
            "lr_schedule": "linear",
            "warmup_steps": 3,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
        },
        "evaluation": {"eval_interval": 10, "temperature": 0.0},
        "checkpoint": {"save_steps": 5},  # frequent, to show how a run resumes after its worker was killed
        # One thread: models of this size gain nothing from two, and the web needs the other core. vLLM built for GPUs
        # runs only on a GPU.
        "compute": {"device": "cpu" if engine == "transformers" else "auto", "dtype": "float32", "num_threads": 1},
    }
