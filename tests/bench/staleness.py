"""Wall seconds of a step where the next step's rollouts are sampled beside it, against one after the other.

`python -m tests.bench.staleness [--sizes 5M,long] [--steps 4] [--repeats 5] [--nice 0] [--pause 0]`

One agent that learns and its sampler (rollout.max_staleness 1), each a process of one thread, where two cores are idle;
the same run with 0 takes turns with it, a block of steps each. A block begins with its first rollouts complete
and ends when those that its last step began are, so it holds as many samplings as updates. The best that overlap can
do is the longer of the learner's and the sampler's processor time over their sum with 0.
On a busy machine --nice -15 gives the blocks priority, and --pause leaves the others time between them; where Linux
schedules by session (/proc/sys/kernel/sched_autogroup_enabled), its number in /proc/self/autogroup counts first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import psutil

from tests.bench.models import SIZES, BenchVerifier, make_model, make_spec, write_questions
from tests.bench.timing import ratio, spread
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import split_questions
from workers.trainer import trainer
from workers.trainer.drawing import PromptDraw
from workers.trainer.preflight import questions_that_fit
from workers.trainer.step import batch_of_step
from workers.trainer.step_events import step_events
from workers.trainer.stop_signals import StopFlag

SHAPES = {name: SIZES[name] for name in ("0.1M", "5M")}
SHAPES["long"] = replace(SIZES["5M"], tokens=128)


class Contestant:
    """A run of one agent, a block of steps at a time."""

    def __init__(self, staleness: int, model: Path, questions: Path, shape: str, run_dir: Path) -> None:
        spec = make_spec([model], questions, SHAPES[shape], 1, name="gspo")
        rollout = spec.rollout.model_copy(update={"max_staleness": staleness})
        self.spec = spec.model_copy(update={"rollout": rollout})
        run_dir.mkdir()
        self.spool = SpoolWriter(run_dir, 1)
        verifier: Any = BenchVerifier()
        self.trainer = trainer.Trainer(self.spec, run_dir, self.spool, verifier, StopFlag())
        self.trainer.load()
        split = split_questions(self.spec.data)
        (self.questions,), _ = questions_that_fit(self.spec, self.trainer.agents, [split], self.trainer.log)
        self.trainer.prompts = PromptDraw(self.spec, [self.questions])

    def processes(self) -> list[psutil.Process]:
        """The learner's, and the sampler's if there is one."""
        return [psutil.Process(), *(psutil.Process(pid) for pid in self._sampler_pids())]

    def _sampler_pids(self) -> list[int]:
        samplers = [agent._sampler for agent in self.trainer.agents]  # type: ignore[attr-defined]
        return [process.pid for sampler in samplers if sampler for process in sampler._process._processes]

    def block(self, steps: int, nice: int) -> tuple[float, list[float]]:
        """Wall seconds of a step, and processor seconds of a step by process."""
        processes = self.processes()
        for process in processes:
            process.nice(nice)
        before, started = [_cpu(process) for process in processes], time.perf_counter()
        for _ in range(steps):
            batch = batch_of_step(self.spec, self.trainer.step, self.questions)
            record = self.trainer.one_step(batch, self.trainer.next_questions())
            self.spool.emit(*step_events(record, with_rollouts=True))
        for agent in self.trainer.agents:
            if sampler := agent._sampler:  # type: ignore[attr-defined]
                sampler.oldest()
        wall = time.perf_counter() - started
        cpu = [(_cpu(process) - start) / steps for process, start in zip(processes, before, strict=True)]
        for process in processes:
            process.nice(max(0, nice))
        return wall / steps, cpu

    def close(self) -> None:
        self.trainer.close()
        self.spool.close()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(shape: str, options: argparse.Namespace, root: Path) -> str:
    """One line of figures."""
    model, questions = root / "model", root / "questions.jsonl"
    make_model(model, SHAPES[shape], seed=0)
    write_questions(questions, SHAPES[shape])
    runs = [Contestant(staleness, model, questions, shape, root / str(staleness)) for staleness in (0, 1)]
    walls: list[list[float]] = [[], []]
    cpus: list[list[list[float]]] = [[], []]
    try:
        for number in range(options.repeats + 1):
            for run, wall, cpu in zip(runs, walls, cpus, strict=True):
                time.sleep(options.pause)
                seconds, of_processes = run.block(options.steps, options.nice)
                print(f"block {number}: {seconds:.3f} s, {of_processes}", file=sys.stderr, flush=True)
                if number:  # the first warms up
                    wall.append(seconds)
                    cpu.append(of_processes)
    finally:
        for run in runs:
            run.close()
    whole = spread([one[0] for one in cpus[0]])[0]
    learner, sampler = (spread([one[place] for one in cpus[1]])[0] for place in (0, 1))
    median, low, high = ratio(walls[1], walls[0])
    return (
        f"{shape}: 1 / 0 {median:.2f} ({low:.2f} to {high:.2f}) of the wall time; {spread(walls[0])[0]:.2f} and "
        f"{spread(walls[1])[0]:.2f} s a step; processor {whole:.2f} s with 0, {learner:.2f} s of the learner and "
        f"{sampler:.2f} s of the sampler with 1, so at best {max(learner, sampler) / whole:.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="5M,long")
    parser.add_argument("--steps", type=int, default=4, help="of a block")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--nice", type=int, default=0, help="of the measured processes; below 0 needs the right to it")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between blocks")
    parser.add_argument("--smoke", action="store_true", help="the smallest size, one block each")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.sizes, options.steps, options.repeats = "0.1M", 1, 1
    for shape in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(measure(shape, options, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
