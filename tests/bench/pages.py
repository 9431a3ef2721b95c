"""How long pages and their data take at size: p95 of requests to generated runs, beside the aims.

    python -m tests.bench.pages [--full] [--postgres] [--requests 20] [--data FOLDER] [--only WORD]

--full: one run of 1,000,000 metric points, 500,000 rollouts and 1,000,000 contributions, and 10,000 small runs; else a
twentieth of that. --data: keep the generated data in FOLDER, or measure on what lies there; one folder for each
database. Requests go through all of the product's middleware in this process, without a network; each kind once before
it is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.postgres import private_postgresql

METRICS = (
    "reward/mean", "capability", "accuracy", "omega", "used_frac", "frac_reward_zero_std", "gradient_alignment",
    "clip_lower_frac/positive", "clip_lower_frac/negative", "clip_upper_frac/positive", "clip_upper_frac/negative",
    "clip_lower_frac", "clip_upper_frac", "kl", "completions/mean_length", "grad_norm", "entropy",
)  # fmt: skip
BIG = {"runs": 1, "prompts": 4, "generations": 5, "algorithms": "hacpo", "deltas": "0.8"}
SMALL = {"steps": 5, "prompts": 4, "generations": 2, "rollout_interval": 0, "seed": 1000}


class Page(NamedTuple):
    """What is asked for, and how long it may take, in milliseconds; 0: no aim of its own."""

    name: str
    path: str
    aim_ms: int


@contextlib.contextmanager
def database(is_postgres: bool, folder: str | None) -> Iterator[None]:
    """The product's database in a data folder; this process uses its models."""
    data = folder or tempfile.mkdtemp(prefix="hacrl-bench-")
    os.environ |= {"HACRL_DATA": data, "DJANGO_SETTINGS_MODULE": "hacrl_web.settings", "DATABASE_URL": ""}
    with contextlib.ExitStack() as stack:
        if not folder:
            stack.callback(shutil.rmtree, data, ignore_errors=True)
        if is_postgres:
            os.environ["DATABASE_URL"] = stack.enter_context(private_postgresql(Path(folder) if folder else None))
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        stack.callback(connection.close)  # before its server is stopped
        call_command("migrate", verbosity=0)
        yield


def fill(scale: float) -> None:
    """Generate what is not there yet, and pack it as the dispatcher would."""
    from django.core.management import call_command

    from hacrl_web.runs.models import Run
    from tools.generated_runs.command import Command

    if not Run.objects.exists():
        call_command(Command(), questions=0, **BIG, steps=int(12_500 * scale))
        call_command(Command(), questions=0, **SMALL, runs=int(10_000 * scale))
    began, packed = time.perf_counter(), 0
    while count := pack_round():
        packed += count
    if packed:
        print(f"{packed:,} events packed in {time.perf_counter() - began:.1f} s")
    sizes()


def pack_round() -> int:
    """One round over all runs; 0 where nothing is left."""
    from hacrl_web.runs.telemetry import table_upkeep

    table_upkeep.BUDGET_S, table_upkeep.RUNS_CHECKED = 600.0, 1_000_000
    return table_upkeep.TableUpkeep().pack()


def sizes() -> None:
    from django.db.models import Count, Sum
    from django.db.models.functions import Length

    from hacrl_web.runs.models import Contribution, MetricChunk, RolloutSample, Run

    counts = {model.__name__: model.objects.count() for model in (Run, RolloutSample, Contribution)}
    found = MetricChunk.objects.aggregate(Count("pk"), points=Sum("count"), size=Sum(Length("packed")))
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()), end="; ")
    per_point = (found["size"] or 0) / max(1, found["points"] or 0)
    print(f"{found['pk__count']:,} chunks of {found['points'] or 0:,} points, {per_point:.2f} bytes a point")


def pages() -> list[Page]:
    """What is measured; of a page that shows nothing a number would be worth nothing, so all are of full runs."""
    from django.urls import reverse

    from hacrl_web.runs.models import Run, Sweep

    big = Run.objects.order_by("-total_steps").first()
    assert big is not None, "nothing was generated"
    query = "&".join(f"metric={name}" for name in METRICS)
    buckets = f"{reverse('api-1:get_buckets', args=[big.pk])}?{query}"
    rollouts, what_if = (reverse(f"insight:{name}", args=[big.pk]) for name in ("run_rollouts", "run_what_if"))
    hypothesis = f"{reverse('api-1:what_if', args=[big.pk])}?alpha=2&delta=0.3"
    last, middle = big.total_steps, big.total_steps // 2
    small = Sweep.objects.order_by("-pk")[1]  # the last one may have few runs
    together = reverse("api-1:get_collaboration", args=[big.pk])
    return [
        Page("run page", reverse("runs:run_detail", args=[big.pk]), 0),
        Page("charts, all of the run", buckets, 1500),
        Page("charts, a tenth of the run", f"{buckets}&first={middle}&last={middle + last // 10}", 1500),
        Page("charts over tokens", f"{buckets}&x=tokens", 1500),
        Page("log and reports of the run", reverse("api-1:get_history", args=[big.pk]), 300),
        Page("runs list", reverse("runs:run_list"), 500),
        Page("runs list, last page", reverse("runs:run_list") + "?page=99999", 500),
        Page("runs list, searched", reverse("runs:run_list") + "?q=gspox2", 500),
        Page("runs list, failed ones", reverse("runs:run_list") + "?state=failed", 500),
        Page("home", reverse("home"), 300),
        Page("rollouts", rollouts, 500),
        Page("rollouts of a step and agent", f"{rollouts}?step={middle}&agent=Generated+A", 500),
        Page("rollouts clipped above, A < 0", f"{rollouts}?clip=upper&sign=negative", 500),
        Page("rollouts with a great advantage", f"{rollouts}?min_advantage=2.5", 500),
        Page("rollouts of a step by weight", f"{rollouts}?step={middle}&learner=Generated+A&sort=weight", 500),
        Page("shared rollouts with a text by weight", f"{rollouts}?sort=weight&shared=yes&q=boxed", 500),
        Page("rollouts that hold a text", f"{rollouts}?q=boxed%7B777", 500),
        Page("rollouts that do not exist", f"{rollouts}?min_advantage=99", 500),
        Page("what-if page", what_if, 500),
        Page("what-if, the last 10 steps", f"{hypothesis}&first={last - 9}&last={last}", 300),
        Page("what-if, all steps", hypothesis, 300),
        Page("collaboration over all steps", together, 500),
        Page("collaboration, one step", f"{together}/step?step={middle}", 300),
        Page("leaderboard", reverse("leaderboard:index"), 500),
        Page("leaderboard, searched", reverse("leaderboard:index") + "?q=generated", 500),
        Page("board of a sweep", f"{reverse('leaderboard:board')}?sweep={small.pk}", 300),
        Page("report of 20 panels", report_of(small).get_absolute_url(), 500),
    ]


def report_of(sweep: Any) -> Any:
    """A report of as many panels as there can be, of every kind."""
    from django.urls import reverse

    from hacrl_web.reports.models import Report
    from hacrl_web.reports.panels import MAX_PANELS

    run, comparison = sweep.runs.first().get_absolute_url(), f"{reverse('runs:run_list')}?tab=compare"
    board, of_sweep = f"{reverse('leaderboard:board')}?sweep={sweep.pk}", sweep.get_absolute_url()
    text = "\n\n".join([comparison, board, run, of_sweep] * (MAX_PANELS // 4))
    owner = {"owner": sweep.owner, "project": sweep.project}
    return Report.objects.update_or_create(title="Report of the bench", **owner, defaults={"text": text})[0]


def measure(page: Page, requests: int, client: Any) -> dict[str, Any]:
    """Milliseconds of the first request, and of those after it: on the wall, and of this process' processor time."""
    walls, cpus, body = [], [], b""
    for _ in range(requests + 1):
        began, cpu_began = time.perf_counter(), time.process_time()
        response = client.get(page.path)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        walls.append(1000 * (time.perf_counter() - began))
        cpus.append(1000 * (time.process_time() - cpu_began))
        assert response.status_code == 200, f"{page.path}: {response.status_code}"
    found = {"first": walls[0], "p50": quantile(walls[1:], 0.5), "p95": quantile(walls[1:], 0.95)}
    return found | {"cpu": quantile(cpus[1:], 0.95), "kib": len(body) / 1024}


def quantile(numbers: list[float], share: float) -> float:
    return sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the aims")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    parser.add_argument("--requests", type=int, default=20, help="measured requests of each kind (default 20)")
    parser.add_argument("--data", help="keep the generated data in this folder, and use what is there")
    parser.add_argument("--only", default="", help="only pages whose name holds this")
    parser.add_argument("--smoke", action="store_true", help="few rows, three requests")
    options = parser.parse_args()
    options.requests = 3 if options.smoke else options.requests
    kind = f"Python {platform.python_version()}; {'PostgreSQL' if options.postgres else 'SQLite'}"
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {kind}")
    with database(options.postgres, options.data and str(Path(options.data).resolve())):
        fill(1.0 if options.full else 0.002 if options.smoke else 0.05)
        from django.test import Client

        from hacrl_web.accounts.models import first_user
        from hacrl_web.ops.web_process import freeze_loaded_modules

        freeze_loaded_modules()
        client = Client(HTTP_HOST="localhost")
        client.force_login(first_user())
        print(f"{'':34} {'first':>7} {'p50':>7} {'p95':>7} {'CPU p95':>7} {'aim':>6}  ms, {options.requests} requests")
        missed = 0
        for page in pages():
            if options.only in page.name:
                found = measure(page, options.requests, client)
                is_missed = bool(page.aim_ms) and found["p95"] > page.aim_ms
                missed += is_missed
                numbers = " ".join(f"{found[name]:7.0f}" for name in ("first", "p50", "p95", "cpu"))
                mark = "MISSED" if is_missed else ""
                print(f"{page.name:34} {numbers} {page.aim_ms or '-':>6} {found['kib']:7.0f} KiB {mark}", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}; {missed} aims missed")
    sys.exit(bool(missed) and not options.smoke)


if __name__ == "__main__":
    main()
