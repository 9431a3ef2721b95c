"""The Overview tab's data: lines in buckets, seed bands, other x axes, and what was said so far."""

from __future__ import annotations

import json
from math import sqrt

import pytest

from hacrl_web.insight.downsample import Buckets, downsample
from hacrl_web.insight.overview.overview import history, overview, positions, same_but_seed, seed_band
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.telemetry.shipper import Shipper
from tests.support.web import factories
from tests.support.web.factories import metrics, write_spool
from workers.contract.events import Body, Evaluation, Log, Progress


@pytest.fixture
def run(user) -> Run:
    return factories.make_run(user)


def store(run: Run, *bodies: Body, attempt: int = 1) -> Run:
    write_spool(run.run_dir, attempt, *bodies)
    Run.objects.filter(pk=run.pk).update(state="running", attempt=attempt)
    shipper = Shipper(run.pk, run.run_dir, attempt)
    while shipper.ship().lines:
        pass
    run.refresh_from_db()
    return run


class TestAnswer:
    def test_lines_share_their_grid_and_hide_no_value(self, run):
        bodies = [metrics(s, agent, reward=s / 8) for s in range(8) for agent in ("A", "B")]
        store(run, *bodies, metrics(3, "A", "B", omega=2.0))
        answer = overview(run, ["reward", "omega"], points=2)
        # steps 0 to 7 in at most 2 buckets: 0 to 3 and 4 to 7
        assert (answer["first"], answer["last"], answer["width"], answer["seq"]) == (0, 7, 4, run.last_seq)
        assert answer["grids"] == [[3, 7], [3]]
        reward = {"metric": "reward", "source": "", "grid": 0, "last": [0.375, 0.875]}
        reward |= {"low": [0.0, 0.5], "high": [0.375, 0.875]}
        omega = {"metric": "omega", "agent": "A", "source": "B", "last": [2.0]}
        assert answer["lines"] == [reward | {"agent": "A"}, omega | {"grid": 1}, reward | {"agent": "B"}]

    def test_continued_run_begins_with_the_lines_of_its_parent(self, user, run):
        store(run, *(metrics(s, reward=s / 8) for s in range(1, 7)), metrics(2, "B", reward=0.5))
        child = factories.make_run(user)
        Run.objects.filter(pk=child.pk).update(cloned_from=run, start_step=4)
        child.refresh_from_db()
        store(child, metrics(5, reward=0.9), metrics(6, reward=0.8))
        # of the parent steps 1 to 4 alone, then its own
        answer = overview(child, ["reward"])
        assert (answer["first"], answer["last"]) == (1, 6)
        assert answer["grids"] == [[1, 2, 3, 4, 5, 6], [2]]
        assert [line["last"] for line in answer["lines"]] == [[0.125, 0.25, 0.375, 0.5, 0.9, 0.8], [0.5]]
        assert overview(child, ["reward"], first=5, last=6)["grids"] == [[5, 6]]
        assert overview(child, ["reward"], x="rollouts")["grids"] == [[5, 6]]

    def test_zoom_narrows_the_buckets_to_the_points_themselves(self, run):
        store(run, *(metrics(s, reward=s / 8) for s in range(1, 65)))
        assert overview(run, ["reward"], points=8)["width"] == 16
        (line,) = (zoomed := overview(run, ["reward"], points=8, first=20, last=27))["lines"]
        assert zoomed["width"] == 1
        assert zoomed["grids"] == [list(range(20, 28))]
        assert line == {
            "metric": "reward",
            "agent": "A",
            "source": "",
            "grid": 0,
            "last": [s / 8 for s in range(20, 28)],
        }

    def test_many_lines_share_the_budget(self, run, monkeypatch):
        monkeypatch.setattr("hacrl_web.insight.overview.overview.BUDGET", 40)
        monkeypatch.setattr("hacrl_web.insight.overview.overview.LEAST_POINTS", 5)
        store(run, *(metrics(s, a, x=1.0) for s in range(100) for a in "AB"))
        assert overview(run, ["x"])["width"] == 8  # 20 points for each of 2 lines: 13 buckets of 8 steps
        assert overview(run, ["x"], points=10)["width"] == 16

    def test_steps_lie_where_their_progress_says(self, run):
        def progress(step: int, rollouts: int) -> Progress:
            return Progress(
                step=step, total_steps=9, elapsed_s=step * 2.5, eta_s=0, rollouts_generated=rollouts, tokens_generated=7
            )

        accuracy = Evaluation(step=0, agent="A", benchmark="b", metric="accuracy", value=0.5, correct=1, asked=2)
        store(run, accuracy, metrics(1, x=1.0), progress(1, 8), metrics(2, x=2.0), progress(2, 16), metrics(3, x=3.0))
        store(run, metrics(2, x=2.0), progress(2, 24), attempt=2)
        assert overview(run, ["x", "accuracy"], x="rollouts")["x"] == {
            "steps": [0, 1, 2, 3],
            "values": [0, 8, 24, None],
        }
        assert positions(run, [1, 2], "elapsed") == [2.5, 5.0]
        assert positions(run, [1], "tokens") == [7]

    def test_run_without_points_has_an_empty_answer(self, run):
        answer = overview(run, ["reward"], x="tokens", over_seeds="ci")
        assert (answer["lines"], answer["bands"], answer["grids"]) == ([], [], [])


def seeds_of_a_sweep(user, *lines: list[float], **changes) -> list[Run]:
    sweep = Sweep.objects.create(owner=user, name="sweep")
    made = []
    for seed, values in enumerate(lines):
        run = factories.make_run(user, **changes | {"seed": seed})
        Run.objects.filter(pk=run.pk).update(sweep=sweep)
        made.append(store(run, *(metrics(step, x=value) for step, value in enumerate(values, 1))))
    return made


class TestSeeds:
    def test_bands_worked_by_hand(self):
        lines = [downsample([1, 2], [0.4, 1.0], 1), downsample([1, 2], [0.5, 3.0], 1), downsample([1], [0.6], 1)]
        assert seed_band(lines, 1, "range") == Buckets(
            [1, 2], low=[0.4, 1.0], high=[0.6, 3.0], last=[pytest.approx(0.5), 2.0]
        )
        found = seed_band(lines, 1, "ci")
        # step 1: mean 0.5, standard deviation 0.1, t95(2) = 4.303; step 2: mean 2, deviation sqrt 2, t95(1) = 12.706
        assert found.low == [pytest.approx(0.5 - 4.303 * 0.1 / sqrt(3)), pytest.approx(2 - 12.706)]
        assert found.high == [pytest.approx(0.5 + 4.303 * 0.1 / sqrt(3)), pytest.approx(2 + 12.706)]
        assert seed_band(lines[2:], 1, "range").steps == []  # one seed has no band

    def test_siblings_differ_in_nothing_but_the_seed(self, user):
        spec = factories.launch_request(user)
        one, two, three, retried = [factories.make_run(user, **spec | {"seed": seed}) for seed in (5, 6, 7, 6)]
        other_rule = factories.make_run(user, **spec | {"seed": 8, "algorithm": {"name": "gspo"}})
        other_alpha = factories.make_run(user, **spec | {"seed": 9, "algorithm": {"name": "hacpo", "alpha": 2.0}})
        elsewhere = factories.make_run(user, **spec | {"seed": 10})
        assert same_but_seed(one) == [one]  # in no sweep
        sweep = Sweep.objects.create(owner=user, name="sweep")
        inside = [one, two, three, retried, other_rule, other_alpha]
        Run.objects.filter(pk__in=[run.pk for run in inside]).update(sweep=sweep)
        for run in (*inside, elsewhere):
            run.refresh_from_db()
        assert same_but_seed(one) == [one, retried, three]  # the newest of seed 6
        assert same_but_seed(two) == [one, two, three]  # but a run is its own
        assert same_but_seed(other_alpha) == [other_alpha]

    def test_band_is_over_the_seeds_and_names_them(self, user, monkeypatch):
        spec = factories.launch_request(user)
        one, *_ = seeds_of_a_sweep(user, [0.5, 0.5], [0.25, 0.75], [1.0], **spec)
        answer = overview(one, ["x"], over_seeds="range")
        (found,) = answer["bands"]
        assert found["seeds"] == [0, 1, 2]
        assert (found["low"], found["high"], found["grid"]) == ([0.25, 0.5], [1.0, 0.75], 0)
        assert answer["lines"][0]["last"] == [0.5, 0.5]
        assert overview(one, ["x"])["bands"] == []


class TestApi:
    @pytest.fixture
    def web(self, client, user):
        client.force_login(user)
        return client

    def test_two_calls_have_the_same_bytes(self, web, run):
        store(run, *(metrics(s, a, x=s / 7, y=s / 3) for s in range(300) for a in "AB"))
        address = f"/api/v1/runs/{run.pk}/buckets?metric=x&metric=y&points=100"
        first = web.get(address)
        assert first.status_code == 200
        assert first.content == web.get(address).content
        assert all(len(line["last"]) <= 100 for line in first.json()["lines"])

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("", "metric"),
            ("metric=" + "&metric=".join("x" * 65), "metric"),
            ("metric=" + "x" * 300, "metric"),
            ("metric=x&points=0", "points"),
            ("metric=x&points=1501", "points"),
            ("metric=x&first=-1", "first"),
            ("metric=x&last=99999999999999999999", "last"),
            ("metric=x&first=5&last=4", "first"),
            ("metric=x&x=age", "x"),
            ("metric=x&band=std", "band"),
        ],
    )
    def test_odd_questions_are_refused_with_their_field(self, web, run, query, field):
        answer = web.get(f"/api/v1/runs/{run.pk}/buckets?{query}")
        assert answer.status_code == 422
        assert answer.json()["error"]["field"].startswith(field)

    def test_history_is_what_was_said_without_the_numbers(self, web, run, monkeypatch):
        said = [Log(message=f"line {number}") for number in range(4)]
        trouble = Log(level="warning", message="trouble", incident="damaged file")
        store(run, trouble, said[0], metrics(1, x=1.0), *said[1:])
        answer = web.get(f"/api/v1/runs/{run.pk}/history").json()
        assert answer["seq"] == run.last_seq == 6
        assert [event["seq"] for event in answer["events"]] == [1, 2, 4, 5, 6]
        assert set(answer["events"][0]) == {"seq", "attempt", "type", "step", "agent", "source", "time", "payload"}
        monkeypatch.setattr("hacrl_web.insight.overview.overview.MAX_LINES", 2)
        # the newest two lines, and the incident however old
        assert [event["payload"]["message"] for event in history(run, 6)] == ["trouble", "line 2", "line 3"]
        assert [event["seq"] for event in history(run, 4)] == [1, 2, 4]
        assert json.dumps(answer)


def test_a_run_before_its_first_step_shows_its_phases_and_downloads_only_of_hub_models(web, user):
    run = factories.make_run(user)
    html = web.get(run.get_absolute_url()).content.decode()
    assert 'data-phase="queue" data-phase-state="now"' in html
    assert 'data-phase="download"' not in html
    spec = run.spec | {"agents": [agent | {"model": "org/model"} for agent in run.spec["agents"]]}
    Run.objects.filter(pk=run.pk).update(spec=spec, state="starting")
    html = web.get(run.get_absolute_url()).content.decode()
    assert 'data-phase="download"' in html
    assert 'data-phase="load" data-phase-state="now"' in html
    for changes in ({"step": 1}, {"step": 0, "state": "failed"}, {"state": "draft"}):
        Run.objects.filter(pk=run.pk).update(**changes)
        assert 'id="starting"' not in web.get(run.get_absolute_url()).content.decode()
