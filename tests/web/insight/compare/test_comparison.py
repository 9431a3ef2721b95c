"""The Compare page: its table worked out by hand, its address the whole of it."""

from __future__ import annotations

import csv
import re

import pytest
from django.urls import reverse

from hacrl_web.insight.compare import comparison
from hacrl_web.insight.compare.lines import run_values
from hacrl_web.insight.settings_diff import SettingLine
from hacrl_web.runs.models import Run
from tests.support.web.factories import launch_request, make_run, metrics
from tests.support.web.insight_help import evaluation, store, stored
from workers.contract.events import Progress

pytestmark = pytest.mark.django_db


def two_runs(owner):
    """A of the first run: .25, .75, .5; B: .25, .25, .75.  Second: A .5, .5; B .25, .75.  Steps 0, 10, 20."""
    first = stored(
        owner,
        *(evaluation(10 * place, "A", value) for place, value in enumerate((0.25, 0.75, 0.5))),
        *(evaluation(10 * place, "B", value) for place, value in enumerate((0.25, 0.25, 0.75))),
        name="first",
    )
    second = stored(
        owner,
        *(evaluation(10 * place, "A", value) for place, value in enumerate((0.5, 0.5))),
        *(evaluation(10 * place, "B", value) for place, value in enumerate((0.25, 0.75))),
        name="second",
        algorithm={"name": "gspo"},
    )
    return first, second


def test_table_by_hand(owner):
    """Means of the first: .25, .5, .625; of the second: .375, .625. Differences to the second."""
    first, second = two_runs(owner)
    rows = comparison.comparison_table([first, second], "accuracy", second, lowest=False)
    shown = [(row.agent, row.best, row.best_step, row.last, row.last_step) for row in rows]
    assert shown == [
        (comparison.MEAN, 0.625, 20, 0.625, 20),
        ("A", 0.75, 10, 0.5, 20),
        ("B", 0.75, 20, 0.75, 20),
        (comparison.MEAN, 0.625, 10, 0.625, 10),
        ("A", 0.5, 0, 0.5, 10),  # the first of equals
        ("B", 0.75, 10, 0.75, 10),
    ]
    assert [(row.best_difference, row.last_difference) for row in rows[:3]] == [(0.0, 0.0), (0.25, 0.0), (0.0, 0.0)]
    assert {(row.best_difference, row.last_difference) for row in rows[3:]} == {(None, None)}
    lowest = comparison.comparison_table([first], "accuracy", first, lowest=True)
    assert [(row.best, row.best_step) for row in lowest] == [(0.25, 0), (0.25, 0), (0.25, 0)]


def test_agent_called_mean_is_not_taken_for_the_mean(owner):
    """Agents .5 and .25: their mean is .375. The baseline's are .25 and .25; differences .25 of the agent, .125."""
    first, second = (stored(owner, evaluation(0, "mean", value), evaluation(0, "B", 0.25)) for value in (0.5, 0.25))
    for run in (first, second):
        run.spec["agents"][0]["name"] = "mean"
    rows = comparison.comparison_table([first, second], "accuracy", second, lowest=False)
    shown = [(row.is_mean, row.agent, row.last, row.last_difference) for row in rows[:3]]
    assert shown == [(True, "", 0.375, 0.125), (False, "mean", 0.5, 0.25), (False, "B", 0.25, 0.0)]


def test_latest_attempt_of_a_step_wins_and_pairs_are_no_agents(owner):
    run = stored(owner, *(metrics(step, loss=1.0) for step in (1, 2, 3)), metrics(1, "A", "B", loss=9.0))
    store(run, metrics(2, loss=2.0), metrics(3, loss=None), attempt=2)
    assert run_values(run, {"loss"}, "each") == {("loss", "A"): {1: 1.0, 2: 2.0}}


def test_csv_is_the_table_and_no_cell_is_a_formula(client, owner):
    first, second = two_runs(owner)
    first.name = "=1+1"
    first.save()
    query = {"runs": [first.pk, second.pk], "baseline": second.pk}
    answer = client.get(reverse("insight:compare_csv"), query)
    lines = list(csv.reader(b"".join(answer.streaming_content).decode().splitlines()))
    assert lines[0][:10] == ["run", "name", "algorithm", "seed", "agent", "metric", "best", "step_of_best", "last",
                             "last_step"]  # fmt: skip
    assert lines[2] == [str(first.pk), "'=1+1", "hacpo", "1", "A", "accuracy", "0.75", "10", "0.5", "20", "0.25",
                        "0.0", str(second.pk)]  # fmt: skip
    assert len(lines) == 1 + 6


def compared(client, **query) -> str:
    """The page to which an address of the former Compare page leads."""
    answer = client.get(reverse("insight:compare"), query, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_former_address_shows_what_differs_and_links_keep_the_comparison(client, owner):
    first, second = two_runs(owner)
    page = compared(client, runs=[first.pk, second.pk], x="tokens", best="low")
    paths = re.findall(r'<th scope="row" class="mono">(.*?)</th>', page.replace("<wbr>", ""))
    assert "algorithm.name" in paths
    assert "training.steps" not in paths
    assert page.count("<strong>baseline</strong>") == 1  # gspo is the baseline unless another is chosen
    assert "Differences are to second" in page
    assert "Best (lowest)" in page
    [taken_out] = re.findall(r'href="(\?[^"]*)">Remove<span class="visually-hidden"> first<', page)
    after = client.get("/runs/" + taken_out.replace("&amp;", "&")).content.decode()
    assert re.findall(r'Remove<span class="visually-hidden"> (.*?)<', after) == ["second"]
    assert "x=tokens" in taken_out
    assert "best=low" in taken_out


def test_parallel_axes_are_shown_from_three_settings_on(client, owner):
    request = launch_request(owner)
    shared = {name: request[name] for name in ("group", "benchmark")}
    few = [make_run(owner, algorithm={"name": "hacpo", "delta": delta}, **shared) for delta in (0.25, 0.5)]
    assert "figure-parallel" not in compared(client, runs=[run.pk for run in few])
    other = make_run(owner, algorithm={"name": "hacpo", "delta": 0.5, "alpha": 2.0}, seed=7, **shared)
    assert "figure-parallel" in compared(client, runs=[few[0].pk, other.pk])


def test_setting_that_one_run_alone_has_is_listed_and_the_name_is_not(client, owner):
    request = launch_request(owner)
    shared = {name: request[name] for name in ("group", "benchmark")}
    hacpo = make_run(owner, name="swan", algorithm={"name": "hacpo", "delta": 0.5}, **shared)
    gspo = make_run(owner, name="heron", algorithm={"name": "gspo"}, **shared)
    Run.objects.filter(pk=hacpo.pk).update(variant="hacpo delta=0.5")
    page = compared(client, runs=[hacpo.pk, gspo.pk])
    rows = dict(re.findall(r'<tr><th scope="row" class="mono">(.*?)</th>(.*?)</tr>', page.replace("<wbr>", "")))
    assert "name" not in rows
    assert "algorithm.<wbr>cross_<wbr>advantage" in page  # a narrow screen breaks names there
    cells = re.findall(r"<td[^>]*>(.*?)</td>", rows["algorithm.delta"])
    assert sorted(re.sub(r"<[^>]*>", "", cell) for cell in cells) == [
        "0.5",
        "– (its algorithm does not have this setting)",
    ]
    assert page.count("hacpo delta=0.5, seed") == 2  # in the results and above the settings


def test_lines_over_tokens_stand_where_the_tokens_were(client, owner):
    totals = {"total_steps": 3, "eta_s": 0}
    progress = [
        Progress(step=s, elapsed_s=2.0 * s, rollouts_generated=8 * s, tokens_generated=100 * s * s, **totals)
        for s in (1, 2, 3)
    ]
    run = stored(owner, evaluation(0, "A", 0.1), *(metrics(s, loss=float(s)) for s in (1, 2, 3)), *progress)
    address = reverse("api-1:compare_lines")

    def line(**query):
        answer = client.get(address, {"runs": run.pk, **query})
        assert answer.status_code == 200
        return next((one["x"], one["y"]) for one in answer.json()["lines"] if one["agent"] == "A")

    assert line(metric="loss", x="tokens") == ([100, 400, 900], [1, 2, 3])
    assert line(metric="loss", x="time", low=3, high=5) == ([4], [2])
    assert line(metric="accuracy", x="rollouts") == ([0], [0.1])


def test_parallel_axes_scale_numbers_and_order_words():
    """lr .1, .3, .2 on an axis from .1 to .3; words in alphabetical order; a missing result leaves a gap."""
    assert comparison.scaled((0.1, 0.3, 0.2))[0] == pytest.approx([0, 1, 0.5])
    assert comparison.scaled(("b", "a", "c")) == ([0.5, 0.0, 1.0], [(0.0, "a"), (0.5, "b"), (1.0, "c")])
    assert comparison.scaled((None, 2.0, 4.0))[0] == [None, 0.0, 1.0]
    assert comparison.scaled((True, False)) == ([1.0, 0.0], [(0.0, "no"), (1.0, "yes")])
    drawn = comparison.parallel_axes(
        [
            SettingLine("name", ("x", "y")),
            SettingLine("w", ("a", "b")),
            SettingLine("n", (1, 2)),
            SettingLine("s", (1, 1.0)),
        ]
    )
    assert [line.path for line in drawn] == ["n", "w"]
    picture = comparison.parallel_figure(["<b>x</b>", "y"], [0, 3], drawn, [0.5, None], "m<i>")
    assert [trace["y"] for trace in picture["data"]] == [[0, 0, 0.5], [1, 1, None]]
    assert picture["layout"]["xaxis"]["ticktext"] == ["n", "w", "m&lt;i&gt;, last"]
    assert picture["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
    assert picture["data"][0]["text"][2] == "m&lt;i&gt;, last: 0.5"


def test_runs_of_another_user_and_odd_ids_are_404(client, owner):
    mine, foreign = make_run(owner), make_run()
    pages = [reverse("insight:compare"), reverse("insight:compare_csv"), reverse("api-1:compare_lines")]
    for page in pages:
        assert client.get(page, {"runs": mine.pk}, follow=True).status_code == 200
        for odd in (str(foreign.pk), "1", "", "\x00", "9" * 5000, "' OR 1=1", "00000000-0000-0000-0000-000000000000"):
            assert client.get(page, {"runs": [str(mine.pk), odd]}).status_code == 404, (page, odd)
    assert compared(client, runs=mine.pk, baseline=foreign.pk)


def test_odd_values_mean_what_is_usual_and_odd_bounds_are_refused(client, owner):
    first, _ = two_runs(owner)
    for odd in ("x", "\x00", "__import__", "9" * 5000, "payload__values", "'"):
        query = {"runs": first.pk, "metric": odd, "x": odd, "best": odd, "baseline": odd}
        assert "Best (highest)" in compared(client, **query)
    for odd in ("nan", "inf", "-1", "x", "1e400"):
        answer = client.get(reverse("api-1:compare_lines"), {"runs": first.pk, "low": odd})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "low")


def test_more_runs_than_the_table_compares_are_cut_and_it_is_said(client, owner, monkeypatch):
    monkeypatch.setattr(comparison, "MAX_RUNS", 2)
    runs = [make_run(owner, f"run {seed}", seed=seed) for seed in range(3)]
    page = compared(client, runs=[run.pk for run in runs])
    assert "3 runs are visible; the first 2 are compared" in page
    assert page.count(">Remove<span") == 2
    hidden = ",".join(run.pk.hex[:8] for run in runs)
    assert "No run is visible" in client.get(f"/runs/?tab=compare&hide={hidden}").content.decode()
