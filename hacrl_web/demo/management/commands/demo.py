"""`manage.py demo`: launch the demo's comparison; with --once, wait for its end and print the outcome.

It writes rows only: the web, worker and dispatcher of a running `up` do the rest.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from hacrl_web.accounts.models import first_user
from hacrl_web.demo import launch as demo
from hacrl_web.demo.launch import DemoFailed, make_and_launch
from hacrl_web.demo.outcome import demo_summary
from hacrl_web.leaderboard.board.boards import sweep_board
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.leaderboard.board.table import headline, make_table
from hacrl_web.runs.models import TERMINAL, State, Sweep
from workers.contract.demo_recipe import ALGORITHMS, ENGINES, PRETRAINED, PRETRAINED_MODEL, TINY

LOOK_EVERY_S = 0.5
REPORT_EVERY_S = 5.0
FOLLOW_EVERY_S = 2.0


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
        parser.add_argument("--follow", type=int, metavar="SWEEP", help="say in one line how a demo's runs have ended")

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
            is_new = options["once"]  # what it prints is measured by its own runs
            if not demo.folder(recipe).exists():
                self.stderr.write(f"{recipe.activity} Its runs start after that.")
            try:
                sweep = make_and_launch(user, recipe, source, seeds, algorithms, options["engine"], is_new=is_new)
            except DemoFailed as failure:
                raise CommandError(str(failure)) from None
            if not sweep.runs.filter(state__in=_OPEN).exists():
                self.stderr.write("This demo has run before: here is its board. Further --seeds are added to it.")
        else:
            self.stderr.write("Continuing the demo.")
        if not options["once"]:
            self.stdout.write(reverse("runs:sweep_detail", args=[sweep.pk]))
            return
        self._wait(sweep)
        self.stderr.write(outcome_sentence(sweep))
        if options["json"]:
            self.stdout.write(json.dumps(demo_summary(sweep)))
        failed = [run for run in sweep.runs.order_by("created_at") if run.state != State.COMPLETED]
        if failed:
            raise CommandError("; ".join(f"{run.name} {run.state}: {run.reason}" for run in failed))

    def _follow(self, sweep: Sweep) -> None:
        """Print one closing line in the terminal, while the user watches the demo in the browser."""
        while any(run.state not in _ENDED for run in sweep.runs.all()):
            time.sleep(FOLLOW_EVERY_S)
        states = Counter(sweep.runs.values_list("state", flat=True))
        sentence = outcome_sentence(sweep) if states[State.COMPLETED] else ""
        counts = ", ".join(f"{number} {state}" for state, number in states.items())
        address = f"{settings.PUBLIC_URL or ''}{sweep.get_absolute_url()}"
        self.stderr.write(" ".join(filter(None, ["The demo's runs have ended:", f"{counts}.", sentence, address])))

    def _wait(self, sweep: Sweep) -> None:
        reported_at = 0.0
        while True:
            runs = list(sweep.runs.order_by("created_at"))
            has_ended = all(run.state in _ENDED for run in runs)
            if time.monotonic() - reported_at > REPORT_EVERY_S or has_ended:
                reported_at = time.monotonic()
                self.stderr.write("  ".join(f"{r.algorithm}/{r.seed} {r.state} {r.step}/{r.total_steps}" for r in runs))
            if has_ended:
                return
            time.sleep(LOOK_EVERY_S)


def outcome_sentence(sweep: Sweep) -> str:
    return headline(make_table(sweep_board(sweep), BoardSelection()))


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
