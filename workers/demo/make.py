"""Makes the demo's two agents and their questions: `python -m workers.demo.make OUT_DIR [--seed N] [--steps N]`.

Two small models of different families, sizes and tokenizers (workers.demo.warm_start), each knowing the rules that the
other lacks. Deterministic by seed; both agents are trained at the same time, one thread each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import AGENTS, HELD_OUT_FILE, RECIPE_FILE, RECIPE_VERSION, SEED, TRAIN_FILE
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import DIGIT_PAIRS, STEPS, WarmStart, train_agent

# Complementary, so that each has something to teach.
WARM_STARTS = {
    "qwen3": WarmStart(
        "qwen3",
        right_share={
            "multiply first": 0.4,
            "left to right": 0.02,
            "brackets of a sum": 0.02,
            "brackets of a difference": 0.02,
        },
    ),
    "llama": WarmStart(
        "llama",
        pieces=DIGIT_PAIRS,
        right_share={
            "multiply first": 0.02,
            "left to right": 0.5,
            "brackets of a sum": 0.5,
            "brackets of a difference": 0.5,
        },
    ),
}


def _train_in_process(agent: str, folder: Path, seed: int, steps: int, done: Any) -> None:
    """What a child process runs: `done` is a shared counter of finished steps."""

    def report(step: int) -> None:
        done.value = step

    train_agent(WARM_STARTS[agent], folder, seed, steps, report)


def _train_both(folder: Path, seed: int, steps: int, say: Callable[[float], None]) -> None:
    """Each agent in a process of its own, at the same time. Error: RuntimeError where one of them fails."""
    context = multiprocessing.get_context("spawn")
    counters = [context.Value("i", 0) for _ in AGENTS]
    processes = [
        context.Process(target=_train_in_process, args=(agent, folder / agent, seed, steps, counter), daemon=True)
        for agent, counter in zip(AGENTS, counters, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        while any(process.is_alive() for process in processes):
            say(sum(counter.value for counter in counters) / (steps * len(counters)))
            next((process for process in processes if process.is_alive()), processes[0]).join(0.5)
            if any(process.exitcode for process in processes):
                break
        failed = [agent for agent, process in zip(AGENTS, processes, strict=True) if process.exitcode]
        if failed:
            raise RuntimeError(f"Training the demo's agent {failed[0]} failed; its error stands above.")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _identity(seed: int, steps: int) -> dict[str, Any]:
    return {"recipe_version": RECIPE_VERSION, "seed": seed, "steps": steps}


def is_valid(folder: Path, seed: int = SEED, steps: int = STEPS) -> bool:
    """Whether a folder holds what this recipe makes, undamaged."""
    try:
        recipe = json.loads((folder / RECIPE_FILE).read_text(encoding="utf-8"))
        if any(recipe.get(key) != value for key, value in _identity(seed, steps).items()):
            return False
        return all(_digest(folder / name) == digest for name, digest in recipe["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def make_demo(
    folder: Path, seed: int = SEED, steps: int = STEPS, say: Callable[[float], None] = lambda share: None
) -> bool:
    """Make the demo's models and questions in `folder`; False where a valid cache was there already.

    The folder appears whole or not at all: all is written beside it and renamed.
    """
    if is_valid(folder, seed, steps):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        folder_of_models = workshop / "made"
        folder_of_models.mkdir()
        write_questions(folder_of_models, *make_problems(seed))
        _train_both(folder_of_models, seed, steps, say)
        files = {
            str(path.relative_to(folder_of_models)): _digest(path)
            for path in sorted(folder_of_models.rglob("*"))
            if path.is_file()
        }
        recipe = {**_identity(seed, steps), "files": files}
        (folder_of_models / RECIPE_FILE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            os.rename(folder, workshop / "replaced")
        os.rename(folder_of_models, folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Make or find the demo's models and say how far it is on one line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.demo.make", description="Make the demo's models and questions."
    )
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps of each agent (default %(default)s)")
    parser.add_argument("--progress", action="store_true", help="also print a JSON line for each percent of the way")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    is_terminal = sys.stderr.isatty()
    percent = -1

    def say(share: float) -> None:
        nonlocal percent
        if options.progress and int(100 * share) > percent:
            percent = int(100 * share)
            print(json.dumps({"percent": percent}), flush=True)
        if is_terminal:
            print(
                f"\rteaching two small models: {share:4.0%} {time.monotonic() - begin:4.0f} s", end="", file=sys.stderr
            )

    folder = make_demo(options.folder, options.seed, options.steps, say)
    if is_terminal and folder:
        print(file=sys.stderr)
    result = {
        "folder": str(options.folder),
        "made": folder,
        "seconds": round(time.monotonic() - begin, 1),
        "models": {name: str(options.folder / agent) for agent, name in AGENTS.items()},
        "train": str(options.folder / TRAIN_FILE),
        "held_out": str(options.folder / HELD_OUT_FILE),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
