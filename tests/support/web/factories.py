"""Rows for the web tests: a user, two registered models, a group, a benchmark, a run, and events of a spool."""

from __future__ import annotations

import os
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model

from hacrl_web.accounts.models import Membership
from hacrl_web.registry.base.locations import folder_fingerprint
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.models import Run, State, Sweep
from workers.contract.events import Body, Metrics
from workers.contract.spool import SpoolWriter

_numbers = count(1)


@cache
def number_by_process() -> None:
    """Names of this process' own, for rows in the database of a running product that other processes fill too."""
    global _numbers
    _numbers = count(1000 * os.getpid())


def make_user(name: str = "", *, is_staff: bool = False) -> Any:
    return get_user_model().objects.create_user(name or f"user{next(_numbers)}", password="pw", is_staff=is_staff)


def make_member(project: Any, role: str = "member", name: str = "") -> Any:
    """A member of this project only, like a user who joined by an invitation."""
    user = get_user_model().objects.create(username=name or f"user{next(_numbers)}")
    Membership.objects.create(project=project, user=user, role=role)
    return user


def make_model(owner: Any, name: str = "") -> LanguageModel:
    name = name or f"model {next(_numbers)}"
    folder = Path(settings.MODELS_DIR).resolve() / f"made {next(_numbers)}"
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"folder_fingerprint": folder_fingerprint(folder)}
    return LanguageModel.objects.create(
        owner=owner,
        name=name,
        location=str(folder),
        architecture="Qwen3ForCausalLM",
        num_parameters=100_000,
        facts=facts,
    )


def make_group(owner: Any, agents: tuple[str, ...] = ("A", "B")) -> AgentGroup:
    group = AgentGroup.objects.create(owner=owner, name=f"group {next(_numbers)}")
    for position, name in enumerate(agents):
        Agent.objects.create(group=group, model=make_model(owner), name=name, position=position)
    return group


def make_benchmark(owner: Any) -> Benchmark:
    return Benchmark.objects.create(
        owner=owner,
        name=f"benchmark {next(_numbers)}",
        train_path="/data/train.jsonl",
        num_train=10_000,
        num_held_out=2_000,
    )


def launch_request(owner: Any, **changes: Any) -> dict[str, Any]:
    """A request that is accepted: two agents, five steps."""
    return {
        "name": "complete",
        "group": make_group(owner).pk,
        "benchmark": make_benchmark(owner).pk,
        "algorithm": {"name": "hacpo"},
        "seed": 1,
        "training": {"steps": 5, "train_batch_size": 4, "mini_batch_size": 4},
        **changes,
    }


def launch_within(sweep: Sweep, request: dict[str, Any]) -> Run:
    """A queued run of a sweep's owner, as a part of the sweep."""
    run = launch(sweep.owner, request)
    run.sweep = sweep
    run.save(update_fields=["sweep"])
    return run


def launch_form(owner: Any, **changes: Any) -> dict[str, Any]:
    """What a browser posts for a run that is accepted."""
    values = launch_request(owner, name="from the form")
    training = {f"training.{name}": str(value) for name, value in values["training"].items()}
    rows = {name: str(values[name]) for name in ("group", "benchmark")}
    return {"name": values["name"], **rows, "seed": "3", "algorithm.name": "hacpo", **training, **changes}


def sweep_form(owner: Any, **changes: Any) -> dict[str, Any]:
    """What a browser posts for a sweep that is accepted."""
    return launch_form(owner, compare="1", algorithms=["hacpo", "gspo"], seeds="0, 1") | changes


def make_run(owner: Any = None, name: str = "complete", **changes: Any) -> Run:
    """A queued run, launched by the product's own path."""
    owner = owner or make_user()
    return launch(owner, launch_request(owner, name=name, **changes))


def as_of_earlier_version(run: Run, **changes: Any) -> Run:
    """Write settings into a run that this version no longer has, by section."""
    spec = run.spec | {section: run.spec[section] | values for section, values in changes.items()}
    Run.objects.filter(pk=run.pk).update(spec=spec, algorithm=spec["algorithm"]["name"])
    run.refresh_from_db()
    return run


def make_training_run(owner: Any, name: str = "complete") -> Run:
    """A run in its first attempt, with nobody behind it."""
    run = make_run(owner, name=name)
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, attempt=1)
    run.refresh_from_db()
    return run


def metrics(step: int, agent: str = "A", source: str | None = None, **values: float) -> Metrics:
    return Metrics(step=step, agent=agent, source=source, values=values)


def write_spool(run_dir: Path, attempt: int, *bodies: Body) -> None:
    """Append events to a run's spool, as its trainer would."""
    run_dir.mkdir(parents=True, exist_ok=True)
    writer = SpoolWriter(run_dir, attempt)
    writer.emit(*bodies)
    writer.close()
