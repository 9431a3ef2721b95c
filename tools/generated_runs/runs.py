"""From made-up steps to rows: whole generated runs, written by the same tables as the shipper's.

A generated run is plain data that says so: its name, reason, group and benchmark read "generated, not trained". It has
no run directory, and is stored in its end state; only one that is larger than a batch is a draft until it is complete.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from hacrl_web.runs.launch.variants import HACPO, Variant
from hacrl_web.runs.models import GENERATED, Run, State, StatusChange
from hacrl_web.runs.telemetry.tables import (
    ANSWERS,
    CONTRIBUTIONS,
    EVENTS,
    QUESTIONS,
    ROLLOUTS,
    TABLE_OF,
    Row,
    TelemetryTable,
)
from tools.generated_runs.answers import Examiner, section
from tools.generated_runs.metrics import Record, StepEvents
from tools.generated_runs.step import Stepper
from tools.generated_runs.world import NUM_QUESTIONS, SUBJECTS, World
from workers.contract.spec.run import RunSpec

NOT_TRAINED = "generated, not trained"
NAMESPACE = uuid.UUID("6d7f3c0e-5d0c-4a53-9b7e-2f1f6c2a9d11")
BATCH_ROWS = 10_000
RUNS_APART_S = 60.0
PHASES = {"generate": 0.45, "verify": 0.03, "update": 0.5, "telemetry": 0.02}  # seconds of a step
MINI_BATCHES = 2  # of a step's prompts, so that the lower bound is seen to move
HEAD = ("type", "seq", "attempt", "time", "agent", "source")
ENDS = (State.STOPPED, State.FAILED)
ODD_END_EVERY = 20  # runs: the last of so many did not complete


@dataclass(frozen=True)
class Plan:
    """What is asked of the generator: how many runs of what size.

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
        """About how many rows that makes."""
        pairs, per_agent = self.agents**2, self.prompts * self.generations
        recorded = self.steps // self.rollout_interval if self.rollout_interval else 0
        total = sum(
            self.steps * ((pairs if name == "hacpo" else self.agents) + 1)
            + recorded * per_agent * (2 if name == "gspox2" else 1) * self.agents
            + recorded * per_agent * (pairs if name == "hacpo" else self.agents * (2 if name == "gspox2" else 1))
            for name, _ in self.variants
        )
        return total * self.runs // len(self.variants)

    def spec(self, index: int, agents: Sequence[tuple[str, str]], benchmark: str) -> RunSpec:
        """Of run number `index`. agents: (name, folder). Error: pydantic.ValidationError."""
        algorithm, delta = self.variants[index % len(self.variants)]
        seed = self.seed + index // len(self.variants)
        told = f"{algorithm} delta {delta:g}" if algorithm == "hacpo" else algorithm
        mini_batch = self.prompts // MINI_BATCHES if self.prompts % (2 * MINI_BATCHES) == 0 else self.prompts
        return RunSpec.model_validate(
            {
                "name": f"{NOT_TRAINED}: {told} seed {seed}",
                "seed": seed,
                "agents": [{"name": name, "model": folder} for name, folder in agents],
                "data": {"benchmark": benchmark, "train_path": NOT_TRAINED},
                "algorithm": {"name": algorithm, "delta": delta},
                "rollout": {"num_generations": self.generations, "max_completion_length": 32},
                "training": {
                    "steps": self.steps,
                    "train_batch_size": self.prompts,
                    "mini_batch_size": mini_batch,
                    "learning_rate": 4e-4,
                },
                "evaluation": {"eval_interval": max(1, self.steps // 20)} | section(self.questions, NOT_TRAINED),
                "telemetry": {"rollout_interval": self.rollout_interval, "rollout_steps_kept": 0},
            }
        )


def run_id(plan: Plan, index: int) -> uuid.UUID:
    """The same for the same plan and number, so that nothing is generated twice."""
    return uuid.uuid5(NAMESPACE, f"{plan} {index}")


def records(plan: Plan, index: int, spec: RunSpec, last_step: int) -> Iterator[Record]:
    """All events of a run in the order of a trainer, without seq and time: `elapsed_s` is their time.

    The same for the same plan and number.
    """
    chance = random.Random(f"{plan.seed} {index} {spec.algorithm.name}")
    world = World(spec, chance)
    stepper, events = Stepper(spec, world), StepEvents(spec, chance)
    names = [agent.name for agent in spec.agents]
    elapsed_s, rollouts, tokens = 0.0, 0, 0
    begun = {"step": 0, "total_steps": spec.training.steps, "agents": names}
    yield {"type": "started", "elapsed_s": 0.0, **begun, "device": NOT_TRAINED, "versions": {}}
    text = f"The numbers of this run are {NOT_TRAINED}: ./hacrl seed_demo_data, seed {plan.seed}, run {index}."
    yield {"type": "log", "elapsed_s": 0.0, "level": "info", "message": text, "step": 0, "incident": None}
    exam = Examiner(spec, world, plan.questions, f"{plan.seed} {index}") if plan.questions else None
    yield from ({**record, "elapsed_s": 0.0} for record in (exam.question_records() if exam else ()))
    yield from _evaluations(world, spec, exam, 0, 0.0)
    interval = spec.telemetry.rollout_interval
    for step in range(1, last_step + 1):
        facts = stepper.make(step)
        phases = {name: round(usual * chance.uniform(0.8, 1.2), 4) for name, usual in PHASES.items()}
        elapsed_s += sum(phases.values())
        answers = [answer for own in facts.answers for group in own for answer in group]
        rollouts, tokens = rollouts + len(answers), tokens + sum(answer.num_tokens for answer in answers)
        for record in events.of(facts, with_rollouts=bool(interval and step % interval == 0)):
            record["elapsed_s"] = elapsed_s
            yield record
        if step == spec.training.steps or step % spec.evaluation.eval_interval == 0:
            yield from _evaluations(world, spec, exam, step, elapsed_s)
        yield {
            "type": "progress",
            "step": step,
            "total_steps": spec.training.steps,
            "elapsed_s": elapsed_s,
            "eta_s": elapsed_s / step * (spec.training.steps - step),
            "rollouts_generated": rollouts,
            "tokens_generated": tokens,
            "phase_s": phases,
        }


def _evaluations(world: World, spec: RunSpec, exam: Examiner | None, step: int, elapsed_s: float) -> Iterator[Record]:
    if exam is not None:
        yield from ({**record, "elapsed_s": elapsed_s} for record in exam.records(step))
        return
    for place, agent in enumerate(spec.agents):
        slices = world.evaluate(place)
        correct, asked = sum(right for right, _ in slices.values()), sum(of for _, of in slices.values())
        yield {
            "type": "evaluation",
            "elapsed_s": elapsed_s,
            "step": step,
            "agent": agent.name,
            "benchmark": spec.data.benchmark,
            "metric": "accuracy",
            "value": correct / asked,
            "correct": correct,
            "asked": asked,
            "slices": slices,
        }


@dataclass
class Pending:
    """A run on its way into the database."""

    run: Run
    is_stored: bool = False
    is_complete: bool = False


class Store:
    """Collects rows and writes them a batch to a transaction, whether a batch holds many runs or a part of one."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now or timezone.now()
        self.num_rows = 0
        tables = (EVENTS, ROLLOUTS, CONTRIBUTIONS, QUESTIONS, ANSWERS)
        self._rows: dict[TelemetryTable, list[Row]] = {table: [] for table in tables}
        self._waiting = 0
        self._pending: list[Pending] = []

    def add(self, run: Run, bodies: Iterator[Record], ends_as: str, age_s: float) -> None:
        """A whole run, which ended `age_s` ago; what is not yet written waits for `flush`."""
        pending = Pending(run)
        self._pending.append(pending)
        began, seq = self.now.timestamp() - age_s - run.total_steps * sum(PHASES.values()), 0
        elapsed_s = 0.0
        for seq, record in enumerate(bodies, 1):
            kind, elapsed_s = record["type"], record["elapsed_s"]
            record["seq"], record["attempt"], record["time"] = seq, 1, began + elapsed_s
            if kind not in TABLE_OF:
                record.setdefault("agent", "")
                record.setdefault("source", "")
            if kind == "progress":
                run.step = record["step"]
                run.progress = {key: value for key, value in record.items() if key not in HEAD}
            else:
                del record["elapsed_s"]
            table = TABLE_OF.get(kind, EVENTS)
            make = table.row if table in (QUESTIONS, ANSWERS) else table.plain_row  # their lists become texts
            self._rows[table].append(make(run.pk, record))
            self._waiting += 1
            run.last_seq = seq
            if self._waiting >= BATCH_ROWS:
                self.flush()
        run.started_at = datetime.fromtimestamp(began, self.now.tzinfo)
        run.finished_at = run.started_at + timedelta(seconds=elapsed_s)
        run.progress.pop("eta_s", None)
        run.state, run.reason = ends_as, NOT_TRAINED
        pending.is_complete = True

    def flush(self) -> None:
        new = [pending.run for pending in self._pending if not pending.is_stored]
        old = [pending.run for pending in self._pending if pending.is_stored]
        complete = [pending.run for pending in self._pending if pending.is_complete]
        columns = ["state", "reason", "started_at", "finished_at", "last_seq", "step", "progress"]
        with transaction.atomic():
            Run.objects.bulk_create(new)
            Run.objects.bulk_update(old, columns)
            for run in complete:  # bulk_create has just said that it was created now
                run.created_at = run.started_at
            Run.objects.bulk_update(complete, ["created_at"])
            StatusChange.objects.bulk_create(
                StatusChange(run=run, to_state=run.state, attempt=1, reason=NOT_TRAINED, at=run.finished_at)
                for run in complete
            )
            for table, rows in self._rows.items():
                if rows:
                    table.insert(rows)
        self.num_rows += self._waiting
        self._waiting = 0
        for rows in self._rows.values():
            rows.clear()
        for pending in self._pending:
            pending.is_stored = True
        self._pending = [pending for pending in self._pending if not pending.is_complete]


def new_run(plan: Plan, index: int, spec: RunSpec, **related: Any) -> Run:
    """The run's row, not yet stored. related: owner, project, sweep, group, benchmark."""
    algorithm, delta = plan.variants[index % len(plan.variants)]
    return Run(
        id=run_id(plan, index),
        name=spec.name,
        spec=spec.model_dump(mode="json"),
        algorithm=algorithm,
        variant=Variant(algorithm, point={"delta": delta} if algorithm == HACPO else {}).label,
        seed=spec.seed,
        state=State.DRAFT,
        attempt=1,
        reason=f"{NOT_TRAINED}: not complete yet",
        data_folder=GENERATED,
        total_steps=spec.training.steps,
        **related,
    )


def end_of(plan: Plan, index: int) -> tuple[str, int]:
    """How run number `index` ended and after how many steps: the last of each twenty did not get to its end."""
    turn, rest = divmod(index + 1, ODD_END_EVERY)
    if rest or plan.steps < 2:
        return State.COMPLETED, plan.steps
    return ENDS[turn % 2], max(1, plan.steps // 2)


BENCHMARK_FACTS = {"num_train": NUM_QUESTIONS, "num_held_out": 50 * len(SUBJECTS)}
