"""New uses of a checkpoint's files: an agent becomes a registered model, or a new run trains for more steps.

Files are linked if the disk can, else copied. The run that saved the checkpoint never changes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from django.conf import settings
from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.insight.checkpoints.checkpoints import agent_slug
from hacrl_web.ops.disk_space import check_room, disk_error
from hacrl_web.registry.base import values
from hacrl_web.registry.language_models.service import register_model
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.again import cannot_repeat, hold_rows_of
from hacrl_web.runs.launch.create import create_run
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, State, Trial
from hacrl_web.runs.storage.run_files import reading_files
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.contract.checkpoint_manifest import FOLDER_NAME, MANIFEST_NAME, DamagedCheckpoint, Manifest, sha256
from workers.contract.spec.run import RunSpec

MAX_MODEL_NAME = 80
MAX_RUN_NAME = 120
_ENDING = re.compile(r" \(to step \d+\)$")


@contextmanager
def removed_on_error(folder: Path) -> Iterator[None]:
    """Removes the folder if the block fails. Error: FieldErrors: a full disk, a damaged checkpoint, a failed copy."""
    check_room("step")
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, DamagedCheckpoint):
            raise FieldErrors.single("damaged", f"{error}. Choose another checkpoint.", "step") from None
        if isinstance(error, OSError):
            full = disk_error(error)
            message = full.text if full else f"The checkpoint could not be copied ({error.strerror}). Was it removed?"
            raise FieldErrors.single("not_copied", message, "step", status=507) from None
        raise


def link(source: Path, place: Path) -> None:
    """A hard link, or a copy if the disk has none; missing folders are created. Error: OSError.

    A link is safe: files of checkpoints are never changed in place.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):  # another file system, or one without links
        os.link(source, place, follow_symlinks=False)
    if not place.exists():
        shutil.copyfile(source, place, follow_symlinks=False)


def copy_agent(manifest: Manifest, agent: str, target: Path) -> None:
    """All files of an agent, every byte checked. Errors: OSError, DamagedCheckpoint."""
    target.mkdir(mode=0o700, parents=True)
    source = manifest.path / manifest.folders[agent]
    for name, entry in manifest.files_of(agent).items():
        link(source / name, target / name)
        if sha256(target / name) != entry["sha256"]:
            raise manifest.damaged(name)


def model_names(run: Run) -> set[str]:
    """Names of the models of the run's project, to which a promoted agent is added."""
    return set(LanguageModel.objects.filter(project=run.project_id).values_list("name", flat=True))


def proposed_name(run: Run, agent: str, step: int, names: set[str]) -> str:
    """A name that is not among `names`: the agent, the algorithm, the seed and the step."""
    base = f"{agent[:40]} {run.algorithm} seed {run.seed} step {step}"[: MAX_MODEL_NAME - 4]
    return next(name for number in count(1) if (name := base if number == 1 else f"{base} {number}") not in names)


def promote_checkpoint(user: User, run: Run, manifest: Manifest, agent: str, name: str) -> LanguageModel:
    """Copy, verify, inspect and register an agent. Errors: FieldErrors (then nothing is left), ModelRefused."""
    checker = values.Checker()
    checker.take("name", values.name, name)
    checker.finish()
    slug = agent_slug(agent, run.algorithm, run.seed, manifest.step)
    target = Path(settings.MODELS_DIR) / f"{slug}-{secrets.token_hex(4)}"
    origin = {
        "run": str(run.pk),
        "run_name": run.name,
        "step": manifest.step,
        "agent": agent,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "started_from": next((a["model"] for a in run.spec["agents"] if a["name"] == agent), ""),
    }
    with reading_files(run), removed_on_error(target):
        copy_agent(manifest, agent, target)
        return register_model(user, location=str(target), name=name, provenance=origin, project=run.project)


def launch_extension(user: User, run: Run, manifest: Manifest, steps: int) -> Run:
    """Queue a run that continues from the checkpoint for `steps` more. Error: FieldErrors, and nothing is written.

    Its folder begins with the whole checkpoint, which its trainer loads as after a restart. One that goes to the end
    that a failed or stopped run did not reach takes that run's place in its sweep, as a retry does.
    """
    require(user, run.project, Role.MEMBER)
    spec = _extended_spec(run, manifest.step, steps)
    run_id = uuid.uuid4()
    folder = Path(settings.RUNS_DIR).resolve() / str(run_id)
    further = {"id": run_id, "project": run.project, "cloned_from": run, "data_folder": data_folder_id()}
    further |= {"start_step": manifest.step, "step": manifest.step, "agent_changes": run.agent_changes}
    is_its_end = run.state in (State.FAILED, State.STOPPED) and spec.training.steps == run.total_steps
    further |= {"sweep": run.sweep, "variant": run.variant, "retry_of": run} if is_its_end else {}
    with reading_files(run), removed_on_error(folder):
        for name in (*manifest.files, MANIFEST_NAME):  # the trainer checks every byte
            link(manifest.path / name, folder / FOLDER_NAME / manifest.path.name / name)
        with transaction.atomic():
            hold_rows_of(run)
            new = create_run(user, spec, run.group, run.benchmark, **further)
            if is_its_end:
                Trial.objects.follow_retry(run, new)
            return new


def _extended_spec(run: Run, step: int, steps: int) -> RunSpec:
    """The run's own settings with more steps. Error: FieldErrors."""
    if run.is_evaluation_only:
        raise LaunchError.single("invalid", "An evaluation has no training steps to add to.", "steps")
    if steps < 1:
        raise LaunchError.single("invalid", "Give a whole number of steps, at least 1.", "steps")
    if errors := cannot_repeat(run):
        raise LaunchError(errors)
    ending = f" (to step {step + steps})"
    name = _ENDING.sub("", run.name)[: MAX_RUN_NAME - len(ending)] + ending
    try:
        training = run.spec["training"] | {"steps": step + steps}
        return RunSpec.model_validate(run.spec | {"name": name, "training": training})
    except ValidationError as error:
        problems = plain_errors(error)  # besides the steps: settings of an earlier version
        raise LaunchError([replace(e, field="steps") if e.field == "training.steps" else e for e in problems]) from None
