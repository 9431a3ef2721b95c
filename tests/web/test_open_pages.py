"""What stays true on a page that is left open, and what is said before there is anything: counts, the demo, errors."""

import fcntl
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.workspace import demo_state, search
from hacrl_web.runs.workspace.demo_state import preparation, preparing
from tests.support.web import factories


@pytest.fixture(autouse=True)
def _own_data_folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path


@pytest.fixture
def staff(client, db):
    user = factories.make_user(is_staff=True)
    client.force_login(user)
    return user


def test_pulse_counts_the_running_runs_that_its_user_sees(client, user):
    for owner, state in ((user, "running"), (user, "queued"), (factories.make_user(), "running")):
        Run.objects.filter(pk=factories.make_run(owner).pk).update(state=state)
    client.force_login(user)
    answer = client.get(reverse("runs:pulse"))
    assert answer.json() == {"running": 1, "demo": "", "percent": None, "phase": 0}
    assert answer["Cache-Control"] == "no-store, private"


def test_pulse_sends_a_visitor_to_the_login(client, db):
    assert client.get(reverse("runs:pulse")).status_code == 302


def test_search_finds_passages_of_the_docs(client, user):
    client.force_login(user)
    passages = client.get(reverse("runs:find"), {"q": "omega"}).json()["passages"]
    assert 0 < len(passages) <= 6
    page, _, anchor = passages[0]["url"].partition("#")
    assert f'id="{anchor}"' in client.get(page).content.decode()


def test_search_finds_what_its_user_sees_by_a_part_of_the_name(client, user):
    mine, foreign = factories.make_run(user, name="Black swan"), factories.make_run(name="White swan")
    model = factories.make_model(user, name="swan-1B")
    client.force_login(user)
    assert client.get(reverse("runs:find"), {"q": " SWAN\x00"}).json()["found"] == [
        {"kind": "run", "name": "Black swan", "url": f"/runs/{mine.pk}"},
        {"kind": "model", "name": "swan-1B", "url": f"/models/{model.pk}"},
    ]
    assert client.get(reverse("runs:find"), {"q": " "}).json() == {"found": [], "passages": []}
    client.force_login(foreign.owner)
    assert [one["name"] for one in client.get(reverse("runs:find"), {"q": "swan"}).json()["found"]] == ["White swan"]


def test_search_lists_the_newest_few_of_each_kind(client, user, monkeypatch):
    monkeypatch.setattr(search, "MOST_OF_A_KIND", 2)
    for number in range(3):
        factories.make_model(user, name=f"swan {number}")
    client.force_login(user)
    names = [one["name"] for one in client.get(reverse("runs:find"), {"q": "swan"}).json()["found"]]
    assert names == ["swan 2", "swan 1"]


def test_home_shows_what_the_demo_prepares(client, staff):
    assert "From models to a first run" in client.get("/").content.decode()
    with preparing("Teaching two small models.") as say:
        page = client.get("/").content.decode()
        assert "The demo is being prepared." in page
        assert "Teaching two small models." in page
        assert "From models to a first run" not in page
        tutorial = reverse("docs:page", args=["tutorial"])
        assert f'href="{tutorial}#2-what-is-there"' in page
        assert 'id="2-what-is-there"' in client.get(tutorial).content.decode()
        say("Registering.")
        assert client.get(reverse("runs:pulse")).json()["demo"] == "Registering."
    assert preparation() is None
    assert "The demo is being prepared." not in client.get("/").content.decode()


@pytest.mark.parametrize("name", ["runs:run_list", "runs:sweep_list", "registry:model_list", "leaderboard:index"])
def test_empty_pages_show_what_the_demo_prepares(client, staff, name):
    assert "The demo is being prepared." not in client.get(reverse(name)).content.decode()
    with preparing("Teaching: 41 % done."):
        assert "<span data-doing>Teaching: 41 % done.</span>" in client.get(reverse(name)).content.decode()


def test_only_staff_see_the_demo(client, user):
    client.force_login(user)
    with preparing("Teaching two small models."):
        for page in ("/", reverse("runs:run_list")):
            assert "being prepared" not in client.get(page).content.decode()
        assert client.get(reverse("runs:pulse")).json()["demo"] == ""


def test_second_demo_does_not_replace_the_state_of_the_first(monkeypatch):
    monkeypatch.setattr(demo_state, "PAUSE_S", 0.001)
    with preparing("first"):
        with preparing("second") as say:
            say("third")
            assert preparation().activity == "first"
        assert preparation().activity == "first", "nor does its end end the first"


def test_killed_demo_is_not_shown_as_in_preparation(settings):
    code = (
        "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'hacrl_web.settings'; django.setup()\n"
        "from hacrl_web.runs.workspace.demo_state import preparing\n"
        "with preparing('Teaching'): print('ready', flush=True); input()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=django_settings.BASE_DIR,
        env={"HACRL_DATA": str(settings.DATA_DIR), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        found = preparation()
        assert (found.activity, abs(found.since.timestamp() - time.time()) < 60) == ("Teaching", True)
    finally:
        child.kill()
        child.communicate()
    assert preparation() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"doing": "x", "since": "y"}'])
def test_damaged_state_of_the_demo_is_ignored(settings, content):
    path = Path(settings.DATA_DIR) / demo_state.NAME
    path.write_bytes(content)
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert preparation() is None


async def test_csv_and_log_are_streamed_without_a_warning_where_the_server_is_asynchronous(
    async_client, transactional_db
):
    from asgiref.sync import sync_to_async

    def start() -> Run:
        run = factories.make_run()
        common = {"run": run, "attempt": 1, "time": 0}
        rows = [
            TelemetryEvent(**common, seq=seq, type="metrics", step=seq, agent="A", payload={
                "values": {"kl": seq / 8}, "ratios": {}})
            for seq in range(1, 1201)
        ]  # fmt: skip
        log = TelemetryEvent(**common, seq=1201, type="log", payload={"message": "a line"})
        TelemetryEvent.objects.bulk_create([*rows, log])
        return run

    run = await sync_to_async(start)()
    await async_client.aforce_login(run.owner)
    texts = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("metrics_csv", "log_download"):
            response = await async_client.get(reverse(f"runs:{name}", args=[run.pk]))
            texts.append(b"".join([chunk async for chunk in response.streaming_content]).decode())
    lines = texts[0].splitlines()
    assert (len(lines), lines[0], lines[1], lines[-1]) == (
        1201,
        "step,agent,source,metric,value",
        "1,A,,kl,0.125",
        "1200,A,,kl,150.0",
    )
    assert texts[1].startswith("1970-01-01T00:00:00.000+00:00 info    attempt 1: a line\n")


def test_each_error_has_a_page_of_ours(client, user, monkeypatch):
    client.force_login(user)
    client.raise_request_exception = False

    def refuse(error):
        monkeypatch.setattr("hacrl_web.runs.workspace.home.preparation", lambda: (_ for _ in ()).throw(error))

    user.is_staff = True
    user.save()
    pages = {404: client.get("/no/such/page")}
    refuse(RuntimeError("ours"))
    pages[500] = client.get("/")
    refuse(OperationalError("locked"))
    pages[503] = client.get("/")
    fields = {f"field{number}": "" for number in range(2100)}  # more than DATA_UPLOAD_MAX_NUMBER_FIELDS
    pages[400] = client.post("/groups/new", fields)
    titles = {404: "Not found", 500: "Something went wrong on our side", 503: "Busy", 400: "Bad request"}
    for status, response in pages.items():
        html = response.content.decode()
        assert response.status_code == status
        assert f"<h1>{titles[status]}</h1>" in html
        assert f"HTTP {status}" in html
        assert "Traceback" not in html
    assert pages[503]["Retry-After"] == "5"
    assert 'action="/runs/" role="search"' in pages[404].content.decode()


def test_login_says_what_the_product_is():
    assert "Train several language models on the same task" in Client().get("/login").content.decode()


def test_api_errors_are_json(user):
    client = Client()
    client.force_login(user)
    assert json.loads(client.get("/api/v1/nothing").content)["error"]["code"] == "not_found"
