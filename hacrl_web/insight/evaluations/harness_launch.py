"""Start of an evaluation by lm-evaluation-harness: a run without training steps whose settings name tasks of it.

Names of tasks are checked against the list that the installation of the harness wrote; without one, by their form
alone, and by the harness itself when the run begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from hacrl_web.insight.evaluations.harness_catalogue import installed_catalogue
from hacrl_web.insight.evaluations.new_evaluation import (
    SelectedAgents,
    listed_ids,
    queue_request,
    usual_length,
    within_contexts,
)
from hacrl_web.runs.launch.plan import data_values, find_benchmarks
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.spec.algorithm import BASELINE
from workers.contract.spec.harness import HARNESS
from workers.contract.spec.run import RunSpec

LISTS = ("models", "benchmarks", "tasks")
SETTINGS = ("num_fewshot", "limit", "batch_size", "prompt_format", "time_limit_s")
KEYS = ("name", "seed", *LISTS, "group", "run", "step", "max_completion_length", "max_questions", *SETTINGS)
MAX_HINTS = 3  # of a request: each compares a name with thousands, in tenths of a second
_FIELDS = {"agents": "models", "data": "benchmarks", "evaluation": "benchmarks"}


def launch_harness_evaluation(user: Any, request: Any) -> Run:
    """Queue an evaluation by the harness. Error: FieldErrors, and nothing is written."""
    return queue_request(user, request, KEYS, _spec)


def tasks_of(request: Mapping[str, Any], errors: list[FieldError]) -> list[Any]:
    """The names of a list, or of a text with commas, spaces or line ends between them."""
    tasks = request.get("tasks") or []
    if isinstance(tasks, str):
        tasks = re.split(r"[\s,;]+", tasks.strip())
    if not isinstance(tasks, list | tuple):
        errors.append(FieldError("invalid", "Give a list of tasks.", "tasks"))
        return []
    names = list({str(task): task for task in tasks if task != ""}.values())
    catalogue = installed_catalogue()
    num_unknown = 0
    for name in names[:100]:
        has_hint = num_unknown < MAX_HINTS
        if isinstance(name, str) and (problem := catalogue.problem_of(name[:200], has_hint=has_hint)):
            num_unknown += 1
            errors.append(FieldError("unknown_task", problem, "tasks"))
    return names


def _spec(
    user: Any, request: Mapping[str, Any], selection: SelectedAgents, errors: list[FieldError]
) -> tuple[RunSpec | None, Sequence[Any]]:
    """The checked spec and its benchmarks; problems are added to `errors`."""
    tasks = tasks_of(request, errors)
    benchmarks = find_benchmarks(user, listed_ids(request, "benchmarks", errors), "benchmarks", errors)
    if not tasks and not benchmarks:
        if not {"tasks", "benchmarks"} & {error.field for error in errors}:
            errors.append(FieldError("missing", "Name a task of the harness, or choose a benchmark.", "tasks"))
        return None, benchmarks
    data = [data_values(one) for one in benchmarks]
    length = request.get("max_completion_length")
    rollout = {"max_completion_length": usual_length(selection) if length in (None, "") else length}
    most = request.get("max_questions")
    harness = {key: request[key] for key in SETTINGS if request.get(key) not in (None, "")}
    harness |= {"tasks": tasks, "has_benchmarks": bool(data)}
    if selection.trained is not None and selection.manifest is not None:
        harness |= {"source_run": str(selection.trained.pk), "source_step": selection.manifest.step}
    names = ", ".join(agent["name"] for agent in selection.agents)
    draft = {
        "name": request["name"] if request.get("name") not in (None, "") else f"{HARNESS}: {names}"[:120],
        "agents": selection.agents[:8] or [{"name": "-", "model": "-"}],
        "data": data[0] if data else {"benchmark": HARNESS, "train_path": "-"},
        "algorithm": {"name": BASELINE, "beta": 0.0},  # not used
        "rollout": {**rollout, "stop": selection.stop},
        "training": {"steps": 0},
        "evaluation": {"max_questions": 0 if most in (None, "") else most, "benchmarks": data[1:]},
        "harness": harness,
    }
    if request.get("seed") not in (None, ""):
        draft["seed"] = request["seed"]
    try:
        spec = RunSpec.model_validate(draft)
    except ValidationError as error:
        errors += [FieldError(one.code, one.message, _field(one.field)) for one in plain_errors(error)]
        return None, benchmarks
    return (within_contexts(spec, selection.contexts, errors) if data else spec), benchmarks


def _field(path: str | None) -> str | None:
    """The field of the request that an error of the spec belongs to."""
    if not path:
        return None
    section, _, rest = path.partition(".")
    if section == "harness":
        return rest.partition(".")[0] or "benchmarks"
    return _FIELDS.get(section, path.rpartition(".")[2])
