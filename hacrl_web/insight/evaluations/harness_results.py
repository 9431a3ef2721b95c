"""What lm-evaluation-harness measured: of a run's own evaluation, and of the checkpoints of runs that it evaluated.

These numbers have other prompts, other ways to read an answer and other metrics than ours. They are shown beside ours
under the name of the harness, and no rank, mean or difference mixes the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import reverse

from hacrl_web.accounts.models import User
from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.web.page_query import uuid_or_none
from hacrl_web.web.schemas import EVERY_FIELD

MAX_EVALUATIONS = 200  # the newest of a page


@dataclass(frozen=True, kw_only=True)
class HarnessLine:
    """One metric of one agent on one task. run: the evaluation.  step: of the checkpoint, of `source_run`.

    source_name: of that run; empty if it was deleted, or the models are registered ones.
    """

    __pydantic_config__ = EVERY_FIELD
    run: str
    run_name: str
    source_run: str
    source_name: str
    step: int | None
    agent: str
    position: int
    harness: str = ""
    version: str = ""
    task: str = ""
    task_version: str = ""
    is_group: bool = False
    benchmark: str = ""
    num_fewshot: int | None = None
    num_questions: int | None = None
    num_available: int | None = None
    has_chat_template: bool = False
    metric: str = ""
    filter: str = ""
    value: float | None = None
    stderr: float | None = None
    higher_is_better: bool | None = None

    @property
    def address(self) -> str:
        return reverse("insight:run_evaluations", args=[self.run])


COLUMNS = tuple(HarnessLine.__dataclass_fields__)


def lines_of_run(run: Run, user: User) -> list[HarnessLine]:
    """The lines of the run's own evaluation by the harness, or of those of its checkpoints that the user may see."""
    return list(_lines([run])) if run.spec.get("harness") else lines_of_checkpoints([run.pk], user)


def lines_of_checkpoints(runs: Iterable[UUID], user: User) -> list[HarnessLine]:
    """The lines of the evaluations of these runs' checkpoints, the newest evaluations first.

    Those of their own projects alone: an imported run may name any other as its source.
    """
    ids = [str(pk) for pk in runs]
    projects = Run.objects.filter(pk__in=ids).values("project")
    evaluations: Any = Run.objects.visible_to(user).filter(total_steps=0, spec__harness__source_run__in=ids)
    evaluations = evaluations.filter(project__in=projects).order_by("-created_at", "-pk")
    return list(_lines(evaluations[:MAX_EVALUATIONS])) if ids else []


def _lines(runs: Iterable[Run]) -> Iterator[HarnessLine]:
    by_id = {run.pk: run for run in runs}
    # The name was checked when the evaluation was queued: whoever sees the one sees the other, of one project.
    sources = {pk for run in by_id.values() if (pk := _source_of(run))}
    projects = {run.project_id for run in by_id.values()}
    named = Run.objects.filter(pk__in=sources, project__in=projects).values_list("pk", "name")
    names = {str(pk): name for pk, name in named}
    events = TelemetryEvent.objects.filter(run__in=list(by_id), type="harness").order_by("attempt", "seq")
    latest: dict[UUID, dict[tuple[str, str], dict[str, Any]]] = {pk: {} for pk in by_id}
    for pk, agent, payload in events.values_list("run", "agent", "payload"):
        latest[pk][agent, str(payload.get("task"))] = payload
    for pk, run in by_id.items():
        for (agent, _), payload in latest[pk].items():
            yield from _of_event(run, agent, payload, names)


def _source_of(run: Run) -> UUID | None:
    """The run whose checkpoint an evaluation is of; None if it names none, or of an imported run anything."""
    return uuid_or_none((run.spec.get("harness") or {}).get("source_run"))


def _of_event(run: Run, agent: str, payload: dict[str, Any], run_names: Mapping[str, str]) -> Iterator[HarnessLine]:
    settings = run.spec.get("harness") or {}
    source, names = str(settings.get("source_run") or ""), run.agent_names
    for score in payload.get("scores") or ():
        told = {name: value for name, value in {**payload, **score}.items() if name in COLUMNS and value is not None}
        own = {"run": str(run.pk), "run_name": run.name, "source_run": source, "agent": agent}
        own |= {"source_name": run_names.get(source, ""), "step": settings.get("source_step")}
        yield HarnessLine(**told | own | {"position": names.index(agent) if agent in names else 0})


def rows_for_csv(lines: Sequence[HarnessLine]) -> Iterator[list[Any]]:
    """The head and a row for each metric."""
    yield list(COLUMNS)
    for line in lines:
        yield [getattr(line, name) for name in COLUMNS]
