"""`manage.py demo`: launch the demo's comparison; with --once, wait for its end and print the leaderboard.

It talks to rows only: web, worker and dispatcher are those of the running `up`.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from hacrl_web import demo
from hacrl_web.accounts.models import User, first_user
from hacrl_web.errors import FieldErrors
from hacrl_web.insight.estimate import Estimate
from hacrl_web.leaderboard.scores import Board, run_results, sweep_board
from hacrl_web.runs.demo_state import preparing
from hacrl_web.runs.models import TERMINAL, Run, State, Sweep

LOOK_EVERY_S = 0.5
SAY_EVERY_S = 5.0


class Command(BaseCommand):
    help = "Make the demo agents, launch HACPO against GSPO and GSPOx2, and show the comparison."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="wait until all runs have ended, print the leaderboard")
        parser.add_argument("--json", action="store_true", help="with --once: the last line is JSON")
        parser.add_argument("--seeds", default="0", help="comma-separated seeds, one run of each algorithm a seed")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            seeds = [int(seed) for seed in options["seeds"].split(",")]
        except ValueError:
            raise CommandError(f"--seeds wants whole numbers, such as 0,1,2; not {options['seeds']!r}") from None
        if options["json"] and not options["once"]:
            raise CommandError("--json prints the outcome, which only --once waits for: give both.")
        user = first_user()
        sweep = None if options["once"] else _unfinished_sweep(user)
        if sweep is None:
            sweep = _launched(user, seeds, self.stderr)
        else:
            self.stderr.write("The demo that was started before goes on; a new one can start when it has ended.")
        if not options["once"]:
            self.stdout.write(reverse("runs:sweep_detail", args=[sweep.pk]))
            return
        self._wait(sweep)
        runs = list(sweep.runs.order_by("created_at"))
        board = sweep_board(sweep)
        self.stderr.write(_table(board))
        if options["json"]:
            self.stdout.write(json.dumps(_summary(runs, board)))
        failed = [run for run in runs if run.state != State.COMPLETED]
        if failed:
            raise CommandError("; ".join(f"{run.name} {run.state}: {run.reason}" for run in failed))

    def _wait(self, sweep: Sweep) -> None:
        said_at = 0.0
        while True:
            runs = list(sweep.runs.order_by("created_at"))
            if time.monotonic() - said_at > SAY_EVERY_S or all(run.state in _SETTLED for run in runs):
                said_at = time.monotonic()
                self.stderr.write("  ".join(f"{r.algorithm}/{r.seed} {r.state} {r.step}/{r.total_steps}" for r in runs))
            if all(run.state in _SETTLED for run in runs):
                return
            time.sleep(LOOK_EVERY_S)


def _launched(user: User, seeds: list[int], stderr: Any) -> Sweep:
    doing = "Looking for its two models in the cache."
    if not demo.folder().exists():
        doing = "Teaching two small models arithmetic, the warm start: a minute or two on an idle machine, once."
        stderr.write("Making the demo's two models: about a minute, once. Its runs start after that.")
    try:
        with preparing(doing) as say:
            folder = demo.make_agents()
            say("Checking and registering its models and questions.")
            group, benchmark = demo.register(user, folder)
            return demo.launch(user, group, benchmark, seeds)
    except subprocess.CalledProcessError as error:
        raise CommandError(f"The demo agents could not be made (exit status {error.returncode}).") from None
    except FieldErrors as refused:
        raise CommandError(f"The demo could not be launched: {refused}") from None


def _unfinished_sweep(user: Any) -> Sweep | None:
    """A demo that was started before and still has runs to do: it is shown instead of a second one."""
    names = {"name": demo.SWEEP_NAME, "owner": user}
    return Sweep.objects.filter(**names).exclude(runs__isnull=True).filter(runs__state__in=_OPEN).first()


_SETTLED = {*TERMINAL, State.PAUSED}  # nobody is there to resume a paused one
_OPEN = [state for state in State.values if state not in TERMINAL]


def _interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.3f}" + (f" +- {value.half_width:.3f}" if value.half_width is not None else "")


def _table(board: Board) -> str:
    lines = [f"{'':<8} {'start':>16} {'final':>16} {'gain over GSPO':>16} {'rollouts':>9} {'seconds':>8}"]
    for row in board.rows:
        numbers = [_interval(row.start), _interval(row.final), _interval(row.gain_over_gspo)]
        lines.append(
            f"{row.algorithm:<8} "
            + " ".join(f"{number:>16}" for number in numbers)
            + f" {row.rollouts:>9.0f} {row.device_seconds:>8.1f}"
        )
    return "\n".join(lines)


def _summary(runs: list[Run], board: Board) -> dict[str, Any]:
    results = {result.run.pk: result.as_dict() for result in run_results(runs)}
    states = [{"run": str(r.pk), "algorithm": r.algorithm, "seed": r.seed, "state": r.state} for r in runs]
    gains = {row.algorithm: row.gain_over_gspo.mean for row in board.rows if row.gain_over_gspo is not None}
    return {
        "runs": [state | results.get(run.pk, {}) for run, state in zip(runs, states, strict=True)],
        "gain_over_gspo": gains,
    }
