"""`./hacrl seed_demo_data`: generated runs, so that every page can be tried and measured at size without training."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from pydantic import ValidationError

from hacrl_web.accounts.models import Membership, Project, Role, User, first_user
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run, State, Sweep
from tools.generated_runs.runs import NOT_TRAINED, Plan, generated_events, new_run, store_run
from tools.generated_runs.world import NUM_QUESTIONS, SUBJECTS
from workers.contract.spec.algorithm import DEFAULT

ALGORITHMS = ("hacpo", "gspo", "gspox2")
MAX_ROWS = 20_000_000
LIMITS = {
    "runs": (1, 20_000),
    "steps": (1, 100_000),
    "agents": (1, 8),
    "prompts": (1, 256),
    "generations": (2, 64),
    "rollout_interval": (0, 100_000),
    "seed": (0, 1_000_000_000),
    "questions": (0, NUM_QUESTIONS),
}
OWNER = "generated"
PROGRESS_EVERY_S = 5.0
RUNS_APART = timedelta(minutes=1)


class Command(BaseCommand):
    help = "Store generated runs (numbers that follow the formulas, but no training), to try and measure the pages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--runs", type=int, default=12, help="how many runs (default 12)")
        parser.add_argument("--steps", type=int, default=60, help="steps of each run (default 60)")
        parser.add_argument("--agents", type=int, default=2, help="agents of each run, 1 to 8 (default 2)")
        parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same numbers (default 0)")
        parser.add_argument("--prompts", type=int, default=8, help="prompts of a step (default 8)")
        parser.add_argument("--generations", type=int, default=4, help="rollouts per prompt and agent (default 4)")
        parser.add_argument(
            "--rollout-interval", type=int, default=1, help="record rollouts every so many steps; 0: never (default 1)"
        )
        parser.add_argument(
            "--questions",
            type=int,
            default=60,
            help="held-out questions of each of three benchmarks, with every agent's answers; 0: counts alone "
            "(default 60)",
        )
        parser.add_argument(
            "--algorithms", default="hacpo,gspo,gspox2", help="taken in turn: hacpo, gspo, gspox2 (default: all)"
        )
        parser.add_argument(
            "--deltas", default="0.8,0.2", help="of hacpo, taken in turn; the small one shows the delta trap"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        plan = _plan(options)
        began = time.monotonic()
        agents = _agents(plan)
        try:
            for index in range(len(plan.variants)):
                plan.spec(index, agents)
        except ValidationError as error:
            raise CommandError(f"No such run is possible: {error.errors()[0]['msg']}") from None
        if not User.objects.exists():
            first_user()  # otherwise the owner of these runs would be the only user there is
        owner, _ = User.objects.get_or_create(username=OWNER, defaults={"is_active": False, "password": "!"})
        for run in Run.objects.filter(owner=owner, state=State.DRAFT):  # of an interrupted command
            run.delete()
        if _count([plan.run_id(index) for index in range(plan.runs)]):
            raise CommandError("These runs exist already. Another --seed makes others.")
        with transaction.atomic():
            project = _project(owner)
            group, benchmark = _group(owner, project, plan), _benchmark(owner, project)
        sweep, num_rows, reported_at, now = None, 0, began, timezone.now()
        for index in range(plan.runs):
            if index % plan.runs_per_sweep == 0:
                number = f"seed {plan.seed}, {index // plan.runs_per_sweep + 1}"
                sweep = Sweep.objects.create(owner=owner, project=project, name=f"{NOT_TRAINED}: {number}")
            spec = plan.spec(index, agents)
            related = {"owner": owner, "project": project, "sweep": sweep, "group": group, "benchmark": benchmark}
            state, last_step = plan.end_of(index)
            finished = now - (plan.runs - 1 - index) * RUNS_APART
            timed_events = generated_events(plan, index, spec, last_step)
            num_rows += store_run(new_run(plan, index, spec, **related), timed_events, state, finished)
            if time.monotonic() - reported_at > PROGRESS_EVERY_S:
                reported_at = time.monotonic()
                self.stderr.write(f"{index + 1:,} of {plan.runs:,} runs, {num_rows:,} rows")
        seconds = time.monotonic() - began
        self.stdout.write(
            f"{plan.runs:,} runs ({NOT_TRAINED}), {num_rows:,} rows in {seconds:.1f} s, "
            f"{num_rows / seconds:,.0f} rows/s. First: {reverse('runs:run_detail', args=[plan.run_id(0)])}"
        )


def _plan(options: dict[str, Any]) -> Plan:
    for name, (low, high) in LIMITS.items():
        if not low <= options[name] <= high:
            option = f"--{name.replace('_', '-')} {options[name]}"
            raise CommandError(f"{option} is out of bounds: it must be {low:,} to {high:,}.")
    algorithms = options["algorithms"].split(",")
    unknown = [name for name in algorithms if name not in ALGORITHMS]
    if unknown:
        raise CommandError(f"--algorithms {unknown[0]!r}: only {', '.join(ALGORITHMS)} can be generated.")
    try:
        deltas = [float(delta) for delta in options["deltas"].split(",")]
    except ValueError:
        raise CommandError(f"--deltas takes numbers, such as 0.8,0.2; not {options['deltas']!r}") from None
    variants = [(name, delta) for name in algorithms for delta in (deltas if name == DEFAULT else [0.2])]
    plan = Plan(variants=tuple(variants), **{name: options[name] for name in LIMITS})
    if plan.rows() > MAX_ROWS:
        raise CommandError(
            f"That would be about {plan.rows():,} rows; at most {MAX_ROWS:,} are possible at once: "
            "use fewer runs, steps or prompts, or a larger --rollout-interval."
        )
    return plan


def _count(ids: list[Any]) -> int:
    return sum(Run.objects.filter(pk__in=ids[start : start + 500]).count() for start in range(0, len(ids), 500))


def _agents(plan: Plan) -> list[tuple[str, str]]:
    """(name, folder) of each; the folder does not exist, so no run of these agents can be trained."""
    folder = Path(settings.MODELS_DIR) / "generated-not-trained"
    letters = "ABCDEFGH"[: plan.agents]
    return [(f"Generated {letter}", str(folder / letter)) for letter in letters]


def _project(owner: User) -> Project:
    """The project of the generated runs: one of an administrator of the installation, who then sees them at once."""
    own = owner.memberships.first()
    if own is not None:
        return own.project
    admin = Membership.objects.filter(user__is_staff=True, user__is_active=True, role=Role.ADMIN).first()
    if admin is None:
        return Project.objects.make(NOT_TRAINED, owner)
    return Membership.objects.create(project=admin.project, user=owner, role=Role.MEMBER).project


def _group(owner: User, project: Project, plan: Plan) -> AgentGroup:
    name = f"{NOT_TRAINED}, {plan.agents} agents" if plan.agents > 1 else f"{NOT_TRAINED}, 1 agent"
    group, is_new = AgentGroup.objects.get_or_create(owner=owner, project=project, name=name)
    for position, (agent, folder) in enumerate(_agents(plan)) if is_new else ():
        model, _ = LanguageModel.objects.get_or_create(
            owner=owner, project=project, name=f"{agent}: {NOT_TRAINED}", defaults={"location": folder}
        )
        Agent.objects.create(group=group, model=model, name=agent, position=position)
    return group


def _benchmark(owner: User, project: Project) -> Benchmark:
    values = {"train_path": NOT_TRAINED, "num_train": NUM_QUESTIONS, "num_held_out": 50 * len(SUBJECTS)}
    return Benchmark.objects.get_or_create(owner=owner, project=project, name=NOT_TRAINED, defaults=values)[0]
