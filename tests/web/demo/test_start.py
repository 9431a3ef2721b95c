"""The demo started in the browser: who may, what a worker makes of it, and what Home shows meanwhile."""

import pytest
from django.urls import reverse
from django.utils import timezone

from hacrl_web.demo import launch, tasks
from hacrl_web.runs.models import Host, Run, Sweep
from hacrl_web.runs.workspace.demo_state import failure_text, preparation, preparing
from tests.support.web.factories import make_benchmark, make_group, make_user

pytestmark = pytest.mark.django_db
START = "/demo/start"


@pytest.fixture
def staff(client):
    user = make_user(is_staff=True)
    client.force_login(user)
    return user


@pytest.fixture
def host():
    return Host.objects.create(name="vm", last_seen=timezone.now())


@pytest.fixture
def sent(monkeypatch):
    """The arguments of the messages to workers."""
    messages = []

    def send(task, *arguments, folder=""):
        messages.append((task, *arguments))
        return True

    monkeypatch.setattr(tasks, "send", send)
    return messages


@pytest.fixture
def made_demo(monkeypatch, staff):
    """Models are made at once, with two reports on the way; what Home says at each is kept."""
    seen = []

    def make_agents(recipe, report, source):
        for percent in (10, 60):
            report(percent)
            seen.append(preparation())

    rows = make_group(staff), make_benchmark(staff)
    monkeypatch.setattr(launch, "make_agents", make_agents)
    monkeypatch.setattr(launch, "register", lambda owner, recipe, folder: rows)
    return seen


def test_button_on_an_empty_home_asks_a_worker_and_the_runs_are_queued(client, staff, host, sent, made_demo):
    page = client.get("/").content.decode()
    assert "Run the demo here" in page
    assert client.post(START).url == reverse("home")
    assert sent == [("hacrl.demo", str(staff.pk))]
    tasks.run_requested_demo(*sent[0][1:])
    assert [(one.phase, one.percent) for one in made_demo] == [(0, 10), (0, 60)]
    sweep = Sweep.objects.get()
    assert (sweep.owner, sweep.runs.count()) == (staff, 5)  # the rules that the demo compares
    assert set(sweep.runs.values_list("state", flat=True)) == {"queued"}
    tasks.run_requested_demo(*sent[0][1:])  # a message that came twice
    assert Run.objects.count() == 5
    assert client.get("/api/v1/demo").json()["sweep"] == sweep.get_absolute_url()


def test_home_shows_phases_and_a_bar_while_it_is_made(client, staff):
    with preparing("Teaching.") as show:
        show("Teaching. 40 % done.", percent=40)
        page = client.get("/").content.decode()
        assert 'value="40"' in page
        assert 'data-phase-state="now" aria-current="step">Make two small models' in page
        assert "What you will see" in page
        assert client.get(reverse("runs:pulse")).json() | {"running": 0} == {
            "running": 0, "demo": "Teaching. 40 % done.", "percent": 40, "phase": 0,
        }  # fmt: skip
        show("Checking.", phase=1)
        page = client.get("/").content.decode()
        assert 'data-phase-state="done"' in page
        assert 'data-phase-state="now" aria-current="step">Check and register them' in page


def test_who_may_not_and_when_not(client, staff, sent):
    refused = client.post("/api/v1/demo")
    assert (refused.status_code, "No worker is running" in refused.json()["errors"][0]["message"]) == (409, True)
    Host.objects.create(name="vm", last_seen=timezone.now(), drain="now")
    assert client.post("/api/v1/demo").status_code == 409
    Host.objects.update(drain="")
    with preparing("Teaching."):
        assert client.post("/api/v1/demo").json()["errors"][0]["code"] == "under_way"
    client.force_login(make_user())
    assert "Run the demo here" not in client.get("/").content.decode()
    assert client.post("/api/v1/demo").status_code == 403
    assert sent == []


def test_a_failure_is_shown_on_home_until_the_next_demo(client, staff, host, made_demo, monkeypatch):
    monkeypatch.setattr(tasks, "worker_is_ending", lambda: True)
    tasks.run_requested_demo(str(staff.pk))
    assert failure_text() == tasks.STOPPED
    assert "The last demo could not be made: HACRL Web was stopped" in client.get("/").content.decode()
    assert not Sweep.objects.exists()
    monkeypatch.setattr(tasks, "worker_is_ending", lambda: False)
    tasks.run_requested_demo(str(staff.pk))
    assert failure_text() == ""
    assert Sweep.objects.exists()


def test_message_of_somebody_who_is_no_longer_staff_makes_nothing(made_demo):
    tasks.run_requested_demo(str(make_user().pk))
    tasks.run_requested_demo("10000000")
    assert not Sweep.objects.exists()
