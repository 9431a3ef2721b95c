"""`manage.py demo`: launch the demo's comparison; with --once, wait for its end and print the outcome.

It writes rows only: the web, worker and dispatcher of a running `up` do the rest.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from hacrl_web.accounts.models import first_user
from hacrl_web.demo import launch as demo
from hacrl_web.demo.launch import DemoFailed, make_and_launch
from hacrl_web.demo.outcome import demo_summary, outcome_lines, progress_line
from hacrl_web.runs.models import TERMINAL, State, Sweep
from workers.contract.demo_recipe import ALGORITHMS, ENGINES, PRETRAINED, PRETRAINED_MODEL, TINY

LOOK_EVERY_S = 1.0
REPORT_EVERY_S = 15.0


class Command(BaseCommand):
    help = "Make the demo agents, launch rules that share rollouts against GSPO, and show the comparison."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="wait until all runs have ended, print the outcome")
        parser.add_argument("--json", action="store_true", help="with --once: the last line is JSON")
        parser.add_argument(
            "--seeds", default="1", help="how many, such as 3 (seeds 0, 1 and 2), or which, such as 0,1,2 (default 1)"
        )
        parser.add_argument(
            "--algorithms",
            help=f"comma-separated names of algorithms (default: {','.join(ALGORITHMS)}; of the pretrained demo "
            f"{','.join(PRETRAINED.algorithms)})",
        )
        parser.add_argument(
            "--pretrained",
            nargs="?",
            const=PRETRAINED_MODEL,
            metavar="SOURCE",
            help="two agents made from this pretrained model: hub id, folder or package (default: %(const)s)",
        )
        parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="what generates the rollouts")
        parser.add_argument("--follow", type=int, metavar="SWEEP", help="say how far a demo's runs are, until they end")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["follow"] is not None:
            self._follow(Sweep.objects.get(pk=options["follow"]))
            return
        recipe, source = (PRETRAINED, options["pretrained"]) if options["pretrained"] else (TINY, "")
        seeds = seeds_of(options["seeds"])
        algorithms = algorithms_of(options["algorithms"]) if options["algorithms"] else list(recipe.algorithms)
        if options["json"] and not options["once"]:
            raise CommandError("--json prints the outcome, which only --once waits for: give both.")
        user = first_user()
        earlier = demo.demo_sweeps(user, recipe).filter(runs__state__in=_OPEN)  # shown instead of a second one
        sweep = None if options["once"] else earlier.first()
        if sweep is None:
            if recipe.promise:
                self.stderr.write(recipe.promise)
            is_new = options["once"]  # what it prints is measured by its own runs
            try:
                sweep = make_and_launch(
                    user, recipe, source, seeds, algorithms, options["engine"], is_new=is_new, say=self.stderr.write
                )
            except DemoFailed as failure:
                raise CommandError(str(failure)) from None
            if not sweep.runs.filter(state__in=_OPEN).exists():
                self.stderr.write("This demo has run before: here is its board. Further --seeds are added to it.")
        else:
            self.stderr.write("Continuing the demo.")
        if not options["once"]:
            self.stdout.write(reverse("runs:sweep_detail", args=[sweep.pk]))
            return
        self._follow(sweep)
        if options["json"]:
            self.stdout.write(json.dumps(demo_summary(sweep)))
        failed = [run for run in sweep.runs.order_by("created_at") if run.state != State.COMPLETED]
        if failed:
            raise CommandError("; ".join(f"{run.name} {run.state}: {run.reason}" for run in failed))

    def _follow(self, sweep: Sweep) -> None:
        """Say how far the runs are, every REPORT_EVERY_S and at the first step; and once all have ended, the result."""
        reported_at, has_stepped = -math.inf, False
        while steps := [run.step for run in sweep.runs.all() if run.state not in _ENDED]:
            is_first = not has_stepped and any(steps)
            if is_first or time.monotonic() - reported_at >= REPORT_EVERY_S:
                reported_at, has_stepped = time.monotonic(), has_stepped or is_first
                self.stderr.write(progress_line(sweep))
            time.sleep(LOOK_EVERY_S)
        for line in outcome_lines(sweep):
            self.stderr.write(line)
        if settings.PUBLIC_URL:
            self.stderr.write(f"The demo's page: {settings.PUBLIC_URL}{sweep.get_absolute_url()}")


def seeds_of(text: str) -> list[int]:
    """A single number is the number of seeds from 0; with a comma, the seeds themselves. Error: CommandError."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if "," not in text and numbers and numbers[0] > 0:
        return list(range(numbers[0]))
    if "," in text and numbers and min(numbers) >= 0:
        return numbers
    raise CommandError(
        f"--seeds takes a number of seeds (3) or a list of them (0,1,2; a single seed as “4,”), not {text!r}"
    )


def algorithms_of(text: str) -> list[str]:
    """RunSpec's names of the algorithms in a comma-separated list; the launch checks them."""
    return [name for part in text.split(",") if (name := part.strip())]


_ENDED = {*TERMINAL, State.PAUSED}  # no one resumes a paused run of the demo
_OPEN = [state for state in State.values if state not in TERMINAL]
