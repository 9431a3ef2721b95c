"""A trained agent becomes a registered model: its folder is copied below the model folders, inspected and recorded."""

from __future__ import annotations

import secrets
from itertools import count
from pathlib import Path
from typing import Any

from django.conf import settings

from hacrl_web.insight.checkpoints.checkpoints import agent_slug
from hacrl_web.insight.checkpoints.linked_files import link, made_in
from hacrl_web.registry import values
from hacrl_web.registry.language_models.services import register_model
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run
from workers.contract.checkpoint_manifest import Manifest, sha256

MAX_NAME = 80


def taken_names(run: Run) -> set[str]:
    """Of the models of the run's project, which a promoted agent joins."""
    return set(LanguageModel.objects.filter(project=run.project_id).values_list("name", flat=True))


def proposed_name(run: Run, agent: str, step: int, names: set[str]) -> str:
    """A name that is not taken yet: the agent, the rule, the seed and the step."""
    base = f"{agent[:40]} {run.algorithm} seed {run.seed} step {step}"[: MAX_NAME - 4]
    return next(name for number in count(1) if (name := base if number == 1 else f"{base} {number}") not in names)


def promote_checkpoint(user: Any, run: Run, manifest: Manifest, agent: str, name: str) -> LanguageModel:
    """Copy, verify, inspect, register. Errors: FieldErrors (then nothing is left), ModelRefused."""
    checker = values.Checker()
    checker.take("name", values.name, name)
    checker.finish()
    target = (
        Path(settings.MODELS_DIR)
        / f"{agent_slug(agent, run.algorithm, run.seed, manifest.step)}-{secrets.token_hex(4)}"
    )
    origin = {
        "run": str(run.pk),
        "run_name": run.name,
        "step": manifest.step,
        "agent": agent,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "started_from": next((a["model"] for a in run.spec["agents"] if a["name"] == agent), ""),
    }
    with made_in(target):
        copy_agent(manifest, agent, target)
        return register_model(user, location=str(target), name=name, provenance=origin, project=run.project)


def copy_agent(manifest: Manifest, agent: str, target: Path) -> None:
    """All files of an agent, every byte checked. Errors: OSError, DamagedCheckpoint."""
    target.mkdir(mode=0o700, parents=True)
    source = manifest.path / manifest.folders[agent]
    for name, entry in manifest.files_of(agent).items():
        link(source / name, target / name)
        if sha256(target / name) != entry["sha256"]:
            raise manifest.damaged(name)
