"""Bundles: a run that is exported and imported is the same run, and no file can make more of it than that."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from hacrl_web.alerts.models import Alert, Cursor
from hacrl_web.insight.bundle import importing, reader
from hacrl_web.insight.bundle.layout import CHECKPOINT_FILE, EVENTS_NAME, MANIFEST_NAME, RUN_NAME
from hacrl_web.insight.bundle.reader import directory_bytes
from hacrl_web.insight.checkpoints import checkpoints
from hacrl_web.registry.base.locations import folder_fingerprint
from hacrl_web.registry.benchmarks.service import create_benchmark
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.archive.deletion import delete_run
from hacrl_web.runs.archive.leftover_files import DeletedRuns
from hacrl_web.runs.launch.again import cannot_repeat
from hacrl_web.runs.models import Quota, Run, State, TelemetryEvent
from hacrl_web.runs.telemetry import tables
from hacrl_web.runs.telemetry.admission import Admission, FieldsRefused
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.web.errors import FieldErrors
from tests.support.fake_trainer import FakeAgent
from tests.support.web.addresses import routes
from tests.support.web.factories import make_member, make_user
from tests.support.web.insight_help import claimed, store
from tests.support.web.registry_help import QUESTIONS, jsonl
from tools.generated_runs.runs import Plan, generated_events
from workers.contract.events import Checkpoint, Log
from workers.contract.spec.run import RunSpec
from workers.trainer.checkpoints import save_checkpoint

pytestmark = pytest.mark.django_db
PLAN = Plan(2, 2, 2, 4, 4, 2, seed=3, variants=(("hacpo", 0.8),))
MARKS = [
    (re.compile(r'name="csrfmiddlewaretoken" value="\w+"|nonce="[^"]*"|data-now="[^"]*"'), ""),
    (re.compile(r"(\d+ min )?[\d.]+ (s|min) ago"), "just now"),
    (re.compile(r"(/(?:groups|benchmarks|models)/|(?:group|benchmark)(?:=|%3D))\d+"), r"\1N"),
    (re.compile(r'(?<=row=)"?\w{10}'), "N"),  # a row's key, which the numbers of group and benchmark are a part of
    (re.compile(r'<p class="small">Imported by .*?</p>'), ""),
    (re.compile(r"\s+"), " "),
]
# Numbers of rows, how long an answer took, and what only an imported run has.
OWN_KEYS = {"id", "group", "benchmark", "order", "elapsed_ms", "origin"}


class SmallAgent(FakeAgent):
    """Its files have the names of a trained agent's."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "weights.bin").rename(folder / "model.safetensors")


@pytest.fixture
def owner(client, settings, tmp_path):
    for name in ("MODELS_DIR", "RUNS_DIR", "BENCHMARKS_DIR"):
        setattr(settings, name, tmp_path / name.lower())
    settings.MODEL_ROOTS, settings.DATA_DIR = [settings.MODELS_DIR], tmp_path
    user = make_user("ada")
    client.force_login(user)
    return user


@pytest.fixture
def run(owner) -> Run:
    """A run that has ended, with events of every kind in two attempts, checkpoints, output, an alert and notes."""
    benchmark = create_benchmark(owner, file=jsonl(QUESTIONS * 1), name="sums", held_out_fraction=0.2)
    run = claimed(owner, name="Swan", benchmark=benchmark.pk)
    spec = RunSpec.model_validate(run.spec)
    events = [event for _, event in generated_events(PLAN, 0, spec, 4)]
    store(run, *events[: len(events) // 2])
    store(run, Log(level="warning", message="“interrupted” \u2028 <b>", step=2), attempt=2)
    store(run, *events[len(events) // 2 :], Checkpoint(step=4, path="checkpoints/step-000004", size_bytes=1), attempt=2)
    for step in (2, 4):
        save_checkpoint(run.run_dir, step, [SmallAgent(name, 0.0) for name in run.agent_names], {"step": step}, 10)
    (run.run_dir / "trainer.log").write_text("first line\nsecond\n")
    run.refresh_from_db()
    run.attempt, run.state = 2, State.RUNNING
    run.save()
    for model in LanguageModel.objects.all():  # no two models have the same files
        (Path(model.location) / "config.json").write_text(json.dumps({"name": model.name}))
        model.facts["folder_fingerprint"] = folder_fingerprint(Path(model.location))
        model.save()
    assert run.transition_to(State.COMPLETED, reason="done", worker_host="far", tags=",best,", notes="my *notes*")
    Run.objects.filter(pk=run.pk).update(score=score_of(run))
    Alert.objects.create(
        run=run, kind="delta_trap", agent="A", source="B", attempt=1, number=0.5, text="trapped", raised_seq=5,
        raised_step=1, raised_at=timezone.now(), cleared_step=2, cleared_at=timezone.now(), cleared_reason="over",
    )  # fmt: skip
    Cursor.objects.update_or_create(run=run, defaults={"is_done": True})
    run.refresh_from_db()
    return run


def exported(client, run: Run, query: str = "?checkpoints=1") -> bytes:
    answer = client.get(f"/runs/{run.pk}/bundle.zip{query}")
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def upload(data: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("swan.hacrl.zip", data, "application/zip")


def imports(client, data: bytes) -> Any:
    return client.post("/api/v1/bundles", {"file": upload(data)})


def empty(run: Run) -> None:
    """As in an installation that has never seen the run."""
    shutil.rmtree(run.run_dir)
    Run.objects.all().delete()
    AgentGroup.objects.all().delete()
    LanguageModel.objects.all().delete()
    Benchmark.objects.all().delete()


def answers(client, run: Run) -> dict[str, Any]:
    """What every page and operation about the run answers to a GET, without what differs by installation."""
    found = {}
    values = {"run_id": run.pk, "step": 4, "agent": 0, "table": "rollouts", "ending": "jsonl", "kind": "csv"}
    for route in sorted(set(routes())):
        names = re.findall(r"<(?:\w+:)?(\w+)>", route)
        if "run_id" not in names or not set(names) <= set(values) or "bundle" in route or "disk" in route:
            continue
        query = "?step=1&learner=0&metric=reward/mean" if not route.startswith("api/") or "series" in route else ""
        path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda match: str(values[match[1]]), route) + query
        answer = complete_answer(client, path)
        text = b"".join(answer.streaming_content) if answer.streaming else answer.content
        if route.endswith(".zip"):  # the times of its members are those of the request
            archive = zipfile.ZipFile(io.BytesIO(text))
            found[route] = {name: archive.read(name) for name in archive.namelist()}
            continue
        content = text.decode()
        if content.startswith(("{", "[")) and "ending" not in names:
            found[route] = (answer.status_code, without_own_keys(json.loads(content)))
            continue
        for mark, replacement in MARKS:
            content = mark.sub(replacement, content)
        found[route] = (answer.status_code, content)
    return found


def comparisons(client, run: Run) -> dict[str, Any]:
    """The pages that compare the run, as `answers` has those about it."""
    paths = {
        "comparison": f"/runs/?runs={run.pk}&tab=compare",
        "list": "/runs/",
        "boards": "/leaderboard/",
    }
    found = {}
    for name, path in paths.items():
        answer = client.get(path)
        content = answer.content.decode()
        for mark, replacement in MARKS:
            content = mark.sub(replacement, content)
        found[name] = (answer.status_code, content)
    return found


def complete_answer(client, path: str) -> Any:
    """The answer to a GET; one that sums a part of the steps each time (`done` of `of`) is asked until it has all."""
    for _ in range(100):
        answer = client.get(path)
        values = {} if answer.streaming or not answer.content.startswith(b"{") else json.loads(answer.content)
        if values.get("done") == values.get("of"):
            return answer
    raise AssertionError(f"{path} is not complete after 100 requests")


def without_own_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_own_keys(one)
            for key, one in value.items()
            if key not in OWN_KEYS or (isinstance(one, str | dict) and key != "origin")
        }
    return [without_own_keys(one) for one in value] if isinstance(value, list) else value


def difference(before: Any, after: Any) -> str:
    """The first characters in which two answers differ."""
    one, other = str(before), str(after)
    place = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    return f"{one[max(0, place - 60) : place + 60]!r} became {other[max(0, place - 60) : place + 60]!r}"


def test_every_page_and_operation_is_equal_after_the_import(client, run):
    before, data = answers(client, run) | comparisons(client, run), exported(client, run)
    rows = {model: model._default_manager.filter(run=run).count() for model in (TelemetryEvent, Alert)}
    sha = run.benchmark.questions_sha
    assert len(before) > 40
    assert sum(status == 200 for status, _ in (one for one in before.values() if isinstance(one, tuple))) > 30
    empty(run)
    answer = imports(client, data)
    assert answer.status_code == 201, answer.content
    assert answer.json()["notes"] == []
    assert answer.json()["id"] == str(run.pk)
    after = answers(client, Run.objects.get()) | comparisons(client, Run.objects.get())
    differences = {name: difference(before[name], one) for name, one in after.items() if one != before[name]}
    assert differences == {}, "\n".join(f"{name}: {one}" for name, one in differences.items())
    assert rows == {model: model._default_manager.filter(run=run).count() for model in rows}
    copy = Run.objects.get()
    assert (copy.score, copy.last_seq, copy.archived_at) == (run.score, run.last_seq, None)
    assert copy.benchmark.questions_sha == sha


def test_bundle_of_the_import_is_the_bundle(client, run):
    data = exported(client, run)
    empty(run)
    assert imports(client, data).status_code == 201
    first, second = (zipfile.ZipFile(io.BytesIO(one)) for one in (data, exported(client, run)))
    names = set(first.namelist()) - {MANIFEST_NAME}
    assert names == set(second.namelist()) - {MANIFEST_NAME}
    for name in names:
        assert first.read(name) == second.read(name), difference(first.read(name), second.read(name))
    assert any(CHECKPOINT_FILE.fullmatch(name) for name in names)


def test_second_import_shares_group_and_benchmark_and_the_same_run_is_refused(client, run):
    data, kinds = exported(client, run), (AgentGroup, Benchmark, LanguageModel)
    counts = [kind.objects.count() for kind in kinds]
    answer = imports(client, data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "already_here")
    shutil.rmtree(run.run_dir)
    Run.objects.all().delete()
    assert imports(client, data).status_code == 201
    assert [kind.objects.count() for kind in kinds] == counts
    assert Run.objects.get().group_id == run.group_id


def test_run_of_a_foreign_project_gets_another_id_and_says_nothing_of_it(client, run):
    data = exported(client, run)
    stranger = make_user("eve")
    client.force_login(stranger)
    answer = imports(client, data)
    assert answer.status_code == 201
    assert answer.json()["id"] != str(run.pk)
    assert Run.objects.get(pk=answer.json()["id"]).owner == stranger


def test_imported_run_trains_nothing_by_its_own_settings(client, run):
    """They name files of another machine, which a bundle could choose at will."""
    data = exported(client, run)
    empty(run)
    imports(client, data)
    copy = Run.objects.get()
    assert [error.code for error in cannot_repeat(copy)] == ["imported"]
    assert client.post(f"/api/v1/runs/{copy.pk}/retry").status_code == 422
    answer = client.post(
        f"/api/v1/runs/{copy.pk}/checkpoints/extend", {"step": 4, "steps": 1}, content_type="application/json"
    )
    assert answer.json()["error"]["code"] == "imported"
    model = LanguageModel.objects.first()
    assert "imported" in model.location
    assert run.spec["agents"][0]["model"] not in model.location


def test_page_imports_and_names_what_is_missing(client, run):
    data = exported(client, run, "")
    empty(run)
    bundle = changed(data, {"questions/train.jsonl": None})
    answer = client.post("/runs/import", {"file": upload(bundle)}, follow=True)
    text = answer.content.decode()
    assert "Swan is imported." in text
    assert "The benchmark sums is not here" in text
    assert Run.objects.get().benchmark is None
    assert "Choose a file." in client.post("/runs/import").content.decode()


def test_viewer_may_export_and_not_import(client, run):
    data = exported(client, run)
    client.force_login(make_member(run.project, "viewer"))
    assert exported(client, run, "") != b""
    assert imports(client, data).status_code == 403
    assert client.post("/runs/import", {"file": upload(data)}).status_code == 403


def test_run_that_has_not_ended_is_not_exported(client, run):
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING)
    answer = client.get(f"/api/v1/runs/{run.pk}/bundle.zip")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_ended")


def test_checkpoints_that_no_bundle_holds_are_refused_before_the_export(client, run, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_BUNDLE_BYTES", 0)
    page = client.get(f"/runs/{run.pk}/export").content.decode()
    sentence = "is not imported: export it without them"
    assert sentence in page
    assert "Bundle with checkpoints" not in page
    answer = client.get(f"/api/v1/runs/{run.pk}/bundle.zip?checkpoints=1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_large")
    assert sentence in answer.json()["error"]["message"]
    assert exported(client, run, "")


def changed(
    data: bytes, changes: dict[str, Any], *, relist: bool = True, add: Callable[..., None] | None = None
) -> bytes:
    """The bundle with members replaced (bytes) or left out (None). relist: with the manifest to match."""
    source, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    manifest = json.loads(source.read(MANIFEST_NAME))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [*source.namelist(), *(name for name in changes if name not in source.namelist())]:
            if name == MANIFEST_NAME:
                continue
            content = changes[name] if name in changes else source.read(name)
            if content is None:
                manifest["files"].pop(name)
                continue
            archive.writestr(name, content)
            if relist:
                digest = hashlib.sha256(content).hexdigest()
                manifest["files"][name] = {"size": len(content), "sha256": digest}
        if add:
            add(archive)
        archive.writestr(MANIFEST_NAME, changes.get(MANIFEST_NAME) or json.dumps(manifest))
    return target.getvalue()


def run_json(data: bytes, change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    content = json.loads(zipfile.ZipFile(io.BytesIO(data)).read(RUN_NAME))
    change(content)
    return {RUN_NAME: json.dumps(content).encode()}


def _link(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("checkpoints/step-000009/config.json")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(info, "/etc/passwd")


def _named(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda archive: archive.writestr(name, "x")


def _with(value: Any, *place: str | int) -> Callable[[bytes], bytes]:
    """A change of one value of run.json."""

    def change(content: Any) -> None:
        for key in place[:-1]:
            content = content[key]
        content[place[-1]] = value

    return lambda data: changed(data, run_json(data, change))


EARLY, LATE, EVIL = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "a\nb\x1b[2J\u202e"
EVENT = b'{"seq": 1, "attempt": 1, "type": "log", "time": 1.0, "level": "info", "message": "x"}\n'
# What is changed, and a part of the refusal.
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not a zip": (lambda data: b"PK" + b"x" * 100, "not a ZIP file"),
    "empty": (lambda data: b"", "not a ZIP file"),
    "cut off": (lambda data: data[: len(data) // 2], "not a ZIP file"),
    "no manifest": (lambda data: zip_of({RUN_NAME: b"{}"}), "manifest.json is missing"),
    "traversal": (lambda data: changed(data, {}, add=_named("../../etc/x.json")), "no member named"),
    "absolute": (lambda data: changed(data, {}, add=_named("/etc/x.json")), "no member named"),
    "traversal in a checkpoint": (
        lambda data: changed(data, {}, add=_named("checkpoints/step-000001/../../../x.json")), "no member named",
    ),
    "pickle": (lambda data: changed(data, {}, add=_named("checkpoints/step-000001/agents/pytorch.bin")), "no member"),
    "code": (lambda data: changed(data, {}, add=_named("checkpoints/step-000001/modeling.py")), "no member named"),
    "link": (lambda data: changed(data, {}, add=_link), "link or encrypted"),
    "not in the manifest": (
        lambda data: changed(data, {}, add=_named("checkpoints/step-000001/x.json")), "not in its manifest",
    ),
    "member missing": (lambda data: changed(data, {EVENTS_NAME: None}), "events.jsonl is missing"),
    "wrong checksum": (lambda data: changed(data, {EVENTS_NAME: EVENT}, relist=False), "checksum of the manifest"),
    "other version": (
        lambda data: changed(data, {MANIFEST_NAME: manifest_of(data, version=2)}), "has version 2",
    ),
    "no events": (lambda data: changed(data, {EVENTS_NAME: b"[1]\n"}), "is not an event"),
    "not JSON": (lambda data: changed(data, {EVENTS_NAME: b"{\n"}), "Line 1 of events.jsonl is not valid JSON"),
    "deep JSON": (lambda data: changed(data, {EVENTS_NAME: b"[" * 100_000 + b"\n"}), "not valid JSON"),
    "infinity": (lambda data: changed(data, {EVENTS_NAME: b'{"seq": Infinity}\n'}), "not valid JSON"),
    "seq twice": (lambda data: changed(data, {EVENTS_NAME: EVENT * 2}), "seq is 1 after 1"),
    "cut line": (lambda data: changed(data, {EVENTS_NAME: EVENT[:-1]}), "cut off"),
    "foreign attempt": (
        lambda data: changed(data, {EVENTS_NAME: EVENT.replace(b'"attempt": 1', b'"attempt": 99')}), "no attempt 99",
    ),
    "running": (lambda data: changed(data, run_json(data, lambda c: c["run"].update(state="queued"))), "run.state"),
    "no settings": (lambda data: changed(data, run_json(data, lambda c: c["run"].update(spec={}))), "cannot read"),
    "unknown key": (lambda data: changed(data, run_json(data, lambda c: c.update(is_staff=True))), "is_staff"),
    "other run": (
        lambda data: changed(data, run_json(data, lambda c: c["run"].update(id="0" * 32))), "different runs",
    ),
    "agents twice": (
        lambda data: changed(data, run_json(data, lambda c: c["group"]["agents"].append(c["group"]["agents"][0]))),
        "twice",
    ),
    **{
        f"{name} {time}": (_with(time, "run", name), f"run.{name}")
        for name, time in [("created_at", EARLY), ("started_at", EARLY), ("finished_at", LATE)]
    },
    "time without a zone": (_with("2026-01-01T00:00:00", "run", "created_at"), "run.created_at"),
    "early change": (_with(EARLY, "status_changes", 0, "at"), "status_changes.0.at"),
    "late alert": (_with(LATE, "alerts", 0, "raised_at"), "alerts.0.raised_at"),
    "alerts twice": (
        lambda data: changed(data, run_json(data, lambda c: c["alerts"].append(c["alerts"][0]))), "same alert",
    ),
    "name of the run": (_with(EVIL, "run", "name"), "name: "),
    "name of the group": (_with(EVIL, "group", "name"), "group.name: Control characters"),
    "slash in a name": (_with("a/b", "group", "name"), "group.name: Slashes"),
    "name of a model": (_with(EVIL, "group", "agents", 0, "model", "name"), "model: Control characters"),
    "name of the owner": (_with(EVIL, "owner"), "owner: Control characters"),
    "tags": (_with(f",{EVIL},", "run", "tags"), "tags: Control characters"),
    "notes": (_with(EVIL, "run", "notes"), "notes: Control characters"),
    "damaged checkpoint": (
        lambda data: changed(data, {"checkpoints/step-000004/state/trainer.json": b"{}"}), "damaged",
    ),
}  # fmt: skip


def zip_of(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def manifest_of(data: bytes, **changes: Any) -> bytes:
    return json.dumps(json.loads(zipfile.ZipFile(io.BytesIO(data)).read(MANIFEST_NAME)) | changes).encode()


def test_hostile_bundles_are_refused_by_name_and_leave_nothing(client, run, settings):
    data = exported(client, run)
    empty(run)
    for name, (change, message) in HOSTILE.items():
        answer = imports(client, change(data))
        assert answer.status_code == 422, (name, answer.content)
        assert message in answer.json()["error"]["message"], (name, answer.json())
        assert not Run.objects.exists(), name
        assert not (settings.RUNS_DIR / str(run.pk)).exists(), name


def _least(content: dict[str, Any]) -> None:
    """Leave out of the settings all that has a default."""
    agents = [{name: agent[name] for name in ("name", "model")} for agent in content["run"]["spec"]["agents"]]
    further = {"benchmarks": [{"train_path": "/y", "benchmark": "more"}]}
    content["run"]["spec"] = {"agents": agents, "data": {"train_path": "/x"}, "evaluation": further}


def test_settings_that_leave_out_defaults_are_stored_with_them(client, run):
    """Pages read every setting of every run: one without its benchmark would take down the home page."""
    data = exported(client, run, "")
    empty(run)
    assert imports(client, changed(data, run_json(data, _least))).status_code == 201
    copy = Run.objects.get()
    assert copy.spec == RunSpec.model_validate(copy.spec).model_dump(mode="json")
    assert copy.spec["data"]["benchmark"] == "questions"
    pages = ["/", "/leaderboard/", "/api/v1/boards", "/runs/", f"/runs/{copy.pk}", f"/groups/{copy.group_id}"]
    assert {client.get(page, follow=True).status_code for page in pages} == {200}


def test_settings_of_an_older_version_stay_as_they_were(client, run):
    old = json.loads(json.dumps(run.spec))
    old["schema_version"], old["training"]["lora_rank"] = 1, 8
    old["algorithm"] |= {"name": "grpo", "delta": 0.8}  # of another algorithm, as version 1 stored all of them
    steps, old["training"]["steps"] = old["training"]["steps"], str(old["training"]["steps"])
    del old["compute"]["placement"]
    Run.objects.filter(pk=run.pk).update(spec=old)
    data = exported(client, run, "")
    empty(run)
    assert imports(client, data).status_code == 201
    old["training"]["steps"], old["compute"]["placement"] = steps, "local"
    assert Run.objects.get().spec == old


def test_tags_are_stored_so_that_a_filter_finds_them(client, run):
    data = exported(client, run, "")
    empty(run)
    assert imports(client, changed(data, run_json(data, lambda c: c["run"].update(tags="B,a")))).status_code == 201
    assert Run.objects.get().tags == ",a,b,"


# An event that no trainer writes, and the part of its warning that names the field.
ODD_EVENTS = {
    "settled": ({"type": "started", "step": 0, "total_steps": 4, "agents": [], "device": "x", "versions": {},
                 "settled": True}, "settled"),
    "ratios": ({"type": "metrics", "step": 1, "agent": "A", "values": {}, "ratios": 0}, "ratios"),
    "metric": ({"type": "evaluation", "step": 1, "agent": "A", "benchmark": "", "metric": {}, "value": 1.0,
                "correct": 1, "asked": 1}, "metric"),
    "count": ({"type": "left_out", "counts": {"log": 10**30}, "reason": "x"}, "counts"),
    "rewards": ({"type": "rollout", "step": 1, "agent": "A", "rewards": "x"}, "rollout"),
    "turns": ({"type": "rollout", "step": 1, "agent": "A", "turns": [{}]}, "rollout"),
}  # fmt: skip


def test_events_that_no_trainer_writes_are_imported_as_warnings(client, run):
    """Pages rely on the types of an event's fields: one such event would make them fail."""
    data = exported(client, run)
    empty(run)
    head = {"attempt": 1, "time": 1.0}
    lines = [json.dumps(head | event | {"seq": seq}) for seq, (event, _) in enumerate(ODD_EVENTS.values(), start=1)]
    odd = {"step": 1, "total_steps": 4, "elapsed_s": "x"}
    changes = run_json(data, lambda content: content["run"].update(progress=odd))
    answer = imports(client, changed(data, changes | {EVENTS_NAME: "".join(f"{line}\n" for line in lines).encode()}))
    assert answer.status_code == 201, answer.content
    events = client.get(f"/api/v1/runs/{run.pk}/events").json()["events"]
    for event, (_, part) in zip(events, ODD_EVENTS.values(), strict=True):
        assert event["type"] == "log"
        assert "could not be stored" in event["payload"]["message"]
        assert part in event["payload"]["message"]
    assert Run.objects.get().progress == {}


def test_event_cannot_bring_a_payload_that_is_not_checked(client, run):
    """By the name under which the shipper passes on a text that it did not parse."""
    data = exported(client, run)
    empty(run)
    event = {"seq": 1, "attempt": 1, "time": 1.0, "type": "log", "level": "info", "message": "x"}
    event |= {"payload text": "5", tables.PAYLOAD_TEXT: "5"}
    assert imports(client, changed(data, {EVENTS_NAME: json.dumps(event).encode() + b"\n"})).status_code == 201
    assert TelemetryEvent.objects.get().payload["message"] == "x"


def test_run_that_is_deleted_while_it_is_imported_leaves_no_events(client, run, monkeypatch):
    """PostgreSQL does not check the run of an event."""
    data = exported(client, run)
    empty(run)
    real, calls = importing.insert, []

    def insert_and_delete(run_id, records):
        calls.append(len(records))
        real(run_id, records)
        Run.objects.filter(pk=run_id).delete()

    monkeypatch.setattr(importing, "EVENTS_AT_ONCE", 5)
    monkeypatch.setattr(importing, "insert", insert_and_delete)
    answer = imports(client, data)
    assert (answer.status_code, answer.json()["error"]["code"], calls) == (409, "deleted", [5])
    assert not TelemetryEvent.objects.exists()


def test_numbers_that_were_not_finite_are_imported_as_they_are(client, run):
    event = {"seq": 1, "attempt": 1, "time": 1.0, "type": "metrics", "step": 1, "agent": "A", "source": ""}
    event |= {
        "values": {"kl": None},
        "ratios": {"x": [None, 2.0]},
        "nonfinite": {"values.kl": "nan", "ratios.x.0": "inf"},
    }
    Admission().check(event, None)
    for odd in ({"nonfinite": None}, {"ratios": {"x": [None]}}, {"ratios": {"x": ["inf", 2.0]}}):
        with pytest.raises(FieldsRefused):
            Admission().check(event | odd, None)


def test_limits_hold_before_anything_is_unpacked(client, run, monkeypatch):
    data = exported(client, run)
    empty(run)
    monkeypatch.setitem(reader.MOST_OF, EVENTS_NAME, 100)
    assert "too large once unpacked" in imports(client, data).json()["error"]["message"]
    monkeypatch.undo()
    monkeypatch.setattr(reader, "MAX_MEMBERS", 3)
    assert "more than 3 members" in imports(client, data).json()["error"]["message"]
    monkeypatch.undo()
    monkeypatch.setattr(reader, "MAX_BUNDLE_BYTES", 100)
    assert imports(client, data).json()["error"]["code"] == "too_large"
    monkeypatch.undo()
    monkeypatch.setattr(reader, "MAX_LINE_BYTES", 50)
    long = changed(data, {EVENTS_NAME: b"x" * (reader.CHUNK_BYTES + 60)})
    assert "longer than" in imports(client, long).json()["error"]["message"]


def test_list_of_members_is_measured_without_reading_it():
    """The end of a ZIP file of 2^40 bytes of names, which zipfile would read at once."""
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 1, 1, 0xFFFFFFFF, 0, 0)
    locator = b"PK\x06\x07" + struct.pack("<LQL", 0, 0, 1)
    record = b"PK\x06\x06" + struct.pack("<Q2H2L4Q", 44, 45, 45, 0, 0, 1, 1, 2**40, 0)
    file = record + locator + end
    assert directory_bytes(io.BytesIO(file), len(file)) == 2**40
    # The record that zipfile reads lies before the locator, whatever place that names: a decoy elsewhere is refused.
    decoy = record[:40] + struct.pack("<2Q", 0, 0) + file
    with pytest.raises(FieldErrors, match="not a ZIP file"):
        directory_bytes(io.BytesIO(decoy), len(decoy))


def test_import_that_was_killed_is_deleted_as_any_run_and_then_imported(client, run, monkeypatch):
    data = exported(client, run)
    empty(run)
    with monkeypatch.context() as patch:
        patch.setattr(importing, "_remove", lambda run: None)  # as if the process had been killed
        patch.setattr(importing, "_finish", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            imports(client, data)
    rest = Run.objects.get()
    assert (rest.state, rest.archived_at is not None) == (State.FAILED, True)
    assert "delete the run and import it again" in rest.reason
    assert imports(client, data).status_code == 409
    delete_run(rest.owner, rest)
    DeletedRuns().tick()
    assert imports(client, data).status_code == 201
    assert Run.objects.get().state == State.COMPLETED


def test_import_whose_run_was_deleted_leaves_the_next_one_alone(client, run, monkeypatch):
    data = exported(client, run)
    empty(run)
    write = importing._write

    def pause_and_write(path: Path, pieces: Any) -> None:
        """As if the first import had stood still until the second one had ended."""
        monkeypatch.setattr(importing, "_write", write)
        first = Run.objects.get()
        delete_run(first.owner, first)
        DeletedRuns().tick()
        assert imports(client, data).status_code == 201
        assert next(pieces)

    monkeypatch.setattr(importing, "_write", pause_and_write)
    assert imports(client, data).json()["error"]["code"] == "deleted"
    left = Run.objects.get()
    assert (left.state, left.events.count() > 0, left.status_changes.count()) == (State.COMPLETED, True, 3)
    assert left.run_dir.is_dir()


def test_import_is_refused_while_the_projects_files_take_what_they_may(client, run, owner):
    data = exported(client, run)
    empty(run)
    for limit in (0, 1e-9):  # the second one has room, but not for this bundle
        Quota.objects.update_or_create(project=owner.memberships.get().project, defaults={"disk_gib": limit})
        refused = imports(client, data)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "quota")
        assert not Run.objects.exists()
    Quota.objects.all().delete()
    assert imports(client, data).status_code == 201
    assert Run.objects.get().files_bytes > 0


def test_run_that_is_deleted_while_it_is_imported_leaves_nothing(client, run, monkeypatch):
    data = exported(client, run)
    empty(run)
    write = importing._write

    def write_and_delete(path: Path, pieces: Any) -> None:
        for one in Run.objects.all():
            delete_run(one.owner, one)
        assert imports(client, data).json()["error"]["message"].startswith("This run was deleted, and what it left")
        DeletedRuns().tick()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, pieces)

    monkeypatch.setattr(importing, "_write", write_and_delete)
    assert imports(client, data).json()["error"]["code"] == "deleted"
    assert not run.run_dir.exists()
    assert not Run._base_manager.exists()
    assert not TelemetryEvent.objects.exists()
