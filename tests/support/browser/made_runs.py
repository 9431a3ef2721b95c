"""python -m tests.support.browser.made_runs: completed runs with numbers of a known shape, in a running product's
database.

Prints their ids as JSON: {"spike": one, "three": of three agents, "seeds": [three of one sweep]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import cos
from typing import Any

import django

LONG = 100_000
SPIKE_STEP, SPIKE = 73_211, 9.0
STEPS, SEEDS = 60, (0, 1, 2)


def spiked() -> Iterator[dict[str, Any]]:
    """A line of 100,000 points around 0.5 with one at 9."""
    for step in range(1, LONG + 1):
        value = SPIKE if step == SPIKE_STEP else 0.5 + cos(step / 900) / 7
        yield {"type": "metrics", "step": step, "agent": "A", "values": {"grad_norm": value}}


def three() -> Iterator[dict[str, Any]]:
    """A point of each pair of three agents."""
    for agent in "ABC":
        for source in "ABC".replace(agent, ""):
            shares = {"clip_lower_frac/positive": 0.75, "clip_lower_frac/negative": 0.25, "clip_upper_frac": 0.5}
            values = {"omega": 1.5} | shares
            yield {"type": "metrics", "step": 1, "agent": agent, "source": source, "values": values}


def learning(seed: int) -> Iterator[dict[str, Any]]:
    """Two agents and their pairs over 60 steps, evaluated every 20; numbers with many digits."""
    for step in range(1, STEPS + 1):
        for place, agent in enumerate(("A", "B")):
            rise = step / STEPS * (0.7 + place / 9) + seed / 70
            values = {"reward/mean": rise, "grad_norm": cos(step + place) / 3, "capability": rise / 1.1, "loss": -rise}
            values |= {"entropy": 1 - rise / 3, "completions/mean_length": 9 + rise}
            yield {"type": "metrics", "step": step, "agent": agent, "values": values}
            pair = {"type": "metrics", "step": step, "agent": agent, "source": "BA"[place]}
            yield pair | {"values": {"omega": 1 + rise, "used_frac": rise / 1.3}}
            if step % 20 == 0:
                yield {"type": "evaluation", "step": step, "agent": agent, "metric": "accuracy", "value": rise / 1.2}
        if step % 30 == 0:
            yield {"type": "checkpoint", "step": step, "path": f"checkpoints/step-{step:06d}", "size_bytes": 1}
        done = {"elapsed_s": step * 1.7, "eta_s": 0, "rollouts_generated": 64 * step, "tokens_generated": 700 * step}
        yield {"type": "progress", "step": step, "total_steps": STEPS, **done, "phase_s": {}}


def store(run: Any, bodies: Iterable[dict[str, Any]], attempt: int = 1) -> None:
    from hacrl_web.runs.telemetry.metric_series import pack_block
    from hacrl_web.runs.telemetry.tables import insert

    records = [{"seq": seq, "attempt": attempt, "time": 1.7e9 + seq, **body} for seq, body in enumerate(bodies, 1)]
    insert(run.pk, records)
    last = records[-1]
    changes = {"state": "completed", "attempt": attempt, "last_seq": last["seq"], "step": last["step"]}
    type(run).objects.filter(pk=run.pk).update(**changes, total_steps=last["step"])
    while pack_block(run):
        pass  # as the dispatcher does, when it comes to it


def add_alert(run: Any) -> None:
    """A delta trap from step 12 to the end of the run."""
    from django.utils import timezone

    from hacrl_web.alerts.models import ENDED, Alert

    times = {"raised_at": timezone.now(), "cleared_at": timezone.now(), "cleared_reason": f"{ENDED}: completed"}
    pair = {"agent": "A", "source": "B", "attempt": 1, "number": 1.0, "text": "A learns nothing from B."}
    Alert.objects.create(run=run, kind="cross_clip", raised_seq=1, raised_step=12, cleared_step=STEPS, **pair, **times)


def main() -> None:
    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import transaction

    from hacrl_web.runs.models import Sweep
    from tests.support.web import factories

    factories.number_by_process()
    owner = get_user_model().objects.order_by("pk")[0]
    with transaction.atomic():  # the dispatcher never sees them waiting
        request = factories.launch_request(owner, name="With a spike")
        spike = factories.make_run(owner, **request)
        store(spike, spiked())
        trio = factories.make_group(owner, ("A", "B", "C"))
        of_three = factories.make_run(owner, **request | {"name": "Three", "group": trio.pk})
        store(of_three, three())
        sweep = Sweep.objects.create(owner=owner, name="Three seeds")
        seeds = [factories.make_run(owner, **request | {"name": f"Seed {seed}", "seed": seed}) for seed in SEEDS]
        for run, seed in zip(seeds, SEEDS, strict=True):
            store(run, learning(seed))
            type(run).objects.filter(pk=run.pk).update(sweep=sweep)
        add_alert(seeds[0])
    print(json.dumps({"spike": str(spike.pk), "three": str(of_three.pk), "seeds": [str(run.pk) for run in seeds]}))


if __name__ == "__main__":
    main()
