"""Where trainers run: beside the worker, or as jobs of Slurm or Kubernetes. Read from the environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

PLACES = ("local", "slurm", "kubernetes")


def trains_elsewhere() -> bool:
    """Whether trainers are jobs of a scheduler."""
    return (os.environ.get("HACRL_TRAINER_PLACE") or "local") != "local"


def trainer_command() -> list[str] | None:
    """In place of `python -m workers`; None for that. Error: ImproperlyConfigured."""
    program = os.environ.get("HACRL_TRAINER_COMMAND") or "null"
    place = os.environ.get("HACRL_TRAINER_PLACE") or "local"
    if place not in PLACES:
        raise ImproperlyConfigured(f"HACRL_TRAINER_PLACE is {place!r}: give {', '.join(PLACES[:-1])} or {PLACES[-1]}.")
    if place == "local":
        command: list[str] | None = json.loads(program)
        return command
    words = [sys.executable, "-m", "workers.cluster", place, "--program", program]
    words += ["--python", os.environ.get("HACRL_NODE_PYTHON") or sys.executable]
    if place == "slurm":
        return [*words, f"--options={os.environ.get('HACRL_SLURM_OPTIONS', '')}"]
    template, api = os.environ.get("HACRL_KUBERNETES_JOB", ""), os.environ.get("HACRL_KUBERNETES_API", "")
    if not template or not Path(template).is_file():
        raise ImproperlyConfigured(f"HACRL_KUBERNETES_JOB is {template!r}: name a YAML file with a Job.")
    if api and urlsplit(api).scheme not in ("http", "https"):
        raise ImproperlyConfigured(f"HACRL_KUBERNETES_API is {api!r}: give an http or https address.")
    words += ["--template", template, f"--api={api}"]
    return [*words, f"--namespace={os.environ.get('HACRL_KUBERNETES_NAMESPACE', '')}"]
