"""Stopwatches of the bench: steps of our trainer with the time of each part, and medians with their spread."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.bench.models import BenchVerifier
from workers.agents import updates
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.model.optimizer import PolicyOptimizer
from workers.model.policy import Policy
from workers.questions.dataset import split_questions
from workers.rollouts import engine
from workers.trainer import step, trainer
from workers.trainer.preflight import questions_that_fit
from workers.trainer.step import batch_of_step
from workers.trainer.step_events import step_events
from workers.trainer.stop_signals import StopFlag

# What is not of these is the step's share outside the model.
MODEL_PARTS = ("generation", "forward", "backward")


@dataclass
class Timed:
    """One step: wall and processor seconds, seconds by part, and what was done in it."""

    wall_s: float
    cpu_s: float
    parts: dict[str, float] = field(default_factory=dict)
    tokens: int = 0  # generated
    rows: int = 0  # planned for training
    active: int = 0  # that were trained on
    updates: int = 0  # optimizer steps of all agents
    shared_characters: int = 0  # of text that went from one agent to another
    phases: dict[str, float] = field(default_factory=dict)  # processor seconds of the trainer's phases

    @property
    def outside(self) -> float:
        """Share of the step spent outside generation and the model's forward and backward passes."""
        return 1 - sum(self.parts.get(name, 0.0) for name in MODEL_PARTS) / self.wall_s


class Steps:
    """Our trainer, one timed step at a time: what Trainer.train does in its loop, telemetry included."""

    def __init__(self, spec: RunSpec, run_dir: Path) -> None:
        self.spec, self.verifier = spec, BenchVerifier()
        run_dir.mkdir()
        self.spool = SpoolWriter(run_dir, 1)
        self.trainer = trainer.Trainer(spec, run_dir, self.spool, self.verifier, StopFlag())  # type: ignore[arg-type]
        self.trainer.load()
        split = split_questions(spec.data)
        (self.questions,), _ = questions_that_fit(spec, self.trainer.agents, [split], self.trainer.log)
        self.parts: dict[str, float] = defaultdict(float)
        self.phases: dict[str, float] = defaultdict(float)

    def close(self) -> None:
        self.spool.close()

    def step(self, reward: Callable[[str, str], float]) -> Timed:
        self.verifier.reward = reward
        self.parts, self.phases = defaultdict(float), defaultdict(float)
        tokens = self.trainer.progress.tokens_generated
        with self._watched():
            wall, cpu = time.perf_counter(), time.process_time()
            self.trainer.progress.begin_step()
            record = self.trainer.one_step(batch_of_step(self.spec, self.trainer.step, self.questions))
            with self._part("telemetry"), self.trainer.progress.phase("telemetry"):
                self.spool.emit(*step_events(record, with_rollouts=True))
                self.trainer.progress.record_step(self.trainer.step)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        all_rows = [row for mini_batches in record.plan.mini_batches for rows in mini_batches for row in rows]
        results = [result for report in record.reports for found in report.results for result in found]
        return Timed(
            wall,
            cpu,
            dict(self.parts),
            self.trainer.progress.tokens_generated - tokens,
            len(results),
            sum(result.sequence_ratio is not None for result in results),
            sum(len(report.losses) for report in record.reports),
            sum(len(row.response.shared_text) for row in all_rows if row.response),
            dict(self.phases),
        )

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.parts[name] += time.perf_counter() - started

    @contextmanager
    def _phase(self, name: str, **_: Any) -> Iterator[None]:
        """In place of Trainer.phase: processor seconds, for other work on the machine bends wall time."""
        started = time.process_time()
        yield
        self.phases[name] += time.process_time() - started

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            with self._part(name):
                return function(*arguments, **more)

        return call

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Time the parts of a step. A forward pass within generation is in both `generation` and `sampling pass`."""
        is_sampling = False
        timed_sample = self._timed("generation", engine.sample)

        def sample(*arguments: Any, **more: Any) -> Any:
            nonlocal is_sampling
            is_sampling = True
            found = timed_sample(*arguments, **more)
            is_sampling = False
            return found

        handles = []
        for agent in self.trainer.agents:
            model, started = agent.policy.model, [0.0]  # type: ignore[attr-defined]

            def before(*_: Any, started: list[float] = started) -> None:
                started[0] = time.perf_counter()

            def after(*_: Any, started: list[float] = started) -> None:
                self.parts["sampling pass" if is_sampling else "forward"] += time.perf_counter() - started[0]

            handles += [model.register_forward_pre_hook(before), model.register_forward_hook(after)]
        rule = type(self.spec.algorithm)
        patches = [
            mock.patch.object(engine, "sample", sample),
            mock.patch.object(torch.Tensor, "backward", self._timed("backward", torch.Tensor.backward)),
            mock.patch.object(PolicyOptimizer, "step", self._timed("optimizer", PolicyOptimizer.step)),
            mock.patch.object(Policy, "encode_response", self._timed("tokenizer", Policy.encode_response)),
            mock.patch.object(Policy, "decode", self._timed("tokenizer", Policy.decode)),
            mock.patch.object(rule, "loss", self._timed("loss", rule.loss)),
            mock.patch.object(updates, "_fill_results", self._timed("row results", updates._fill_results)),
            mock.patch.object(step.LearnerRows, "mini_batches", self._timed("plan", step.LearnerRows.mini_batches)),
            mock.patch.object(self.trainer, "phase", self._phase),
            mock.patch.object(
                self.trainer.evaluations.scorer,
                "score_step",
                self._timed("verify", self.trainer.evaluations.scorer.score_step),
            ),
        ]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
            for handle in handles:
                handle.remove()


def tell(label: str, timed: Timed) -> None:
    """One step on the error output, as it comes: a long bench is seen to move, and a broken-off one is not lost."""
    outside = f", outside {timed.outside:.1%}" if timed.parts else ""
    print(f"{label}: {timed.wall_s:.3f} s, processor {timed.cpu_s:.3f} s{outside}", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the first and third quartile."""
    ordered = sorted(values)
    if len(ordered) < 2:
        return ordered[0], ordered[0], ordered[0]
    low, median, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return median, low, high


def ratio(ours: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Median and quartiles of pairwise ratios: both of a pair ran within the same seconds, so load cancels."""
    return spread([own / other for own, other in zip(ours, others, strict=True)])
