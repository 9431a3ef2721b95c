"""Where trainers run: beside the worker, or as jobs of Slurm or Kubernetes. Read from the environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.variables import read_choice, read_command, read_text

PLACES = ("local", "slurm", "kubernetes")


def trains_elsewhere() -> bool:
    """Whether trainers are jobs of a scheduler."""
    return read_text("HACRL_TRAINER_PLACE", "local") != "local"


def trainer_command() -> list[str] | None:
    """In place of `python -m workers`; None for that. Error: ImproperlyConfigured."""
    program = read_command("HACRL_TRAINER_COMMAND")
    place = read_choice("HACRL_TRAINER_PLACE", PLACES, "local")
    if place == "local":
        return program
    words = [sys.executable, "-m", "workers.cluster", place, "--program", json.dumps(program)]
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
