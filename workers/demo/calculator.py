"""A tiny pair that calls a calculator: `python -m workers.demo.calculator OUT_DIR [--seed N] [--steps N]`.

The demo's agents and questions, with workings of two turns: a call for the first operation, and after its answer the
second one. Which operation comes first is what they half know, and what training with `rollout.environment: calculator`
teaches. It prints the settings of such a run, for `python -m workers`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import AGENTS, BENCHMARK_NAME, HELD_OUT_FILE, SEED, TRAIN_FILE, demo_settings
from workers.contract.spec.run import RunSpec
from workers.demo.make import WARM_STARTS
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import CALL_PIECES, STEPS, train_agent


def make_calculator_pair(folder: Path, seed: int = SEED, steps: int = STEPS) -> None:
    """Write the two models and the questions; steps: of each agent's warm start."""
    folder.mkdir(parents=True, exist_ok=True)
    write_questions(folder, *make_problems(seed))
    for name, agent in WARM_STARTS.items():
        caller = replace(agent, pieces=(*CALL_PIECES, *agent.pieces), uses_calculator=True)
        train_agent(caller, folder / name, seed, steps)


def calculator_spec(folder: Path, algorithm: str = "hacpo", **changes: dict[str, Any]) -> RunSpec:
    """The demo's settings with the calculator. changes: by section."""
    sections = demo_settings(algorithm)
    sections["rollout"] |= {
        "environment": "calculator",
        "environment_instructions": False,  # the tokenizers know no letters
        "max_turns": 3,
        "max_observation_length": 6,
        "max_completion_length": 40,
    }
    for name, section in changes.items():
        sections[name] = sections.get(name, {}) | section
    return RunSpec.model_validate(
        {
            "name": "calculator",
            "agents": [{"name": name, "model": str(folder / agent)} for agent, name in AGENTS.items()],
            "data": {
                "benchmark": BENCHMARK_NAME,
                "train_path": str(folder / TRAIN_FILE),
                "eval_path": str(folder / HELD_OUT_FILE),
            },
            **sections,
        }
    )


def main(arguments: list[str] | None = None) -> int:
    """Make the pair, and print a run's settings."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.demo.calculator", description="Make a tiny pair that calls a calculator."
    )
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps of each agent (default %(default)s)")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    make_calculator_pair(folder, options.seed, options.steps)
    print(json.dumps(calculator_spec(folder).model_dump(mode="json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
