"""Start of an evaluation by lm-evaluation-harness: a run without training steps whose settings name tasks of it.

Whether there are such tasks, the harness says when the run begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hacrl_web.insight.evaluations.new_evaluation import SelectedAgents, queue_request
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.spec.algorithm import BASELINE
from workers.contract.spec.harness import HARNESS
from workers.contract.spec.run import RunSpec

LISTS = ("models", "tasks")
SETTINGS = ("num_fewshot", "limit", "batch_size", "prompt_format", "time_limit_s")
KEYS = ("name", "seed", *LISTS, "group", "run", "step", *SETTINGS)


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
    if not names:
        errors.append(FieldError("missing", "Name a task of the harness.", "tasks"))
    return names


def _spec(
    user: Any, request: Mapping[str, Any], selection: SelectedAgents, errors: list[FieldError]
) -> tuple[RunSpec | None, tuple[()]]:
    """The checked spec, of no benchmarks; problems are added to `errors`."""
    harness = {key: request[key] for key in SETTINGS if request.get(key) not in (None, "")}
    harness["tasks"] = tasks_of(request, errors)
    if selection.trained is not None and selection.manifest is not None:
        harness |= {"source_run": str(selection.trained.pk), "source_step": selection.manifest.step}
    names = ", ".join(agent["name"] for agent in selection.agents)
    draft = {
        "name": request["name"] if request.get("name") not in (None, "") else f"{HARNESS}: {names}"[:120],
        "agents": selection.agents[:8] or [{"name": "-", "model": "-"}],
        "data": {"benchmark": HARNESS, "train_path": "-"},
        "algorithm": {"name": BASELINE, "beta": 0.0},  # not used
        "training": {"steps": 0},
        "harness": harness,
    }
    if request.get("seed") not in (None, ""):
        draft["seed"] = request["seed"]
    try:
        return RunSpec.model_validate(draft), ()
    except ValidationError as error:
        errors += [FieldError(one.code, one.message, _field(one.field)) for one in plain_errors(error)]
        return None, ()


def _field(path: str | None) -> str | None:
    """The field of the request that an error of the spec belongs to."""
    section, _, rest = (path or "").partition(".")
    if section == "harness":
        return rest.partition(".")[0] or None
    return "models" if section == "agents" else path
