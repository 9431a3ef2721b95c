"""More steps for a trained group: a new run goes on from a checkpoint of another, for what has ended never changes.

The new run's folder begins with the whole checkpoint (weights, optimizers, the trainer's counters), as hard links where
the disk can. Its trainer finds it there as after a restart, so nothing but the number of steps is different.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require
from hacrl_web.insight.checkpoints.linked_files import link, made_in
from hacrl_web.runs.launch.launch import create_run
from hacrl_web.runs.launch.plan import LaunchError, cannot_repeat
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldError, plain_errors
from workers.contract.checkpoint_manifest import FOLDER_NAME, MANIFEST_NAME, Manifest
from workers.contract.spec.run import RunSpec

MAX_NAME = 120
_ENDING = re.compile(r" \(to step \d+\)$")


def launch_extension(user: Any, run: Run, manifest: Manifest, steps: int) -> Run:
    """Queue a run of `steps` more than the checkpoint has. Error: FieldErrors, and nothing is written."""
    require(user, run.project, Role.MEMBER)
    spec = _spec(run, manifest.step, steps)
    run_id = uuid.uuid4()
    folder = Path(settings.RUNS_DIR).resolve() / str(run_id)
    further = {"id": run_id, "project": run.project, "cloned_from": run, "data_folder": data_folder_id()}
    further |= {"start_step": manifest.step, "step": manifest.step}
    with made_in(folder):
        for name in (*manifest.files, MANIFEST_NAME):  # the trainer checks every byte
            link(manifest.path / name, folder / FOLDER_NAME / manifest.path.name / name)
        with transaction.atomic():
            return create_run(user, spec, run.group, run.benchmark, **further)


def _spec(run: Run, step: int, steps: int) -> RunSpec:
    """The run's own settings with more steps. Error: FieldErrors."""
    if run.is_evaluation_only:
        raise LaunchError([FieldError("invalid", "An evaluation trains nobody: there are no steps to add.", "steps")])
    if steps < 1:
        raise LaunchError([FieldError("invalid", "Give a whole number of steps, at least 1.", "steps")])
    if errors := cannot_repeat(run):
        raise LaunchError(errors)
    ending = f" (to step {step + steps})"
    name = _ENDING.sub("", run.name)[: MAX_NAME - len(ending)] + ending
    try:
        training = run.spec["training"] | {"steps": step + steps}
        return RunSpec.model_validate(run.spec | {"name": name, "training": training})
    except ValidationError as error:
        problems = plain_errors(error)  # made by an earlier version, where it is not the number of steps
        raise LaunchError([replace(e, field="steps") if e.field == "training.steps" else e for e in problems]) from None
