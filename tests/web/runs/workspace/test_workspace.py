"""The workspace of runs: columns, groups with their means, visible rows and their colours, saved views."""

from __future__ import annotations

import json
import re

import pytest

from hacrl_web.runs.models import RunView
from hacrl_web.runs.workspace.query import WorkspaceQuery
from hacrl_web.runs.workspace.rows import NUM_COLOURS, colours_of, shown_keys
from tests.support.web.factories import make_member, make_run, make_user
from tests.support.web.page_text import text_of
from tests.web.runs.workspace.test_run_list import evaluated, names
from tests.web.runs.workspace.test_run_list import owner as owner

pytestmark = pytest.mark.django_db


def heads(page: str) -> list[str]:
    return re.findall(r'<a class="sort"[^>]*>([^<]+)', page)


def group_rows(page: str) -> list[str]:
    return re.findall(r'class="fold"[^>]*>([^<]+)<', page)


def visible(page: str) -> list[str]:
    return re.findall(r'aria-pressed="true"[^>]*aria-label="Show (.*?) in the panels"', page)


def test_columns_are_those_of_the_address_and_settings_are_columns_too(client, owner):
    for rate in (0.5, 0.25):
        make_run(owner, algorithm={"name": "hacpo", "delta": rate})
    assert heads(text_of(client.get("/runs/"))) == ["Run", "State", "Accuracy", "Time"]
    page = text_of(client.get("/runs/?columns=seed,algorithm.delta,nonsense,a..b,state"))
    assert heads(page) == ["Run", "Seed", "algorithm.delta", "State"]
    assert re.findall(r'data-label="algorithm.delta">([^<]+)<', page) == ["0.25", "0.5"]
    assert heads(text_of(client.get("/runs/?columns=-"))) == ["Run"]


def test_runs_are_sorted_by_a_setting_as_numbers(client, owner):
    for delta in (0.5, 0.25, 0.125):
        make_run(owner, name=str(delta), algorithm={"name": "hacpo", "delta": delta})
    make_run(owner, name="none", algorithm={"name": "gspo"})
    page = text_of(client.get("/runs/?sort=-algorithm.delta"))
    assert names(page) == ["0.5", "0.25", "0.125", "none"]  # runs without the setting come last
    assert names(text_of(client.get("/runs/?sort=algorithm.delta"))) == ["0.125", "0.25", "0.5", "none"]


def test_settings_that_differ_are_offered_and_others_are_not(client, owner):
    for delta in (0.5, 0.25):
        make_run(owner, algorithm={"name": "hacpo", "delta": delta})
    page = text_of(client.get("/runs/"))
    assert re.search(r'type="checkbox" value="algorithm.delta"', page)
    assert 'value="training.steps"' not in page


def test_group_shows_the_mean_and_its_interval_by_hand(client, owner):
    """hacpo .6 and .8: mean .700, half width 12.706 x .1 = 1.271 (t of 1 degree, deviation .1414 / sqrt 2); gspo .5."""
    for algorithm, right in (("hacpo", 6), ("hacpo", 8), ("gspo", 5)):
        evaluated(make_run(owner, algorithm={"name": algorithm}), (0, right, right))
    page = text_of(client.get("/runs/?by=algorithm&sort=-score"))
    assert group_rows(page) == ["hacpo", "gspo"]
    assert "<strong>0.700</strong>" in page
    assert "± 1.271" in page
    assert page.count("±") == 1  # one run has no interval
    assert "2 runs" in page


def test_runs_are_grouped_by_two_settings_at_once(client, owner):
    for delta, seed in ((0.5, 1), (0.5, 2), (0.25, 1)):
        make_run(owner, algorithm={"name": "hacpo", "delta": delta}, seed=seed)
    page = text_of(client.get("/runs/?by=algorithm.delta&by=seed&sort=name"))
    assert sorted(group_rows(page)) == ["delta 0.25 · seed 1", "delta 0.5 · seed 1", "delta 0.5 · seed 2"]
    assert group_rows(text_of(client.get("/runs/?by=no such"))) == []


@pytest.mark.parametrize(
    "odd", ["a.b", "agents.0.name", "agents.999.name", "agents.99999999999999999999.x", "x.'", "."]
)
def test_odd_settings_in_the_address_show_the_list(client, owner, odd):
    make_run(owner, name="swan")
    for field in ("sort", "columns", "by"):
        assert "swan" in text_of(client.get("/runs/", {field: odd}))


def test_first_ten_rows_are_visible_and_the_address_switches_others(client, owner):
    runs = [make_run(owner, name=f"run {place}") for place in range(12)]
    newest = [f"run {place}" for place in range(11, 1, -1)]
    assert visible(text_of(client.get("/runs/"))) == newest
    query = f"show={runs[0].pk.hex[:8]}&hide={runs[11].pk.hex[:8]}"
    assert visible(text_of(client.get(f"/runs/?{query}"))) == [*newest[1:], "run 0"]


def test_colour_of_a_row_is_its_own_while_others_come_and_go():
    keys = [f"k{place}" for place in range(12)]
    colours = colours_of(keys, keys[:10])
    assert list(colours.values()) == list(range(10)), "the first six solid, then the same ones dashed"
    assert sorted(colours_of(keys, keys).values()) == list(range(NUM_COLOURS))
    assert colours_of(keys, keys[3:6]) == {key: colours[key] for key in keys[3:6]}
    # k7 would have the colour of k1; it takes the next one that is free.
    assert colours_of(keys, ["k1", "k7"]) == {"k1": 1, "k7": 2}
    assert shown_keys(keys, WorkspaceQuery(show="k11", hide="k0")) == [*keys[1:10], "k11"]


def test_links_keep_the_whole_address(client, owner):
    make_run(owner)
    page = text_of(client.get("/runs/?by=algorithm&panels=*accuracy:l&smooth=0.5&columns=seed&x=tokens"))
    links = re.findall(r'class="sort" href="([^"]*)"', page)
    assert links
    for link in links:
        assert {"by=algorithm", "panels=%2Aaccuracy%3Al", "smooth=0.5", "x=tokens"} <= set(link[1:].split("&amp;"))


def test_saved_view_opens_the_same_runs_for_everybody_in_the_project(client, owner):
    run = make_run(owner, name="swan")
    make_run(owner, name="duck")
    answer = client.post("/run-views/save", {"name": " Birds ", "query": "q=swan&by=seed&nonsense=1"})
    assert answer["Location"] == "/runs/?q=swan&by=seed"
    client.force_login(make_member(run.project, "viewer"))
    page = text_of(client.get("/runs/?q=swan&by=seed"))
    assert "<h1>Birds</h1>" in page
    assert names(page) == ["swan"]
    assert 'href="/runs/?q=swan&amp;by=seed"' in text_of(client.get("/runs/"))
    assert "view-save" not in page  # a viewer saves none
    assert client.post("/run-views/save", {"name": "mine", "query": ""}).status_code == 403


def test_views_by_api_replace_by_name_and_are_refused_without_one(client, owner):
    make_run(owner)

    def post(name, query=""):
        body = json.dumps({"name": name, "query": query})
        return client.post("/api/v1/run-views", body, content_type="application/json")

    first = post("best", "?tag=best&sort=-score").json()
    assert first["query"] == "tag=best&sort=-score"
    assert post("best", "q=swan").json()["id"] == first["id"]
    assert [one["query"] for one in client.get("/api/v1/run-views").json()["items"]] == ["q=swan"]
    assert (post(" ").status_code, post("x" * 81).status_code) == (422, 422)
    client.force_login(make_user())
    assert client.delete(f"/api/v1/run-views/{first['id']}").status_code == 404
    client.force_login(owner)
    assert client.delete(f"/api/v1/run-views/{first['id']}").status_code == 204
    assert not RunView.objects.exists()


def test_deleting_a_view_keeps_its_runs(client, owner):
    make_run(owner, name="swan")
    client.post("/run-views/save", {"name": "all", "query": ""})
    client.post(f"/run-views/{RunView.objects.get().pk}/delete")
    assert not RunView.objects.exists()
    assert names(text_of(client.get("/runs/"))) == ["swan"]


def test_api_finds_runs_by_a_part_of_their_name(client, owner):
    for name in ("swan", "duck"):
        make_run(owner, name=name)
    assert [run["name"] for run in client.get("/api/v1/runs?q=WA").json()["items"]] == ["swan"]
