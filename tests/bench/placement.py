"""Seconds per HACPO step of the same run with its agents in one process (local) and each in its own (processes, ray).

`python -m tests.bench.placement [--agents 2] [--size 5M] [--steps 10] [--json FILE]`

One CPU thread an agent in both, on a machine with as many idle cores as agents. All runs are in memory at once and
take turns, a step each, so that other load meets both; wall seconds, for what is saved is waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

from tests.bench.models import SIZES, BenchVerifier, make_model, make_spec, write_questions
from tests.bench.timing import ratio, spread
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import split_questions
from workers.trainer import trainer
from workers.trainer.preflight import questions_that_fit
from workers.trainer.step import batch_of_step
from workers.trainer.step_events import step_events
from workers.trainer.stop_signals import StopFlag

APART = ("processes", "ray")
AIM = 0.75  # of local, with two agents on two idle cores


class Contestant:
    """One run, a step at a time, telemetry included."""

    def __init__(self, spec: RunSpec, run_dir: Path) -> None:
        run_dir.mkdir()
        self.spec, self.spool = spec, SpoolWriter(run_dir, 1)
        self.trainer = trainer.Trainer(spec, run_dir, self.spool, BenchVerifier(), StopFlag())  # type: ignore[arg-type]
        self.trainer.load()
        split = split_questions(spec.data)
        (self.questions,), _ = questions_that_fit(spec, self.trainer.agents, [split], self.trainer.log)

    def step(self) -> float:
        """Wall seconds of one step."""
        started = time.perf_counter()
        record = self.trainer.one_step(batch_of_step(self.spec, self.trainer.step, self.questions))
        self.spool.emit(*step_events(record, with_rollouts=True))
        return time.perf_counter() - started

    def close(self) -> None:
        self.trainer.close()
        self.spool.close()


def measure(agents: int, size: str, steps: int, root: Path) -> dict[str, list[float]]:
    """Wall seconds by step of each placement; the first step of each, which warms up, is left out."""
    folders = [root / str(index) for index in range(agents)]
    for seed, folder in enumerate(folders):
        make_model(folder, SIZES[size], seed)
    questions = write_questions(root / "questions.jsonl", SIZES[size])
    local = make_spec(folders, questions, SIZES[size], 1, name="hacpo")
    contestants: dict[str, Contestant] = {}
    for name in ("local", *APART):
        compute = local.compute.model_copy(update={"placement": name})
        contestants[name] = Contestant(local.model_copy(update={"compute": compute}), root / name)
    found: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for number in range(steps + 1):
            for name, contestant in contestants.items():
                seconds = contestant.step()
                print(f"step {number} {name}: {seconds:.3f} s", file=sys.stderr, flush=True)
                if number:
                    found[name].append(seconds)
    finally:
        for contestant in contestants.values():
            contestant.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--size", choices=SIZES, default="5M")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="the smallest size, two steps")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.size, options.steps = "0.1M", 2
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.agents, options.size, options.steps, Path(folder))
    told: dict[str, Any] = {name: spread(values) for name, values in found.items()}
    told |= {f"{name} / local": ratio(found[name], found["local"]) for name in APART}
    for name, (median, low, high) in told.items():
        print(f"{name:17} {median:.3f} ({low:.3f} to {high:.3f})")
    print(f"the aim with 2 agents on 2 idle cores is {AIM}")
    if options.json:
        options.json.write_text(json.dumps({"seconds": found, "cores": os.cpu_count(), **told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
