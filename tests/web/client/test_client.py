"""The `hacrl` command and the Python client, each command against the product's own API."""

from __future__ import annotations

import ast
import functools
import gzip
import itertools
import json
import re
import shutil
import stat
from pathlib import Path

import httpx2
import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.urls import reverse
from typer.testing import CliRunner

from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.client import api, command, login, main, show
from hacrl_web.client.api import ApiError, Client, Unreachable
from hacrl_web.client.commands import watch
from hacrl_web.runs.models import Run, State, TelemetryEvent, Worker
from hacrl_web.runs.telemetry.shipper import Shipper
from tests.support.web.factories import make_run, metrics, write_spool
from tests.support.web.live import Server
from workers.contract.events import Log

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e"
pytestmark = pytest.mark.django_db


@pytest.fixture
def hacrl(user, settings, monkeypatch, tmp_path):
    """hacrl(...) runs a command as the user; .client is a Client."""
    settings.ALLOWED_HOSTS = ["hacrl.test"]
    transport = httpx2.WSGITransport(app=get_wsgi_application(), raise_app_exceptions=True)
    connected = functools.partial(Client, transport=transport)
    # A request must not close the connection that holds the test's transaction; Django's test client does the same.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    for module in (command, main):
        monkeypatch.setattr(module, "Client", connected)
    token = make_token(user, name="cli", scopes=["read", "write"], days=1)[1]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HACRL_URL", "http://hacrl.test")
    monkeypatch.setenv("HACRL_TOKEN", token)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(api.time, "sleep", lambda _: None)

    def run(*words: str, status: int = 0, stdin: str = "") -> str:
        result = CliRunner().invoke(main.app, list(words), input=stdin)
        assert result.exit_code == status, (result.output, result.stderr, result.exception)
        assert "\x1b" not in result.output
        return result.output

    run.client = connected("http://hacrl.test", token)
    run.token = token
    yield run
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def said_json(text: str):
    return json.loads(text)


def stored(run: Run, *bodies, state: str = State.COMPLETED) -> Run:
    """The run with these events, at its end."""
    run = Run.objects.claim(run.pk, Worker("host", 1, 0.0, "here"))
    run.transition_to(State.RUNNING, reason="", attempt=1)
    write_spool(run.run_dir, 1, *bodies)
    shipper = Shipper(run.pk, run.run_dir, 1)
    while shipper.ship().lines:
        pass
    run.transition_to(state, reason="said so", attempt=1)
    return run


# Logging in


def test_login_is_checked_and_kept_for_its_owner_alone(hacrl, monkeypatch, user):
    monkeypatch.delenv("HACRL_URL")
    monkeypatch.delenv("HACRL_TOKEN")
    assert "hacrl login" in hacrl("whoami", status=3)
    hacrl("login", "http://hacrl.test", "--token-stdin", stdin="hacrl_wrong\n", status=3)
    assert not login.login_file().exists()
    assert user.username in hacrl("login", "http://hacrl.test/", "--token-stdin", stdin=f"{hacrl.token}\n")
    asked = hacrl("login", "http://hacrl.test/", stdin=f"{hacrl.token}\n")
    assert f"http://hacrl.test{reverse('accounts:tokens')}" in asked
    assert hacrl.token not in asked
    assert stat.S_IMODE(login.login_file().stat().st_mode) == 0o600
    assert said_json(hacrl("whoami", "--json"))["token"]["name"] == "cli"
    login.login_file().chmod(0o644)
    assert "chmod 600" in hacrl("whoami", status=3)
    hacrl("logout")
    hacrl("whoami", status=3)


def test_stored_token_goes_to_no_other_address(hacrl, monkeypatch):
    monkeypatch.delenv("HACRL_TOKEN")
    login.save_login(login.StoredLogin("http://hacrl.test", hacrl.token))
    assert login.find_login().token == hacrl.token
    monkeypatch.setenv("HACRL_URL", "http://evil.test")
    with pytest.raises(login.NotLoggedIn):
        login.find_login()


def test_redirect_is_not_followed_with_a_token(hacrl):
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(302, headers={"Location": "http://evil.test/"})

    with pytest.raises(Unreachable):
        Client("http://hacrl.test", "t", transport=httpx2.MockTransport(answer)).get("/me")
    assert asked == ["hacrl.test"]


# Orders


def test_orders_reach_the_run(hacrl, user):
    run = make_run(user, name="swan")
    for what, wanted in (("pause", "pause"), ("resume", "run"), ("stop", "stop")):
        hacrl(what, str(run.pk)[:8])
        run.refresh_from_db()
        assert run.desired_state == wanted
    assert said_json(hacrl("retry", "swan", "--json"))["retry_of"] == str(run.pk)
    assert "matches 2 runs" in hacrl("stop", "swan", status=1)
    hacrl("stop", "no such run", status=4)
    hacrl("stop", "00000000-0000-0000-0000-000000000000", status=4)


# Looking


def test_endless_answer_is_refused_and_not_held_in_memory(monkeypatch):
    monkeypatch.setattr(api, "MAX_ANSWER", 1000)
    packed = {"Content-Encoding": "gzip"}
    endless = [
        httpx2.Response(200, content=itertools.repeat(b" " * 100)),
        httpx2.Response(200, content=gzip.compress(b" " * 2**20), headers=packed),
        httpx2.Response(500, content=itertools.repeat(b" " * 100)),
    ]
    for answer in endless:
        client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(lambda _, answer=answer: answer))
        with pytest.raises(Unreachable, match="answered with more than"):
            client.get("/me")
    small = httpx2.Response(200, content=gzip.compress(b'{"a": 1}'), headers=packed)
    client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(lambda _: small))
    assert client.get("/me") == {"a": 1}


def test_list_that_never_ends_is_refused():
    page = httpx2.Response(200, json={"items": [], "next": "x"})
    client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(lambda _: page))
    with pytest.raises(Unreachable, match="repeats the same page"):
        list(client.pages("/runs"))


def test_lists_and_their_json(hacrl, user):
    run = make_run(user, name="swan [bold] of red")
    for words, name in (
        (["runs"], run.name),
        (["models"], run.group.agents.first().model.name),
        (["groups"], run.group.name),
        (["benchmarks"], run.benchmark.name),
    ):
        assert name in hacrl(*words)
        assert name in [row["name"] for row in said_json(hacrl(*words, "--json"))]
    assert said_json(hacrl("runs", "--state", "failed", "--json")) == []
    assert "Must be one of" in hacrl("runs", "--state", "odd", status=1)
    assert "math-500" in hacrl("benchmarks", "load", "nothing", status=1)


def test_objects_are_created_and_deleted(hacrl, user):
    model = make_run(user).group.agents.first().model
    made = said_json(
        hacrl("groups", "add", "pair", "--agent", f"left={model.name}", "--agent", str(model.pk), "--json")
    )
    assert [agent["name"] for agent in made["agents"]] == ["left", model.name]
    refusal = hacrl("api", "DELETE", f"/models/{model.pk}", status=1)
    assert "2 agent groups use this model" in refusal
    assert hacrl("api", "DELETE", f"/groups/{made['id']}") == ""
    assert "1 agent group uses this model" in hacrl("api", "DELETE", f"/models/{model.pk}", status=1)
    assert "1 run uses this agent group" in hacrl("api", "DELETE", f"/groups/{model.agents.get().group_id}", status=1)
    assert "location" in hacrl("models", "add", "/etc", status=1)


def test_watch_ends_with_the_run_and_reports_its_end(hacrl, user):
    steps = [metrics(step, **{"reward/mean": step / 10}) for step in range(5)]
    good = stored(make_run(user, name="good"), *steps, Log(message="hello"))
    # As an older trainer wrote it: today's takes it out.
    TelemetryEvent.objects.filter(type="log").update(payload={"level": "info", "message": f"hello {HOSTILE}"})
    shown = hacrl("watch", "good", "--metric", "reward/mean")
    assert "▁▃▅▆█" in shown
    assert "hello ␛]0;owned␇␛[31mred⟨U+202E⟩" in shown
    events = [json.loads(line) for line in hacrl("watch", str(good.pk), "--json").splitlines()]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5, 6]
    stored(make_run(user, name="bad"), state=State.FAILED)
    assert "said so" in hacrl("watch", "bad", status=6)


def test_logs_are_searched_followed_and_printed_as_json(hacrl, user):
    lines = [Log(message=f"line {number}", level="warning" if number == 2 else "info") for number in range(4)]
    stored(make_run(user, name="swan"), *lines, Log(message="odd"))
    TelemetryEvent.objects.filter(seq=5).update(payload={"level": "info", "message": HOSTILE})
    assert [line[-6:] for line in hacrl("logs", "swan", "-n", "5").splitlines()[:2]] == ["line 0", "line 1"]
    assert len(hacrl("logs", "swan", "-n", "2").splitlines()) == 2
    assert [one["text"] for one in said_json(hacrl("logs", "swan", "--level", "warning", "--json"))] == ["line 2"]
    assert hacrl("logs", "swan", "--search", "LINE 3").count("line") == 1
    followed = hacrl("logs", "swan", "-f", "-n", "0", "--json")
    assert followed == ""  # all of it was before
    assert "␛" in hacrl("logs", "swan", "-f")


def test_logs_say_how_each_attempt_ended(hacrl, user):
    run = stored(make_run(user, name="swan"), Log(message="line"))
    run.status_changes.create(from_state="running", to_state="failed", attempt=1, reason="killed by SIGKILL")
    assert [one["text"] for one in said_json(hacrl("logs", "swan", "--json"))] == [
        "line",
        "run failed: killed by SIGKILL",
    ]
    times = [line.split(" ", 2)[1] for line in hacrl("logs", "swan").splitlines()]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\dZ", time) for time in times)  # one clock for both kinds of line
    assert hacrl("logs", "swan", "--level", "error").splitlines()[0].endswith("run failed: killed by SIGKILL")
    assert "SIGKILL" not in hacrl("logs", "swan", "--search", "line")


def test_follow_yields_every_event_once_and_in_order(hacrl, user):
    run = stored(make_run(user), *[Log(message=str(number)) for number in range(1203)])
    seqs = [event["seq"] for event in hacrl.client.follow(str(run.pk))]
    assert seqs == list(range(1, 1204))
    assert [event["seq"] for event in hacrl.client.follow(str(run.pk), after=1200)] == [1201, 1202, 1203]
    with pytest.raises(ApiError) as refused:
        hacrl.client.frame(str(run.pk), after=1204)
    assert refused.value.code == "bad_cursor"


def test_compare_and_export(hacrl, user, tmp_path):
    runs = [stored(make_run(user, name=name, seed=seed), metrics(1, capability=0.5)) for seed, name in enumerate("ab")]
    shown = hacrl("compare", "a", "b")
    assert "mean over agents" in shown
    assert "seed" in shown
    assert said_json(hacrl("compare", "a", "b", "--json"))["metric"] == "capability"
    series = said_json(hacrl("export", "series", str(runs[0].pk)))["series"]
    assert series[0]["values"] == [0.5]
    target = tmp_path / "log.txt"
    hacrl("export", "log", "a", "-o", str(target))
    assert "the trainer's output" in target.read_text()
    assert "Name the file" in hacrl("export", "log", "a", status=1)
    table = tmp_path / "metrics.jsonl"
    hacrl("export", "metrics", "a", "-o", str(table))
    exported = [json.loads(text) for text in table.read_text().splitlines()]
    assert {one["metric"] for one in exported} == {one["metric"] for one in series}
    assert "The formats are jsonl, parquet" in hacrl("export", "rollouts", "a", "--format", "csv", "-o", "x", status=4)
    hacrl("export", "board", "sweep=99", "-o", str(tmp_path / "b.json"), status=4)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != "") == ["log.txt", "metrics.jsonl"]


def test_bundle_is_exported_and_imported(hacrl, user, tmp_path, settings):
    settings.RUNS_DIR = tmp_path / "runs"
    run = stored(make_run(user, name="swan"), metrics(1, capability=0.5))
    Run.objects.filter(pk=run.pk).update(state="completed", group=None, benchmark=None)
    target = tmp_path / "swan.hacrl.zip"
    hacrl("export", "bundle", "swan", "-o", str(target))
    assert "is here already" in hacrl("import", str(target), status=1)
    shutil.rmtree(run.run_dir)
    Run.objects.all().delete()
    assert f"Imported: swan ({str(run.pk)[:8]})" in hacrl("import", str(target))


# The client


def test_busy_installation_gets_reads_again_but_no_order_twice():
    answers = [httpx2.Response(503, headers={"Retry-After": "0"}), httpx2.Response(200, json={"items": []})]
    error = {"code": "database_busy", "message": "busy", "field": None}
    busy = httpx2.Response(503, json={"error": error, "errors": [error]})
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        return answers.pop(0) if request.method == "GET" else busy

    client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(answer))
    assert client.get("/runs") == {"items": []}
    with pytest.raises(ApiError, match="busy"):
        client.post("/runs/1/retry")
    assert asked == ["GET", "GET", "POST"]


def test_unreachable_address_has_a_readable_error(monkeypatch):
    with pytest.raises(Unreachable, match="does not answer"):
        Client("http://127.0.0.1:9", "t").get("/me")
    page = httpx2.MockTransport(lambda _: httpx2.Response(200, text="<html>"))
    with pytest.raises(Unreachable, match="not JSON"):
        Client("http://hacrl.test", "t", transport=page).get("/me")


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "<html>"},
        {"content": b"null"},
        {"content": b"{}"},
        {"content": b'{"items": [null], "next": null}'},
        {"content": b"[" * 100_000},
        {"content": b'{"a": "\xff"}'},
        {"status_code": 429, "headers": {"Retry-After": "²".encode("latin-1")}},
        {"content": (b"no gzip" for _ in range(1)), "headers": {"Content-Encoding": "gzip"}},
    ],
    ids=["page", "null", "empty", "other", "deep", "bytes", "digits", "broken"],
)
def test_unexpected_answer_is_a_line_and_an_exit_status(hacrl, monkeypatch, answer):
    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(**{"status_code": 200, **answer})

    connected = functools.partial(Client, transport=httpx2.MockTransport(respond))
    monkeypatch.setattr(command, "Client", connected)
    hacrl("models", status=5)


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://[::1", "token", "not an address"),
        ("localhost", "token", "begins with https://"),
        ("http://localhost", "tokén", "not an API token"),
        ("http://localhost", "", "not an API token"),
    ],
)
def test_invalid_address_or_token_has_a_readable_error(hacrl, url, token, told):
    assert told in hacrl("login", url, "--token-stdin", stdin=token, status=5)


def test_token_that_is_invalid_in_a_header_is_not_shown(hacrl, monkeypatch):
    monkeypatch.setenv("HACRL_TOKEN", "hacrl_secret\nhalf")
    assert "secret" not in hacrl("runs", status=5)


def test_outage_of_a_watched_installation_loses_nothing(monkeypatch):
    monkeypatch.setattr(api.time, "sleep", lambda _: None)
    frame = {"status": {"state": "running"}, "last_seq": 3}
    answers = [
        {**frame, "seq": 2, "events": [1, 2]},
        httpx2.ConnectError("refused"),
        httpx2.Response(502, text="<html>"),
        {**frame, "status": {"state": "completed"}, "seq": 3, "events": [3]},
    ]
    asked, told = [], []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.params["after"])
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, httpx2.Response) else httpx2.Response(200, json=found)

    client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(answer))
    assert list(client.follow("r", on_outage=told.append)) == [1, 2, 3]
    assert asked == ["0", "2", "2", "2"]
    assert len(told) == 1
    answers.append(httpx2.ConnectError("refused"))
    with pytest.raises(Unreachable):  # it has never answered: the address is wrong
        next(client.frames("r"))


def test_broken_download_leaves_no_file(tmp_path):
    def pieces():
        yield b"half"
        raise httpx2.ReadError("gone")

    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, content=pieces()))
    with pytest.raises(Unreachable):
        Client("http://hacrl.test", "t", transport=answer).save("/x", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db(transaction=True)
def test_command_and_client_reach_a_real_server(hacrl, user, settings, monkeypatch):
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    for signal in (request_started, request_finished):  # the server's threads have connections of their own
        signal.connect(close_old_connections)
    run = stored(make_run(user, name="swan"), *[Log(message=str(number)) for number in range(600)])
    server = Server()
    try:
        monkeypatch.setenv("HACRL_URL", f"http://{server.address}")
        monkeypatch.setattr(command, "Client", Client)
        assert "swan" in hacrl("runs")
        hacrl("watch", "swan")
        with Client(f"http://{server.address}", hacrl.token) as client:
            assert len(list(client.follow(str(run.pk)))) == 600
            with pytest.raises(ApiError, match="There is no such object"):
                client.get("/runs/00000000-0000-0000-0000-000000000000")
    finally:
        server.stop()


# Small parts


def test_sparkline_spans_from_lowest_to_highest():
    assert show.sparkline([0, 1, None, 7]) == "▁▂ █"
    assert show.sparkline([3, 3]) == "▁▁"
    assert show.sparkline([None, float("nan")]) == ""
    assert len(show.sparkline(list(range(100)), 10)) == 10


def test_row_is_one_line_for_a_pipe_and_only_names_give_way_in_a_terminal(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    cells = ["0d93250c", "a name of many words " * 8]
    show.table(["id", "name"], [cells], empty="")
    assert capsys.readouterr().out.splitlines()[1].split("  ") == [cells[0], cells[1].rstrip() + " "]
    monkeypatch.setenv("COLUMNS", "30")
    show.table(["id", "name"], [cells], empty="")
    first, *others = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("0d93250c  a name of many")
    assert len(others) > 3


def test_ratio_of_an_event_is_divided():
    event = {"payload": {"values": {"a": 1.0}, "ratios": {"b": [3, 4], "c": [0, 0]}}}
    assert api.metric_values(event) == {"a": 1.0, "b": 0.75, "c": None}


def test_launcher_passes_on_every_client_command():
    tree = ast.parse((ROOT / "hacrl").read_text())
    node = next(n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "CLIENT_COMMANDS")
    named = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    groups = {group.name for group in main.app.registered_groups}
    commands = {one.name or one.callback.__name__.replace("_", "-") for one in main.app.registered_commands}
    assert named == groups | commands


@pytest.mark.parametrize(
    "path", ["http://other.example/x", "/http://other.example/x", "//other.example/x", "/../x", "/me"]
)
def test_token_goes_to_no_other_host_whatever_the_path(path, tmp_path):
    hosts = []

    def answer(request):
        hosts.append(request.url.host)
        return httpx2.Response(200, json={"items": [], "next": None})

    client = Client("http://hacrl.test", "t", transport=httpx2.MockTransport(answer))
    client.get(path)
    client.post(path)
    list(client.pages(path))
    client.save(path, tmp_path / "file")
    assert hosts == ["hacrl.test"] * 4


def test_watch_writes_numbers_and_times_as_pages_do(capsys):
    status = {"state": "running", "step": 1200, "total_steps": 4000, "progress": {"eta_s": 1250.4}}
    values = {"reward/mean": 0.38, "kl": 0.0123456}
    event = {"type": "metrics", "agent": "A", "source": "", "payload": {"values": values, "ratios": {}}}
    screen = watch.RunScreen("swan")
    screen.add({"status": status, "events": [event]})
    show.console().print(screen.render(("reward/mean", "kl")))
    shown = capsys.readouterr().out
    assert "step 1,200 of 4,000  20 min 50 s left" in shown
    assert "0.380" in shown
    assert "0.0123" in shown
