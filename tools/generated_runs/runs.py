"""Whole generated runs: their settings, their events in a trainer's order, and their rows.

A generated run says what it is: its name, reason, group and benchmark read "generated, not trained". It has no run
directory and is stored in its final state; one with more rows than a batch is a draft until it is complete.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from hacrl_web.runs.models import GENERATED, Run, State, StatusChange
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.runs.telemetry.tables import insert
from hacrl_web.runs.variants.grid import Variant
from tools.generated_runs.evaluations import FURTHER, NUM_SAMPLES, EvaluationSimulator
from tools.generated_runs.steps import Stepper
from tools.generated_runs.world import World
from workers.algorithms.registry import algorithms, own_settings
from workers.contract import events
from workers.contract.spec.run import RunSpec
from workers.trainer.step_events import step_events

NOT_TRAINED = "generated, not trained"
NAMESPACE = uuid.UUID("6d7f3c0e-5d0c-4a53-9b7e-2f1f6c2a9d11")
BATCH_ROWS = 10_000
PHASES = {"generate": 0.45, "verify": 0.03, "update": 0.5, "telemetry": 0.02}  # seconds of a step
ODD_END_EVERY = 20  # the last of so many runs does not complete
Timed = tuple[float, events.Body]  # seconds since the start of the run, event


@dataclass(frozen=True)
class Plan:
    """What is generated: how many runs of what size.

    variants: (algorithm, delta), taken in turn.  questions: of each benchmark, with all answers; 0: counts alone.
    """

    runs: int
    steps: int
    agents: int
    prompts: int
    generations: int
    rollout_interval: int
    seed: int
    variants: Sequence[tuple[str, float]]
    questions: int = 0

    @property
    def runs_per_sweep(self) -> int:
        """Three seeds of each variant."""
        return 3 * len(self.variants)

    def rows(self) -> int:
        """An estimate of the rows in all."""
        recorded = self.steps // self.rollout_interval if self.rollout_interval else 0
        total = 0
        for name, _ in self.variants:
            cls = algorithms()[name]
            sources = self.agents if cls.can_share else 1
            rollouts = self.prompts * self.generations * cls.rollouts_multiplier * self.agents
            total += self.steps * (self.agents * sources + 1) + recorded * rollouts * (1 + sources)
        return total * self.runs // len(self.variants)

    def spec(self, index: int, agents: Sequence[tuple[str, str]]) -> RunSpec:
        """The settings of run number `index`. agents: (name, folder). Error: pydantic.ValidationError."""
        algorithm, delta = self.variants[index % len(self.variants)]
        seed = self.seed + index // len(self.variants)
        settings = own_settings(algorithm, {"delta": delta})
        label = f"{algorithm} delta {delta:g}" if settings else algorithm
        benchmarks = [{"benchmark": name, "train_path": NOT_TRAINED} for name in FURTHER]
        answers = {"num_samples": NUM_SAMPLES, "temperature": 0.8, "benchmarks": benchmarks} if self.questions else {}
        return RunSpec.model_validate(
            {
                "name": f"{NOT_TRAINED}: {label} seed {seed}",
                "seed": seed,
                "agents": [{"name": name, "model": folder} for name, folder in agents],
                "data": {"benchmark": NOT_TRAINED, "train_path": NOT_TRAINED},
                "algorithm": {"name": algorithm, **settings},
                "rollout": {"num_generations": self.generations, "max_completion_length": 32},
                "training": {
                    "steps": self.steps,
                    "train_batch_size": self.prompts,
                    # Two mini-batches where possible, so that the lower bound is seen to move.
                    "mini_batch_size": self.prompts // (1 if self.prompts % 4 else 2),
                    "learning_rate": 4e-4,
                },
                "evaluation": {"eval_interval": max(1, self.steps // 20)} | answers,
                "telemetry": {"rollout_interval": self.rollout_interval, "rollout_steps_kept": 0},
            }
        )

    def run_id(self, index: int) -> uuid.UUID:
        """The id of a run, which plan and number decide, so that no run is generated twice."""
        return uuid.uuid5(NAMESPACE, f"{self} {index}")

    def end_of(self, index: int) -> tuple[str, int]:
        """State and number of steps of run number `index` at its end."""
        turn, rest = divmod(index + 1, ODD_END_EVERY)
        if rest or self.steps < 2:
            return State.COMPLETED, self.steps
        return (State.STOPPED, State.FAILED)[turn % 2], max(1, self.steps // 2)


def generated_events(plan: Plan, index: int, spec: RunSpec, last_step: int) -> Iterator[Timed]:
    """All events of a run in a trainer's order; the same for the same plan and number."""
    chance = random.Random(f"{plan.seed} {index} {spec.algorithm.name}")
    world = World(spec, chance)
    stepper, evaluator = Stepper(spec, world), EvaluationSimulator(spec, world, plan.questions, f"{plan.seed} {index}")
    elapsed_s, rollouts, tokens = 0.0, 0, 0
    total = spec.training.steps
    names = [agent.name for agent in spec.agents]
    yield 0.0, events.Started(step=0, total_steps=total, agents=names, device=NOT_TRAINED, versions={})
    text = f"The numbers of this run are {NOT_TRAINED}: ./hacrl seed_demo_data, seed {plan.seed}, run {index}."
    yield 0.0, events.Log(level="info", message=text, step=0)
    yield from ((0.0, event) for event in (*evaluator.question_events(), *evaluator.events(0)))
    interval = spec.telemetry.rollout_interval
    for step in range(1, last_step + 1):
        record = stepper.make(step)
        phases = {name: round(seconds * chance.uniform(0.8, 1.2), 4) for name, seconds in PHASES.items()}
        elapsed_s += sum(phases.values())
        responses = [response for own in record.generated for group in own.responses for response in group]
        rollouts, tokens = rollouts + len(responses), tokens + sum(response.num_tokens for response in responses)
        of_step = step_events(record, with_rollouts=bool(interval and step % interval == 0))
        if step == total or step % spec.evaluation.eval_interval == 0:
            of_step += evaluator.events(step)
        progress = events.Progress(
            step=step,
            total_steps=total,
            elapsed_s=elapsed_s,
            eta_s=elapsed_s / step * (total - step),
            rollouts_generated=rollouts,
            tokens_generated=tokens,
            phase_s=phases,
        )
        yield from ((elapsed_s, event) for event in (*of_step, progress))


def store_run(run: Run, timed_events: Iterable[Timed], state: str, finished: datetime | None = None) -> int:
    """Write a run and its events, a batch to a transaction; returns the number of rows."""
    finished = finished or timezone.now()
    began = finished.timestamp() - run.total_steps * sum(PHASES.values())
    batch: list[dict[str, Any]] = []
    run.state, run.reason = State.DRAFT, f"{NOT_TRAINED}: not complete yet"
    elapsed_s = 0.0
    for seq, (elapsed_s, event) in enumerate(timed_events, 1):
        if len(batch) == BATCH_ROWS:
            _store_batch(run, batch)
            batch = []
        record = event.model_dump(mode="json")
        if isinstance(event, events.Progress):
            run.step = event.step
            run.progress = {name: value for name, value in record.items() if name not in ("type", "eta_s")}
        batch.append({"seq": seq, "attempt": 1, "time": began + elapsed_s, **record})
    run.state, run.reason = state, NOT_TRAINED
    run.started_at = datetime.fromtimestamp(began, UTC)
    run.finished_at = datetime.fromtimestamp(began + elapsed_s, UTC)
    with transaction.atomic():
        _store_batch(run, batch)
        # save() has set created_at to now
        Run.objects.filter(pk=run.pk).update(created_at=run.started_at, score=score_of(run))
        StatusChange.objects.create(run=run, to_state=state, attempt=1, reason=NOT_TRAINED, at=run.finished_at)
    return run.last_seq


def _store_batch(run: Run, batch: list[dict[str, Any]]) -> None:
    with transaction.atomic():
        run.last_seq = batch[-1]["seq"]
        run.save()
        insert(run.pk, batch)


def new_run(plan: Plan, index: int, spec: RunSpec, **related: Any) -> Run:
    """The run, not stored yet. related: owner, project, sweep, group, benchmark."""
    algorithm, delta = plan.variants[index % len(plan.variants)]
    return Run(
        id=plan.run_id(index),
        name=spec.name,
        spec=spec.model_dump(mode="json"),
        algorithm=algorithm,
        variant=Variant(algorithm, point=own_settings(algorithm, {"delta": delta})).label,
        seed=spec.seed,
        attempt=1,
        data_folder=GENERATED,
        total_steps=spec.training.steps,
        **related,
    )
