"""Lines of several runs over each other, and means of groups with their intervals, by hand."""

from __future__ import annotations

import pytest

from hacrl_web.insight.compare.lines import mean_curve, overlaid_lines
from tests.support.web.factories import make_run, metrics
from tests.support.web.insight_help import stored
from workers.contract.events import Progress

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/compare/lines"


def of_losses(owner, *losses: tuple[float, float], **more):
    """A run whose agents A and B have these losses from step 1 on."""
    events = [
        metrics(step, agent, loss=value)
        for step, both in enumerate(losses, 1)
        for agent, value in zip("AB", both, strict=True)
    ]
    return stored(owner, *events, **more)


def test_line_of_a_run_is_the_mean_over_its_agents_or_one_for_each(client, owner):
    run = of_losses(owner, (1.0, 3.0), (2.0, 6.0))
    query = {"runs": run.pk, "metric": "loss"}
    [line] = client.get(ADDRESS, query).json()["lines"]
    assert line == {"metric": "loss", "group": 0, "agent": "", "runs": 1, "x": [1, 2], "y": [2.0, 4.0]}
    lines = client.get(ADDRESS, query | {"agents": "each"}).json()["lines"]
    assert [(one["agent"], one["y"]) for one in lines] == [("A", [1.0, 2.0]), ("B", [3.0, 6.0])]


def test_metric_of_pairs_is_the_mean_over_the_pairs(owner):
    run = stored(owner, metrics(1, "A", "B", used_frac=0.25), metrics(1, "B", "A", used_frac=0.75))
    [line] = overlaid_lines([run], ["used_frac"])
    assert (line["x"], line["y"]) == ([1.0], [0.5])


def test_group_is_a_mean_with_its_interval(client, owner):
    """Step 1: 1 and 3, mean 2, half width 12.706 x 1.41421 / 1.41421 = 12.706. Step 2: one run of two, no interval."""
    runs = [of_losses(owner, (1.0, 1.0), (5.0, 5.0)), of_losses(owner, (3.0, 3.0)), of_losses(owner, (7.0, 7.0))]
    query = {"runs": [run.pk for run in runs], "metric": "loss", "group": [0, 0, 1]}
    first, second = client.get(ADDRESS, query).json()["lines"]
    assert (first["group"], first["runs"], first["x"], first["y"]) == (0, 2, [1, 2], [2.0, 5.0])
    assert first["low"] == pytest.approx([2 - 12.706, 5.0])
    assert first["high"] == pytest.approx([2 + 12.706, 5.0])
    assert (second["group"], second["y"], second["low"]) == (1, [7.0], [7.0])


def test_step_of_fewer_than_half_of_the_runs_is_left_out():
    places = [{1: 1.0, 2: 2.0}] * 3
    curve = mean_curve([{1: 1.0, 2: 9.0}, {1: 2.0}, {1: 3.0}], places, has_band=True)
    assert (curve.x, curve.y) == ([1.0], [2.0])  # step 2: one of three
    assert mean_curve([{}, {}], places[:2], has_band=False).x == []


def test_other_axis_and_bounds(client, owner):
    progress = [
        Progress(step=s, elapsed_s=2.0 * s, rollouts_generated=8 * s, tokens_generated=100 * s, total_steps=3, eta_s=0)
        for s in (1, 2, 3)
    ]
    run = stored(owner, *(metrics(s, loss=float(s)) for s in (1, 2, 3)), *progress)
    query = {"runs": run.pk, "metric": "loss", "x": "tokens", "low": 150, "high": 250}
    [line] = client.get(ADDRESS, query).json()["lines"]
    assert (line["x"], line["y"]) == ([200], [2.0])


def test_runs_of_others_are_404_and_odd_requests_are_refused(client, owner):
    mine, foreign = make_run(owner), make_run()
    assert client.get(ADDRESS, {"runs": [mine.pk, foreign.pk], "metric": "loss"}).status_code == 404
    assert client.get("/api/v1/compare/metrics", {"runs": foreign.pk}).status_code == 404
    for odd in ({"runs": "x"}, {"metric": []}, {"group": [1, 2]}, {"x": "time"}, {"agents": "all"}):
        answer = client.get(ADDRESS, {"runs": mine.pk, "metric": "loss"} | odd)
        assert answer.status_code == 422, odd


def test_recorded_metrics_are_those_of_any_of_the_runs(client, owner):
    runs = [stored(owner, metrics(1, loss=1.0)), stored(owner, metrics(1, kl=1.0), metrics(1, "A", "B", used_frac=0.5))]
    answer = client.get("/api/v1/compare/metrics", {"runs": [run.pk for run in runs]}).json()["metrics"]
    assert [(one["metric"], one["is_pair"]) for one in answer] == [("kl", False), ("loss", False), ("used_frac", True)]
