"""What runs tell over the API: events as the socket has them, the log by cursor, files, and every page's numbers."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hacrl_web.accounts.models import LaunchKey, Membership
from hacrl_web.client import api
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.live.event_reader import events_frame, read_batch, read_status
from hacrl_web.runs.models import Run
from tests.support.web.factories import launch_request, make_model, make_run, make_user, metrics
from tests.web.client.test_client import hacrl as hacrl  # the client of the documentation's example
from tests.web.client.test_client import stored
from tests.web.test_api_shape import error_of
from workers.contract.events import LeftOut, Log

DOCS = Path(__file__).resolve().parents[4] / "docs" / "api.md"
JSON = "application/json"
pytestmark = pytest.mark.django_db


@pytest.fixture
def run(user):
    logs = [Log(message=f"line {number}", level="warning" if number == 3 else "info") for number in range(5)]
    return stored(make_run(user, name="swan"), *logs, LeftOut(counts={"log": 7}, reason="too many"), metrics(1, x=1.5))


def test_events_are_the_frames_of_the_socket(web, run):
    found = web.get(f"/api/v1/runs/{run.pk}/events?after=2&limit=3").json()
    batch = read_batch(run.pk, 2, limit=3)
    frame = json.loads(events_frame(run.pk, 2, 5, [batch.text]))
    status = read_status([run.pk])[run.pk]
    assert found == {**frame, "status": json.loads(status.text), "last_seq": 7}
    assert [event["seq"] for event in found["events"]] == [3, 4, 5]
    last = web.get(f"/api/v1/runs/{run.pk}/events?after=7").json()
    assert (last["events"], last["prev"], last["seq"], last["status"]["state"]) == ([], 7, 7, "completed")


def test_events_can_be_narrowed_to_types_without_losing_the_cursor(web, run):
    url = f"/api/v1/runs/{run.pk}/events?types=log,metrics"
    first = web.get(f"{url}&limit=5").json()
    assert ([event["type"] for event in first["events"]], first["seq"]) == (["log"] * 5, 5)
    last = web.get(f"{url}&after=5").json()  # the sixth is of a type that was not asked for
    assert ([event["type"] for event in last["events"]], last["seq"]) == (["metrics"], 7)
    none = web.get(f"/api/v1/runs/{run.pk}/events?types=checkpoint").json()
    assert (none["events"], none["seq"]) == ([], 7)


@pytest.mark.parametrize("query", ["types=odd", "after=8", "after=-1", "after=x", "limit=0", "limit=501", "since=1"])
def test_odd_cursors_are_refused(web, run, query):
    answer = web.get(f"/api/v1/runs/{run.pk}/events?{query}")
    assert answer.status_code == 422
    assert error_of(answer)["field"] == query.partition("=")[0]


def test_log_is_read_by_cursor_either_way(web, run):
    address = f"/api/v1/runs/{run.pk}/log"
    for order, wanted in (("oldest", [1, 2, 3, 4, 5, 6]), ("newest", [6, 5, 4, 3, 2, 1])):
        seen, cursor = [], ""
        while cursor is not None:
            page = web.get(address, {"order": order, "limit": 4, "cursor": cursor}).json()
            seen += [line["seq"] for line in page["items"]]
            cursor = page["next"]
        assert seen == wanted
    assert [line["text"] for line in web.get(address, {"q": "LINE 2"}).json()["items"]] == ["line 2"]
    assert [line["seq"] for line in web.get(address, {"level": "warning"}).json()["items"]] == [4]
    whole = b"".join(web.get(f"{address}.txt").streaming_content).decode()
    assert "line 4" in whole
    assert "7 of type log" in whole
    (run.run_dir / "trainer.log").write_text("first\nsecond\n")
    assert web.get(f"/api/v1/runs/{run.pk}/output?q=SEC").json() == {"lines": ["second"]}


def test_each_tab_has_its_numbers(web, run):
    base = f"/api/v1/runs/{run.pk}"
    timeline = web.get(f"{base}/timeline").json()
    assert {"state", "left_out"} <= {item["kind"] for item in timeline["items"]}
    assert {item["kind"] for item in web.get(f"{base}/timeline?kind=state").json()["items"]} == {"state"}
    assert web.get(f"{base}/timeline?kind=odd").status_code == 422
    twice = [web.get(f"{base}/timeline?{query}").json() for query in ("kind=state", "kind=state&kind=state")]
    assert twice[0] == twice[1]
    other = make_run(run.owner, seed=9)
    lines = web.get(f"{base}/config?against={other.pk}&only_different=true").json()["lines"]
    assert {"path": "seed", "values": [1, 9], "is_there": [True, True], "differs": True} in lines
    assert web.get(f"{base}/config?against={make_run().pk}").status_code == 404
    assert web.get(f"{base}/system?buckets=3").json()["attempts"][0]["number"] == 1
    assert web.get(f"{base}/disk").json()["num_rows"] > 0
    checkpoints = web.get(f"{base}/checkpoints").json()
    assert [checkpoints[name] for name in ("items", "count", "next")] == [[], 0, None]
    assert web.get("/api/v1/find?q=SWAN").json()["found"][0]["name"] == "swan"
    table = web.get(f"/api/v1/compare/table?runs={run.pk}").json()
    assert table["metric"] == "x"
    assert ("A", 1.5) in [(row["agent"], row["best"]) for row in table["rows"]]


def test_rollouts_are_found_and_odd_filters_named(web, run):
    run.rollouts.create(
        seq=900, attempt=1, step=1, agent="A", prompt_id="p", sample=0, prompt="?", completion="!", num_tokens=1
    )
    address = f"/api/v1/runs/{run.pk}/rollouts"
    (hit,) = web.get(address, {"step": "1", "agent": "A"}).json()["items"]
    assert (hit["seq"], hit["prompt_id"], hit["taught"]) == (900, "p", None)
    for name, value in (("step", "x"), ("agent", "nobody"), ("reward", "high"), ("after", "x"), ("sign", "odd")):
        answer = web.get(address, {name: value})
        assert answer.status_code == 422, name
        assert name in error_of(answer)["message"]


def test_same_key_launches_once(web, user):
    body = launch_request(user)
    first, again = (
        web.post("/api/v1/runs", body, content_type=JSON, headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert (first.status_code, again.status_code, again["Idempotency-Replayed"]) == (201, 201, "true")
    assert first.content == again.content
    # How the JSON is spaced and ordered does not count.
    spaced = json.dumps(dict(reversed(body.items())), indent=3)
    assert web.post("/api/v1/runs", spaced, content_type=JSON, headers={"Idempotency-Key": "k"}).json() == first.json()
    other = web.post("/api/v1/runs", body | {"seed": 5}, content_type=JSON, headers={"Idempotency-Key": "k"})
    assert (other.status_code, error_of(other)["code"]) == (409, "key_reused")
    assert Run.objects.count() == 1
    web.post("/api/v1/runs", body, content_type=JSON)
    assert Run.objects.count() == 2


@pytest.mark.parametrize("kind", ["runs", "sweeps", "retry"])
def test_key_tells_nothing_to_who_has_left_the_project(web, user, kind):
    body = launch_request(user)
    if kind == "sweeps":
        del body["algorithm"], body["seed"]
        body |= {"algorithms": ["gspo"], "seeds": [1]}
    path = f"/api/v1/{kind}"
    if kind == "retry":
        run = make_run(user)
        Run.objects.filter(pk=run.pk).update(state="failed")
        path, body = f"/api/v1/runs/{run.pk}/retry", {}
    statuses = []
    for is_member in (True, True, False):
        if not is_member:
            user.memberships.all().delete()
            Membership.objects.create(user=user, project=make_user().memberships.get().project, role="member")
        answer = web.post(path, body, content_type=JSON, headers={"Idempotency-Key": "k"})
        statuses.append(answer.status_code)
    assert statuses == [201, 201, 404]
    assert error_of(answer)["code"] == "not_found"
    assert "url" not in answer.json()


def test_refused_launch_leaves_its_key_free(web, user):
    for seed, status in ((-1, 422), (1, 201)):
        body = launch_request(user, seed=seed)
        answer = web.post("/api/v1/runs", body, content_type=JSON, headers={"Idempotency-Key": "k"})
        assert answer.status_code == status
    assert LaunchKey.objects.count() == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb", "ä"])
def test_odd_key_is_refused(web, user, key):
    answer = web.post("/api/v1/runs", launch_request(user), content_type=JSON, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert not Run.objects.exists()


def test_keys_of_two_users_are_two_keys(web, user, client):
    for one in (user, make_user()):
        client.force_login(one)
        answer = client.post("/api/v1/runs", launch_request(one), content_type=JSON, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 201
    assert Run.objects.count() == 2


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("models", ["0001-01-01T00:00:00+14:00", 1]),
        ("models", ["9999-12-31T23:59:59-14:00", 1]),
        ("models", ["2026-11-22T00:00:00Z", 2**63]),
        ("hosts", ["\ud800"]),
        ("hosts", ["a\0b"]),
        ("projects", ["\ud800", 1]),
    ],
)
def test_cursor_that_no_database_could_hold_is_refused(web, path, values):
    cursor = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
    refusal = web.get(f"/api/v1/{path}", {"cursor": cursor})
    assert refusal.status_code == 422
    assert refusal.json()["error"]["code"] == "bad_cursor"


def test_cursor_passes_over_no_row_and_tells_none_twice(web, user):
    for number in range(7):
        make_model(user, f"m{number}")
    seen, cursor = [], ""
    while cursor is not None:
        page = web.get("/api/v1/models", {"limit": 2, "cursor": cursor}).json()
        seen += [row["name"] for row in page["items"]]
        cursor = page["next"]
        make_model(user)  # comes before all that is left
    assert seen == [f"m{number}" for number in reversed(range(7))]


def test_rows_of_the_same_millisecond_are_all_told(web, user):
    moment = datetime(2026, 11, 22, 12, 0, 0, 123_000, tzinfo=UTC)
    for number in range(6):
        model = make_model(user, f"m{number}")
        LanguageModel.objects.filter(pk=model.pk).update(created_at=moment + timedelta(microseconds=number // 2))
    seen, cursor = [], ""
    while cursor is not None:
        page = web.get("/api/v1/models", {"limit": 1, "cursor": cursor}).json()
        seen += [row["name"] for row in page["items"]]
        cursor = page["next"]
    assert seen == [f"m{number}" for number in reversed(range(6))]


def test_page_of_the_api_needs_a_login_and_nothing_from_elsewhere(client, user):
    assert client.get("/api/docs").status_code == 302
    client.force_login(user)
    page = client.get("/api/docs").content.decode()
    assert "/api/v1/openapi.json" in page
    assert '<nav class="rail"' in page
    assert re.search(r'<body data-api-csrf="true" data-csrf-token="\w{64}">', page)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)


def test_python_of_the_documentation_works(hacrl, user, monkeypatch, tmp_path):
    made = make_run(user, name="swan")
    stored(made, metrics(1, capability=0.5))
    for row, name in ((made.group, "Qwen3 100k + Llama 250k"), (made.benchmark, "Order of operations")):
        row.name = name
        row.save()
    # The run of the example is never claimed here.
    events = [{"type": "metrics", "source": "", "step": 1, "agent": "A", "payload": {"values": {"reward/mean": 0.5}}}]
    monkeypatch.setattr(hacrl.client, "follow", lambda run: iter(events))
    monkeypatch.setattr(api, "Client", lambda url, token: hacrl.client)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS.parent / "python.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for code in blocks:
        exec(code, names)
    assert len(blocks) == 5
    assert Run.objects.filter(name="first", state="queued").count() == 1
    assert Run.objects.get(name="swan").tag_list == ["baseline"]
    assert names["curves"] == {("capability", "A"): ([1], [0.5])}
    assert (tmp_path / "swan-log.txt").stat().st_size == names["size"] > 0


def test_curl_of_the_documentation_names_addresses_and_headers_that_there_are(web, user):
    text = DOCS.read_text()
    assert 'curl -H "Authorization: Bearer $HACRL_TOKEN" https://hacrl.example.org/api/v1/me' in text
    body = json.loads(re.search(r"-d '(.*?)'", text, re.DOTALL)[1])
    made = make_run(user)
    body |= {"group": made.group.pk, "benchmark": made.benchmark.pk}
    assert web.post("/api/v1/runs", body, content_type=JSON, headers={"Idempotency-Key": "d"}).status_code == 201
