"""A run whose settings another version wrote: what cannot be shown is refused in words, the rest is there."""

from __future__ import annotations

import pytest
from django.contrib.messages import get_messages

from hacrl_web.runs.models import Run
from tests.support.web import factories
from tests.support.web.insight_rows import made_up

READABLE = ("config", "events", "system", "checkpoints", "metrics.csv")
UNREADABLE = ("", "/collaboration", "/rollouts", "/what-if", "/clone")


@pytest.fixture
def run(db, client) -> Run:
    user = factories.make_user()
    client.force_login(user)
    run = factories.make_run(user, name="elder")
    spec = run.spec | {"algorithm": run.spec["algorithm"] | {"alpha": 11}}
    Run.objects.filter(pk=run.pk).update(spec=spec)
    return run


@pytest.mark.parametrize("tab", READABLE)
def test_tabs_that_need_no_setting_still_show_it(client, run, tab):
    assert client.get(f"/runs/{run.pk}/{tab}").status_code == 200


@pytest.mark.parametrize("tab", UNREADABLE)
def test_the_others_say_which_setting_cannot_be_read(client, run, tab):
    answer = client.get(f"/runs/{run.pk}{tab}", follow=True)
    assert answer.status_code == 409
    assert "cannot read algorithm.alpha: " in answer.content.decode()


@pytest.mark.parametrize("what", ["collaboration", "collaboration/run", "what-if"])
def test_the_api_says_so_too(client, run, what):
    answer = client.get(f"/api/v1/runs/{run.pk}/{what}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "unreadable_settings")


def test_retry_names_the_setting_that_cannot_be_read(client, run):
    Run.objects.filter(pk=run.pk).update(state="failed")
    page = client.post(f"/runs/{run.pk}/retry")
    assert ["cannot read algorithm.alpha: " in str(one) for one in get_messages(page.wsgi_request)] == [True]
    answer = client.post(f"/api/v1/runs/{run.pk}/retry")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "unreadable_settings")


def test_run_without_a_length_of_its_answers_can_still_be_asked(client, run):
    """Settings that came later have today's defaults: the Checkpoints tab needs the length for its form."""
    spec = {key: value for key, value in run.spec.items() if key != "rollout"}
    spec["algorithm"] = spec["algorithm"] | {"alpha": 1.0}
    Run.objects.filter(pk=run.pk).update(spec=spec)
    assert client.get(f"/runs/{run.pk}/checkpoints").status_code == 200


LEFT = [
    {"algorithm": {"name": "transfer"}},
    {"algorithm": {"name": "signed", "anchor": "own"}},
    {"algorithm": {"omega_scope": "prompt"}},
    {"algorithm": {"cross_gate": "tapered"}},
    {"algorithm": {"replay_steps": 2}},
    {"training": {"curriculum_rest": 3}},
]


@pytest.fixture(params=LEFT, ids=str)
def left(request, db, client) -> Run:
    """An ended run with records, under an option that this version no longer has."""
    user = factories.make_user()
    client.force_login(user)
    run = factories.make_run(user, name="elder")
    made_up(run, {1: range(1, 3)})
    Run.objects.filter(pk=run.pk).update(state="failed")
    return factories.as_of_earlier_version(run, **request.param)


TABS = (
    "",
    "/collaboration",
    "/rollouts",
    "/rollouts?list=rollouts&learner=A",
    "/what-if",
    *(f"/{one}" for one in READABLE),
)


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_shows_what_was_recorded_under_an_option_that_left(client, left, tab):
    answer = client.get(f"/runs/{left.pk}{tab}", follow=True)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "what", ["collaboration", "collaboration/run", "collaboration/ratios?step=1&learner=0", "what-if"]
)
def test_its_numbers_are_in_the_api(client, left, what):
    answer = client.get(f"/api/v1/runs/{left.pk}/{what}")
    assert answer.status_code == 200
    assert answer.json() != {}


def test_it_cannot_be_trained_and_the_page_says_the_way_out(client, left):
    page = client.post(f"/runs/{left.pk}/retry")
    [message] = map(str, get_messages(page.wsgi_request))
    assert "elder cannot be trained by this version: " in message
    assert "left this version, because it showed no gain" in message


def test_form_of_a_clone_or_of_a_draft_says_what_it_is_without(client, left):
    page = client.get(f"/runs/new?clone={left.pk}").content.decode()
    assert "left this version, because it showed no gain" in page
    Run.objects.filter(pk=left.pk).update(state="draft")
    page = client.get(f"/runs/new?draft={left.pk}").content.decode()
    assert "left this version, because it showed no gain" in page
