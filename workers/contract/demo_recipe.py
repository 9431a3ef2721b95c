"""The demo's numbers: names, files and settings that the web side and the trainer side share. No torch, no Django.

The two agents and their questions are made by `workers.demo.make`. The settings were measured; the table is in
docs/LOG.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECIPE_VERSION = 1
SEED = 0
ALGORITHMS = ("gspo", "gspox2", "hacpo")
ENGINES = ("transformers", "vllm")
# delta .8 is meant: see the delta trap in docs/LOG.md. A launch request confirms it by this code.
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
# Folder of each agent in the cache, and its name in charts.
AGENTS = {"qwen3": "Qwen3 100k", "llama": "Llama 250k"}


def is_of_demo(spec: Mapping[str, Any]) -> bool:
    """Whether the agents of a run's spec are those that the demo makes, whatever else the run is."""
    return {agent["name"] for agent in spec["agents"]} == set(AGENTS.values())


def demo_settings(algorithm: str, engine: str = ENGINES[0]) -> dict[str, dict[str, Any]]:
    """The RunSpec sections of a demo run that differ from the defaults: one of ALGORITHMS, one of ENGINES."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"the demo runs {', '.join(ALGORITHMS)}, not {algorithm!r}")
    return {
        "algorithm": {"name": algorithm, "delta": 0.8, "delta_step": 0.025, "alpha": 1.0, "beta": 0.0},
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
            # One mini-batch per own block: GSPO makes 1 update a step, HACPO (own, cross) and GSPOx2 (halves) make 2.
            "mini_batch_size": 24,
            "micro_batch_size": 192,
            "learning_rate": 4e-4,
            "lr_schedule": "linear",
            "warmup_steps": 3,
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
        },
        "evaluation": {"eval_interval": 10, "temperature": 0.0},
        # Often enough to kill the worker and watch the run go on where it was.
        "checkpoint": {"save_steps": 5},
        # One thread: models of this size gain nothing from two, and the web needs the other core. A vLLM that was
        # built for GPUs runs on nothing else.
        "compute": {"device": "cpu" if engine == "transformers" else "auto", "dtype": "float32", "num_threads": 1},
    }
