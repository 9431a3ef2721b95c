"""How busy live updates keep a browser: a run page of 8 charts with 4 lines of 1,500 points, 4 new steps a second.

    python -m tests.bench.live_charts [--seconds 20] [--smooth 0.6] [--agents 4]

A real `up` over a data folder of its own, a run of generated events that goes on while it is watched, and Chromium
without a GPU. Busy is the share of the time in which the page's main thread ran tasks, painting included (Chromium's
own counter TaskDuration); on a machine that has other work too, "of a processor" leaves out the time in which it was
kept waiting. Frames are those that the page was called for. Aims: below 20 % busy and above 50 frames/s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import cos
from typing import Any

from tests.bench.product import ROOT, environment, logged_in, running

UPDATES_PER_S = 4
BEFORE = 1420  # steps that are stored when the page is opened: nearly as many points as an answer may hold
METRICS = ("capability", "entropy", "kl", "grad_norm", "completions/mean_length")
FRAMES = (
    "() => { window.frames_ = 0; const tick = () => { window.frames_ += 1; requestAnimationFrame(tick); }; tick(); }"
)


def events_of(step: int, agents: list[str]) -> Iterator[dict[str, Any]]:
    """What a trainer tells of a step: numbers for each of the charts of an agent."""
    for place, agent in enumerate(agents):
        values = {name: abs(cos(step * (place + 2) / 97 + number)) for number, name in enumerate(METRICS)}
        ratios = {"reward/mean": [step % 61, 64], "frac_reward_zero_std": [step % 7, 8]}
        yield {"type": "metrics", "step": step, "agent": agent, "values": values, "ratios": ratios}
        accuracy = {"benchmark": "b", "metric": "accuracy", "value": step % 50 / 50, "correct": 1, "asked": 2}
        yield {"type": "evaluation", "step": step, "agent": agent, **accuracy, "slices": {}}
    done = {"elapsed_s": step / 4, "eta_s": 9.0, "rollouts_generated": 64 * step, "tokens_generated": 700 * step}
    yield {"type": "progress", "step": step, "total_steps": 100_000, **done, "phase_s": {}}


def feed(agents: list[str], seconds: float) -> None:
    """In a process of its own: make the run, print its id, and go on with it, 4 steps a second."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import transaction

    from hacrl_web.runs.models import Run
    from hacrl_web.runs.pubsub import publish_update
    from hacrl_web.runs.telemetry.tables import insert
    from tests.support.web import factories

    seq = 0

    def store(run: Run, first: int, last: int) -> None:
        nonlocal seq
        bodies = [body for step in range(first, last + 1) for body in events_of(step, agents)]
        records = [{"seq": seq + n, "attempt": 1, "time": time.time(), **body} for n, body in enumerate(bodies, 1)]
        with transaction.atomic():
            insert(run.pk, records)
            seq += len(records)
            Run.objects.filter(pk=run.pk).update(last_seq=seq, step=last, total_steps=100_000, progress={})

    owner = get_user_model().objects.order_by("pk")[0]
    with transaction.atomic():
        request = factories.launch_request(owner, name="Live", group=factories.make_group(owner, tuple(agents)).pk)
        run = factories.make_run(owner, **request | {"algorithm": {"name": "gspo", "beta": 0.01}})
        # Nobody holds it and nobody looks for it: a paused run, whose events come from here.
        Run.objects.filter(pk=run.pk).update(state="paused", desired_state="pause", attempt=1)
    store(run, 1, BEFORE)
    print(run.pk, flush=True)
    due, step = time.monotonic(), BEFORE
    while time.monotonic() < due + seconds:
        step += 1
        store(run, step, step)
        publish_update(run.pk)
        time.sleep(max(0.0, due + (step - BEFORE) / UPDATES_PER_S - time.monotonic()))


def measure(url: str, login: str, run: str, seconds: float, query: str) -> dict[str, Any]:
    """Open the page, let it settle, and count."""
    with logged_in(url, login, viewport={"width": 1440, "height": 1400}) as page:  # all 8 charts are in sight
        page.goto(f"/runs/{run}{query}")
        page.wait_for_function("() => Number(document.querySelector('#charts').dataset.updates) > 4", timeout=60_000)
        page.evaluate(FRAMES)
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable")
        by_thread = page.context.new_cdp_session(page)
        by_thread.send("Performance.enable", {"timeDomain": "threadTicks"})

        def metrics(session: Any) -> dict[str, float]:
            return {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}

        def counted() -> tuple[float, ...]:
            found, processor = metrics(client), metrics(by_thread)
            data = page.evaluate("() => [frames_, Number(document.querySelector('#charts').dataset.updates)]")
            return (time.perf_counter(), found["TaskDuration"], processor["TaskDuration"], *data)

        before = counted()
        time.sleep(seconds)
        took, busy, processor, frames, updates = (b - a for a, b in zip(before, counted(), strict=True))
        charts = """() => import(document.querySelector("script[src*='js/run/run.js']").src).then(({ charts }) =>
            charts.charts.map((one) => [one.isSeen, one.lines.length, one.table.x.length]))"""
        drawn = page.evaluate(charts)
    return {
        "charts in sight": sum(seen for seen, _, _ in drawn),
        "lines": drawn[0][1],
        "points of a line": drawn[0][2],
        "updates/s": round(updates / took, 2),
        "busy %": round(100 * busy / took, 1),
        "of a processor %": round(100 * processor / took, 1),
        "frames/s": round(frames / took, 1),
        "load of the machine": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--smooth", type=float, default=0)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--feed", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="two seconds")
    arguments = parser.parse_args()
    arguments.seconds = 2 if arguments.smoke else arguments.seconds
    agents = [f"agent {place}" for place in range(arguments.agents)]
    if arguments.feed:
        return feed(agents, arguments.feed)
    with tempfile.TemporaryDirectory(prefix="hacrl-live-") as folder, running(folder) as (url, login):
        long_enough = str(arguments.seconds + 90)
        command = [sys.executable, "-m", "tests.bench.live_charts", "--agents", str(arguments.agents)]
        feeder = subprocess.Popen(
            [*command, "--feed", long_enough], cwd=ROOT, env=environment(folder), stdout=subprocess.PIPE, text=True
        )
        try:
            assert feeder.stdout is not None
            run = feeder.stdout.readline().strip()
            query = f"?smooth={arguments.smooth}" if arguments.smooth else ""
            print(json.dumps(measure(url, login, run, arguments.seconds, query), indent=1))
        finally:
            feeder.terminate()
            feeder.wait(timeout=60)
    return None


if __name__ == "__main__":
    main()
