"""Importance of a search's settings: what mattered is first, chance has a wide range, and too little data says so."""

from __future__ import annotations

from random import Random

import pytest

from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.models import Sweep, Trial
from hacrl_web.runs.sweeps.advance import SearchAdvancer
from hacrl_web.runs.variants.importance import importance_of, why_none
from tests.support.web.page_text import text_of
from tests.web.runs.sweeps.test_search import search_request
from tests.web.runs.variants.test_parameters import ALPHA, RATE, settings

PARAMETERS = {RATE: "1e-6..1e-4 log", ALPHA: "0..1", "cross_gate": ["hacpo", "signed"]}


def search_trials(number: int, objective) -> list[Trial]:
    """Completed trials at random points; objective: of the values by name."""
    draw = Random(7)
    points = [
        {RATE: 10 ** draw.uniform(-6, -4), ALPHA: draw.random(), "cross_gate": draw.choice(["hacpo", "signed"])}
        for _ in range(number)
    ]
    return [
        Trial(number=n, parameters=point, state="completed", value=objective(point)) for n, point in enumerate(points)
    ]


def test_setting_that_decides_the_objective_has_the_largest_share_and_a_narrow_range():
    counted = importance_of(settings(parameters=PARAMETERS), search_trials(30, lambda point: 1 - point[ALPHA]))
    shares = counted["shares"]
    assert counted["trials"] == 30
    assert sum(one["share"] for one in shares.values()) == pytest.approx(1, abs=1e-3)
    assert max(shares, key=lambda name: shares[name]["share"]) == ALPHA
    assert shares[ALPHA]["low"] > 0.5
    assert all(one["low"] <= one["share"] <= one["high"] for one in shares.values())
    assert counted == importance_of(settings(parameters=PARAMETERS), search_trials(30, lambda p: 1 - p[ALPHA]))


def test_ranges_overlap_where_no_setting_matters():
    chance = Random(3)
    shares = importance_of(settings(parameters=PARAMETERS), search_trials(20, lambda _: chance.random()))["shares"]
    assert max(one["low"] for one in shares.values()) < min(one["high"] for one in shares.values())


def test_too_few_trials_one_setting_and_equal_objectives_have_no_shares_and_say_why():
    few = search_trials(9, lambda point: point[ALPHA])
    assert importance_of(settings(parameters=PARAMETERS), few) == {"trials": 9, "shares": {}}
    pruned = [Trial(number=n, parameters=few[0].parameters, state="pruned", value=n) for n in range(20)]
    assert importance_of(settings(parameters=PARAMETERS), few + pruned)["trials"] == 9
    assert importance_of(settings(parameters=PARAMETERS), search_trials(12, lambda _: 0.5))["shares"] == {}
    assert importance_of(settings(parameters={ALPHA: "0..1"}), search_trials(12, lambda p: p[ALPHA]))["shares"] == {}
    assert why_none(3, 9) == "Importance needs 10 completed trials: there are 9 so far."
    assert "this search varies one" in why_none(1, 30)
    assert "reached the same" in why_none(3, 30)


@pytest.mark.django_db
def test_dispatcher_counts_after_trials_and_page_and_api_show_it(client, user):
    sweep = launch_sweep(user, search_request(user, trials=20, parameters={RATE: "1e-6..1e-4 log", "alpha": "0..1"}))
    draw = Random(1)
    for number in range(12):
        point = {RATE: 8e-6 * (1 + number), "alpha": draw.random()}
        values = {"parameters": point, "state": "completed", "value": 1 - point["alpha"]}
        Trial.objects.create(sweep=sweep, number=number, **values)
    Sweep.objects.filter(pk=sweep.pk).update(search_state="finished")  # also one that ended before it was counted
    assert Sweep.objects.get().importance is None
    SearchAdvancer().tick()
    client.force_login(user)
    importance = client.get(f"/api/v1/sweeps/{sweep.pk}").json()["search"]["importance"]
    assert importance["trials"] == 12
    assert importance["shares"]["alpha"]["share"] > importance["shares"][RATE]["share"]
    page = text_of(client.get(sweep.get_absolute_url()))
    assert "Importance of each setting" in page
    assert "the best quarter of 12 completed trials" in page
    Trial.objects.filter(sweep=sweep, number__gte=5).delete()
    Sweep.objects.filter(pk=sweep.pk).update(search_state="searching")
    SearchAdvancer().tick()
    assert "Importance needs 10 completed trials: there are 5 so far." in text_of(client.get(sweep.get_absolute_url()))


@pytest.mark.django_db
def test_search_whose_settings_cannot_be_read_is_counted_once(user, django_assert_num_queries):
    sweep = launch_sweep(user, search_request(user))
    Sweep.objects.filter(pk=sweep.pk).update(search_state="stopped", request={**sweep.request, "search": {"method": 7}})
    SearchAdvancer().tick()
    with django_assert_num_queries(1):
        SearchAdvancer().tick()
