"""`python -m workers.cluster`: a trainer's place on a cluster, in four parts.

slurm, kubernetes: the launcher, in place of `python -m workers` (HACRL_TRAINER_PLACE chooses it).
task: what the job runs on its node.  cancel: end the job of a run directory, called where a trainer is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from workers.cluster.kubernetes import ACCOUNT, Kubernetes, read_template
from workers.cluster.launcher import Launcher, end_jobs
from workers.cluster.schedulers import Scheduler
from workers.cluster.slurm import Slurm
from workers.cluster.task import Task
from workers.contract.cluster.job import JOB_NAME, read_note, refuse_job

CANCEL_S = 10.0


def scheduler_of(options: dict[str, Any]) -> Scheduler:
    """Error: ValueError for a template that cannot be used."""
    if options["kind"] == "slurm":
        return Slurm(shlex.split(options["options"]))
    template, account = read_template(Path(options["template"])), Path(options["account"])
    return Kubernetes(template, options["api"], options["namespace"], account)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    run_dir = options.run_dir.resolve()
    if options.kind == "cancel":
        refuse_job(run_dir)
        job = read_note(run_dir / JOB_NAME)
        return 0 if not job or end_jobs(scheduler_of(job), run_dir, lambda: None, CANCEL_S) else 1
    program = json.loads(options.program)
    if options.kind == "task":
        return _end_as(Task(run_dir, options.attempt, program or [sys.executable, "-m", "workers"]).run())
    names = ("kind", "options") if options.kind == "slurm" else ("kind", "template", "api", "namespace", "account")
    values = {name: getattr(options, name) for name in names}
    task = [options.python, "-m", "workers.cluster", "task", "--program", options.program]
    task += [str(run_dir), "--attempt", str(options.attempt)]
    try:
        return _end_as(Launcher(scheduler_of(values), run_dir, options.attempt, values).run(task))
    except ValueError as error:
        print(f"launcher: {error}", file=sys.stderr)
        return 2


def _end_as(status: int) -> int:
    """End by the signal that ended the trainer, so that who started us reads the same."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    return abs(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workers.cluster", description="Train a run on a cluster.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    slurm, kubernetes, task, cancel = (kinds.add_parser(name) for name in ("slurm", "kubernetes", "task", "cancel"))
    for launcher in (slurm, kubernetes):
        launcher.add_argument("--python", default=sys.executable, help="the Python of the nodes")
        launcher.add_argument("spec", type=Path)
    slurm.add_argument("--options", default="", help="further words for srun")
    kubernetes.add_argument("--template", required=True, help="a YAML file with a Job")
    for name, default in (("api", ""), ("namespace", ""), ("account", str(ACCOUNT))):
        kubernetes.add_argument(f"--{name}", default=default)
    for one in (slurm, kubernetes, task):
        one.add_argument("--program", default="null", help="JSON: the trainer's command; null: python -m workers")
        one.add_argument("--attempt", type=int, required=True)
        one.add_argument("run_dir", type=Path)
    cancel.add_argument("run_dir", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
