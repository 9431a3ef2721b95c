"""Start of an evaluation by lm-evaluation-harness: a run without training steps whose settings name tasks of it.

Whether there are such tasks, the harness says when the run begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hacrl_web.insight.evaluations.new_evaluation import SelectedAgents, evaluation_spec, queue_request
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError
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
    sections = {"data": {"benchmark": HARNESS, "train_path": "-"}, "harness": harness}
    return evaluation_spec(f"{HARNESS}:", request, selection, sections, errors, _field), ()


def _field(path: str | None) -> str | None:
    """The field of the request that an error of the spec belongs to."""
    section, _, rest = (path or "").partition(".")
    if section == "harness":
        return rest.partition(".")[0] or None
    return "models" if section == "agents" else path
