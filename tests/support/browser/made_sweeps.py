"""Sweeps for the leaderboard's tests in a browser: rows in the data folder of a running `up`, which nobody trains.

Prints the addresses of their boards as JSON: {"several": .., "grid": .., "eight": ..}.
"""

from __future__ import annotations

import json
import random

from django.db import transaction

from hacrl_web.accounts.models import first_user
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import launch_request, launch_within, make_group, number_by_process
from tests.support.web.leaderboard_help import by_name, finish, sweep_of

FINALS = {"gspo": 0.47, "gspox2": 0.53, "hacpo": 0.68, "naive_source": 0.69}
ROLLOUTS = {"gspo": 15_360, "gspox2": 30_720, "hacpo": 15_360, "naive_source": 15_360}
NAMES = tuple(f"agent {place} {'of a very long name ' * 4}"[:80].strip() for place in range(8))
FACTS = {"verifier": "math/3", "questions": "5e" * 32, "versions": {"hacrl": "0.1.0 0123456789ab"}}


def several(owner: object) -> Sweep:
    """Four algorithms, three seeds, two benchmarks, one of the paper's; a run has failed."""
    chance = random.Random(3)
    sweep = sweep_of(owner, list(FINALS), [0, 1, 2], name="Four algorithms")
    for (algorithm, seed), run in by_name(sweep).items():
        if (algorithm, seed) == ("gspox2", 2):
            Run.objects.filter(pk=run.pk).update(state="failed", reason="out of memory at step 3")
            continue
        scores = {agent: FINALS[algorithm] + chance.gauss(0, 0.02) for agent in "AB"}
        further = {"MATH-500": {agent: score - 0.2 for agent, score in scores.items()}}
        samples = {"num_samples": 4, "estimates": {"pass@4": 0.9, "maj@4": 0.6}}
        finish(run, scores, 0.18, ROLLOUTS[algorithm], further=further, **samples, **FACTS)
    return sweep


def grid(owner: object) -> Sweep:
    """HACPO over alpha and K, beside GSPO, on two seeds."""
    chance = random.Random(4)
    request = launch_request(owner, name="Grid")
    sweep = Sweep.objects.create(owner=owner, name="Grid of alpha and K")
    for seed in (0, 1):
        base = launch_within(sweep, {**request, "algorithm": "gspo", "seed": seed})
        finish(base, {"A": 0.4 + seed / 90, "B": 0.44}, **FACTS)
        for alpha in (0.0, 1.0, 2.0):
            for window in (1, 5, 20):
                rule = {"name": "hacpo", "alpha": alpha, "capability_window": window}
                run = launch_within(sweep, {**request, "algorithm": rule, "seed": seed})
                score = 0.5 + 0.1 * alpha - 0.04 * alpha**2 + 0.002 * window + chance.gauss(0, 0.005)
                finish(run, {"A": score, "B": score + 0.05}, **FACTS)
    return sweep


def eight(owner: object) -> Sweep:
    """Eight agents with names of eighty letters; one seed."""
    group = make_group(owner, NAMES)
    sweep = sweep_of(owner, ["gspo", "hacpo"], [0], name="Eight agents", group=group.pk)
    for (algorithm, _), run in by_name(sweep).items():
        finish(run, {name: FINALS[algorithm] - place / 50 for place, name in enumerate(NAMES)}, **FACTS)
    return sweep


def main() -> None:
    number_by_process()
    owner = first_user()
    with transaction.atomic():  # the dispatcher never sees them waiting
        made = {"several": several(owner), "grid": grid(owner), "eight": eight(owner)}
    print(json.dumps({name: f"/leaderboard/board?sweep={sweep.pk}" for name, sweep in made.items()}))


if __name__ == "__main__":
    main()
