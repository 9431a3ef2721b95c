"""Retention: which checkpoints and archived runs go and when, what never goes, and what a run without files refuses."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.insight.checkpoints import reuse, uploads
from hacrl_web.insight.checkpoints.checkpoints import find_checkpoint
from hacrl_web.insight.evaluations.new_evaluation import launch_evaluation
from hacrl_web.runs.archive.leftover_files import DeletedRuns
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.limits import upkeep
from hacrl_web.runs.limits.upkeep import RetentionUpkeep, delete_archived, remove_checkpoints
from hacrl_web.runs.models import GENERATED, Retention, Run, State, Sweep, TelemetryEvent
from hacrl_web.runs.storage.run_files import reading_files
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_benchmark, make_model, make_run, make_user
from tests.support.web.insight_help import add_checkpoint, claimed, evaluation, store
from tests.support.web.racing import racing
from workers.contract.events import Checkpoint
from workers.contract.trainer_process import lock_run_dir

pytestmark = pytest.mark.django_db
FOLDERS = ("checkpoints", "gguf", "models")
SENTENCE = "The checkpoints of this run were removed after 30 days by the project's retention, on "


def retain(run: Run, **days: int | None) -> None:
    Retention.objects.update_or_create(project=run.project, defaults=days)


def ago(days: float) -> Any:
    return timezone.now() - timedelta(days=days)


def change(run: Run, **columns: Any) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)
    run.refresh_from_db()


def trained(owner: Any, ended_days_ago: float = 31) -> Run:
    """A completed run with a checkpoint, a GGUF file, an evaluated copy and two events."""
    run = claimed(owner)
    add_checkpoint(run, 5)
    for name in FOLDERS[1:]:
        (run.run_dir / name).mkdir()
        (run.run_dir / name / "weights").write_bytes(b"x" * 8192)
    store(run, evaluation(5, "A", 0.5), Checkpoint(step=5, path="checkpoints/step-000005", size_bytes=1))
    change(run, state=State.COMPLETED, finished_at=ago(ended_days_ago), files_bytes=10**6)
    return run


@pytest.fixture
def run(owner) -> Run:
    run = trained(owner)
    retain(run, checkpoint_days=30)
    return run


def has_files(run: Run) -> bool:
    there = {name for name in FOLDERS if (run.run_dir / name).exists()}
    assert there in (set(), set(FOLDERS))
    return bool(there)


def test_checkpoints_go_after_so_many_days_and_the_record_stays(run, owner, caplog):
    young = trained(owner, 29)
    other = trained(make_user())  # of a project without retention
    with caplog.at_level(logging.INFO):
        assert RetentionUpkeep(lambda: 0.0).tick() == 1
    assert [has_files(one) for one in (run, young, other)] == [False, True, True]
    run.refresh_from_db()
    assert (run.files_removed_days, run.files_removed_at.date()) == (30, timezone.now().date())
    assert (run.run_dir / "events.jsonl").exists()
    assert TelemetryEvent.objects.filter(run=run).count() == 2
    assert run.files_bytes < 10**5, "the disk quota counts what is left"
    (entry,) = AuditEntry.objects.filter(action="remove_checkpoints")
    assert (entry.actor, entry.via, entry.object_id) == ("retention", "upkeep", str(run.pk))
    assert entry.after["days"] == 30
    assert entry.after["bytes"] >= 16384
    assert f"run {run.pk} lost its checkpoints, {entry.after['bytes']} bytes, after 30 days" in caplog.text


def test_without_a_value_nothing_goes(run):
    change(run, archived_at=ago(4000))
    retain(run, checkpoint_days=None)
    assert RetentionUpkeep(lambda: 0.0).tick() == 0
    assert has_files(run)


def in_search(run: Run) -> None:
    change(run, sweep=Sweep.objects.create(owner=run.owner, name="search", search_state="searching"))


def read_by_a_waiting_run(run: Run) -> None:
    reader = make_run(run.owner)
    reader.spec["agents"][0]["model"] = str(run.run_dir.resolve() / "models" / "0")
    reader.save()


def read_by_a_model(run: Run) -> None:
    model = make_model(make_user())  # of another project, too
    type(model).objects.filter(pk=model.pk).update(location=str(run.run_dir.resolve() / "checkpoints/step-000005"))


def imported_lately(run: Run) -> None:
    change(run, origin={"imported_at": ago(2).isoformat()})


NEVER: dict[str, Callable[[Run], Any]] = {
    **{state: partial(change, state=state) for state in ("paused", "queued", "lost", "running")},
    "keep": partial(change, tags=",best,keep,"),
    "search": in_search,
    "another host": partial(change, data_folder="there"),
    "waiting run": read_by_a_waiting_run,
    "model": read_by_a_model,
}


@pytest.mark.parametrize("rule", [*NEVER, "import"])
def test_checkpoints_that_are_needed_stay(run, rule):
    (NEVER | {"import": imported_lately})[rule](run)
    assert RetentionUpkeep(lambda: 0.0).tick() == 0
    assert not remove_checkpoints(run.pk), "nor where the rule came after the look at the list"
    assert has_files(run)
    run.refresh_from_db()
    assert run.files_removed_at is None


@pytest.mark.parametrize("rule", NEVER)
def test_archived_runs_that_are_needed_stay(run, rule):
    retain(run, checkpoint_days=None, archived_days=30)
    change(run, archived_at=ago(31))
    NEVER[rule](run)
    assert RetentionUpkeep(lambda: 0.0).tick() == 0
    assert not delete_archived(run.pk)
    assert has_files(run)


@pytest.mark.parametrize("act", [remove_checkpoints, delete_archived])
def test_files_in_use_stay_until_nobody_uses_them(run, act):
    retain(run, archived_days=30)
    change(run, archived_at=ago(31))
    lock = lock_run_dir(run.run_dir)
    assert not act(run.pk)
    os.close(lock)
    with reading_files(run):
        assert not act(run.pk)
    assert has_files(run)
    assert act(run.pk)


def push(run: Run, manifest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "usable_hub_token", lambda *_: "hf_swan")
    uploads.start_upload(run.owner, run, manifest, "A", repo="swan", content="merged", is_private=True)


def test_downloads_and_uploads_keep_the_files_to_their_end(client, run, monkeypatch):
    for path in (f"/runs/{run.pk}/checkpoints/5/0.zip", f"/api/v1/runs/{run.pk}/bundle.zip?checkpoints=1"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert not remove_checkpoints(run.pk), path
        assert answer.getvalue()
    locks: list[int] = []

    def start(folder: Path, module: str, facts: Any, request: Any, lock: int) -> str:
        locks.append(os.dup(lock))  # as a process that inherits it
        folder.mkdir()
        (folder / "1.json").write_text(json.dumps({**facts, "pid": os.getpid(), "started": 0.0}))
        return "1"

    monkeypatch.setattr(uploads, "start_job", start)
    push(run, find_checkpoint(run, 5), monkeypatch)
    assert not remove_checkpoints(run.pk)
    os.close(locks[0])
    assert remove_checkpoints(run.pk)


def test_weights_behind_a_link_stay_and_are_not_said_to_be_gone(run, tmp_path):
    for name in FOLDERS:
        shutil.move(run.run_dir / name, tmp_path / name)
        (run.run_dir / name).symlink_to(tmp_path / name)
    assert RetentionUpkeep(lambda: 0.0).tick() == 0
    assert (tmp_path / "checkpoints/step-000005/manifest.json").exists()
    run.refresh_from_db()
    assert run.files_removed_at is None


def test_what_needs_the_files_refuses_with_the_date_and_the_days(client, run):
    body = {"step": 5, "agent": 0, "repo": "ada/swan", "steps": 3, "question": "?", "name": "swan"}
    api = f"/api/v1/runs/{run.pk}"
    posts = {"promote": ("name",), "push": ("repo",), "extend": ("steps",), "ask": ("question",)}
    assert RetentionUpkeep(lambda: 0.0).tick() == 1
    run.refresh_from_db()
    sentence = f"{SENTENCE}{run.files_removed_at:%Y-%m-%d}."
    page = client.get(f"/runs/{run.pk}/checkpoints").content.decode().replace("&#x27;", "'")
    assert sentence in page
    assert "checkpoint.save_steps" not in page
    assert 'id="continue" href' not in page or " hidden>Continue training" in page
    assert client.get(f"{api}/checkpoints").json()["removal"] == sentence
    for act, keys in posts.items():
        sent = {key: body[key] for key in (*keys, "step", *(["agent"] if act not in ("extend", "ask") else []))}
        answer = client.post(f"{api}/checkpoints/{act}", json.dumps(sent), content_type="application/json")
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, sentence), act
        on_page = client.post(f"/runs/{run.pk}/checkpoints/{act}", sent)
        assert sentence in on_page.content.decode().replace("&#x27;", "'"), act
    assert client.get(f"{api}/checkpoints/5/0.zip").json()["error"]["message"] == sentence
    bundle = client.get(f"{api}/bundle.zip?checkpoints=1")
    assert (bundle.status_code, sentence in bundle.json()["error"]["message"]) == (409, True)
    assert client.get(f"{api}/bundle.zip").status_code == 200
    request = {"run": str(run.pk), "step": 5, "benchmarks": [make_benchmark(run.owner).pk]}
    with pytest.raises(FieldErrors, match="by the project's retention"):
        launch_evaluation(run.owner, request)
    assert retry(run.owner, run).state == State.QUEUED, "from step 0 it needs none"


def test_checkpoint_that_goes_between_look_and_use_is_refused_with_the_sentence(run, monkeypatch):
    manifest = find_checkpoint(run, 5)
    before = set(os.listdir(run.run_dir.parent))
    assert remove_checkpoints(run.pk)
    uses = (
        lambda: reuse.launch_extension(run.owner, run, manifest, 3),
        lambda: reuse.promote_checkpoint(run.owner, run, manifest, "A", "swan"),
        lambda: push(run, manifest, monkeypatch),
    )
    for use in uses:
        with pytest.raises(FieldErrors, match="by the project's retention"):
            use()
    assert Run.objects.count() == 1
    assert set(os.listdir(run.run_dir.parent)) == before


def evaluated(run: Run) -> None:
    """As an evaluation of a checkpoint: its agents are copies in its own folder."""
    run.spec["agents"][0]["model"] = str(run.run_dir.resolve() / "models" / "0")
    run.save()


def test_retry_of_an_evaluation_needs_its_copies_and_so_does_the_retry_of_a_retry(run):
    evaluated(run)
    second = retry(run.owner, run)
    assert not remove_checkpoints(run.pk), "the retry reads them"
    change(second, state=State.FAILED, finished_at=timezone.now())
    assert remove_checkpoints(run.pk)
    for one in (run, second):
        one.refresh_from_db()
        with pytest.raises(FieldErrors, match="by the project's retention"):
            retry(run.owner, one)


@pytest.mark.django_db(transaction=True)
def test_retry_and_continuation_at_the_same_moment_have_their_files_or_are_refused(owner):
    """Whoever is first: a waiting run never lacks what it reads."""
    with racing(3) as race:
        for _ in range(8):
            run = trained(owner)
            retain(run, checkpoint_days=30)
            evaluated(run)
            manifest = find_checkpoint(run, 5)
            made: list[Run] = []
            refusals: list[str] = []

            def attempt(act: Callable[[], Run], made: list[Run] = made, refusals: list[str] = refusals) -> None:
                try:
                    made.append(act())
                except FieldErrors as refused:
                    refusals.append(str(refused))

            race(
                partial(remove_checkpoints, run.pk),
                partial(attempt, partial(retry, owner, run)),
                partial(attempt, partial(reuse.launch_extension, owner, run, manifest, 3)),
            )
            run.refresh_from_db()
            assert has_files(run) == (run.files_removed_at is None)
            assert all("retention" in text or "are being removed" in text for text in refusals), refusals
            for one in made:
                place = one.run_dir / "checkpoints/step-000005" if one.start_step else run.run_dir / "models"
                assert place.is_dir()
            Run.objects.all().delete()


def test_archived_runs_are_deleted_whole(run, owner, caplog):
    retain(run, checkpoint_days=30, archived_days=90)
    young, generated = trained(owner, 10), make_run(owner, name="generated")
    change(run, archived_at=ago(91), name="old swan")
    change(young, archived_at=ago(89))
    change(generated, state=State.COMPLETED, archived_at=ago(91), data_folder=GENERATED)
    with caplog.at_level(logging.INFO):
        assert RetentionUpkeep(lambda: 0.0).tick() == 2
    assert list(Run.objects.all()) == [young]
    assert DeletedRuns().tick() == 2
    assert not run.run_dir.exists()
    assert os.listdir(run.run_dir.parent) == [str(young.pk)]
    assert not TelemetryEvent.objects.filter(run_id=run.pk).exists()
    entry = AuditEntry.objects.get(action="deleted", object_id=str(run.pk))
    assert (entry.actor, entry.name, entry.project_id) == ("retention", "old swan", run.project_id)
    assert f"archived run {run.pk} is deleted, " in caplog.text


def test_restored_run_stays(run):
    retain(run, checkpoint_days=None, archived_days=1)
    change(run, archived_at=None)
    assert not delete_archived(run.pk)
    assert RetentionUpkeep(lambda: 0.0).tick() == 0
    assert has_files(run)


def test_removal_that_a_crash_interrupts_is_completed_by_the_next_round(run, monkeypatch):
    def crash(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(upkeep.shutil, "rmtree", crash)
        with pytest.raises(KeyboardInterrupt):
            RetentionUpkeep(lambda: 0.0).tick()
    run.refresh_from_db()
    assert run.files_removed_at is not None
    Retention.objects.all().delete()  # whatever staff set meanwhile
    RetentionUpkeep(lambda: 0.0).tick()
    assert not has_files(run)
    assert AuditEntry.objects.filter(action="remove_checkpoints").count() == 1


def test_folder_that_cannot_be_removed_holds_up_no_other(run, owner, monkeypatch, caplog):
    second = trained(owner)
    remove = shutil.rmtree

    def fail(path: Path, **options: Any) -> None:
        if run.run_dir in path.parents:
            raise PermissionError(13, "not yours")
        remove(path, **options)

    monkeypatch.setattr(upkeep.shutil, "rmtree", fail)
    RetentionUpkeep(lambda: 0.0).tick()
    assert (run.run_dir / "checkpoints").exists()
    assert not has_files(second)
    assert f"run {run.pk} was left as it is" in caplog.text


def test_round_of_a_project_is_once_an_hour_and_a_few_runs_a_tick(run, owner, monkeypatch):
    now = [0.0]
    job = RetentionUpkeep(lambda: now[0])
    second = trained(owner)
    monkeypatch.setattr(upkeep, "BUDGET_S", -1.0)
    assert job.tick() == 0
    monkeypatch.setattr(upkeep, "BUDGET_S", 0.2)
    measure = upkeep.measure_files

    def slow(one: Run) -> None:
        now[0] += 0.5
        measure(one)

    monkeypatch.setattr(upkeep, "measure_files", slow)
    assert job.tick() == 1, "the budget is spent"
    assert job.tick() == 1
    assert not has_files(second)
    third = trained(owner)
    now[0] = upkeep.EVERY_S - 1
    assert job.tick() == 0
    assert has_files(third)
    now[0] += 20
    assert job.tick() == 1
    other = trained(make_user())
    retain(other, checkpoint_days=1)
    now[0] += 20
    assert job.tick() == 1, "another project has its own hour"


def test_staff_see_what_would_go_before_they_set_it(client, run, owner):
    Retention.objects.all().delete()
    archived = trained(owner)
    change(archived, archived_at=ago(100), files_bytes=7)
    change(trained(owner), tags=",keep,")
    project = run.project
    page, api = f"/projects/{project.pk}/retention", f"/api/v1/projects/{project.pk}/retention"
    values = {"checkpoint_days": "30", "archived_days": "90"}
    assert client.get(page, values).status_code == client.post(page, values).status_code == 403
    assert client.get(f"{api}/preview", values).status_code == 403
    assert client.put(api, {"archived_days": 1}, content_type="application/json").status_code == 403
    card = client.get(project.get_absolute_url()).content.decode()
    assert "Retention" in card
    assert 'name="checkpoint_days"' not in card
    assert client.get(api).json() == {"checkpoint_days": None, "archived_days": None}

    client.force_login(make_user(is_staff=True))
    assert 'name="checkpoint_days"' in client.get(project.get_absolute_url()).content.decode()
    shown = client.get(page, values).content.decode()
    assert "files of 1 run," in shown
    assert "1 archived run with everything recorded" in shown
    assert "Checkpoints: days after the end of their run</dt><dd>30" in shown
    loss = client.get(f"{api}/preview", values).json()
    assert (loss["file_runs"], loss["archived_runs"]) == (1, 1)
    assert (loss["file_bytes"], loss["archived_bytes"]) == (10**6, 7), "as last measured"
    assert "Nothing would be removed now" in client.get(page, {"checkpoint_days": "3650"}).content.decode()
    assert not Retention.objects.exists(), "a look changes nothing"

    assert client.post(page, values).status_code == 302
    assert client.get(api).json() == {"checkpoint_days": 30, "archived_days": 90}
    assert 'value="30"' in client.get(project.get_absolute_url()).content.decode()
    client.put(api, {"archived_days": 7}, content_type="application/json")
    assert client.get(api).json() == {"checkpoint_days": None, "archived_days": 7}
    assert AuditEntry.objects.filter(kind="retention", project_id=project.pk).count() == 2
    client.force_login(make_user())
    assert {client.get(one).status_code for one in (page, api, f"{api}/preview")} == {404}
