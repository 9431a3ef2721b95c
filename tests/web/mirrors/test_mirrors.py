"""Mirrors: every number once at its destination, no secret shown, and no trouble for anything else."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest
from django.utils import timezone

from hacrl_web.mirrors import process, sending
from hacrl_web.mirrors.event_rows import read_rows, series_key
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.sending import MirrorSender
from hacrl_web.runs.models import Run, State
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt
from tests.support.waiting import wait_until
from tests.support.web.event_files import event_file_scalars
from tests.support.web.factories import make_member, make_user, metrics
from tests.support.web.insight_help import claimed, evaluation, store
from workers.contract.events import Progress

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def progress(step: int) -> Progress:
    return Progress(
        step=step, total_steps=9, elapsed_s=1.0, eta_s=1.0, rollouts_generated=0, tokens_generated=0, phase_s={}
    )


def step_of(step: int, reward: float) -> list[Any]:
    """A step's events: one agent's numbers, one pair's, and the end of the step."""
    return [metrics(step, "A", **{"reward/mean": reward}), metrics(step, "A", "B", ess=reward / 2), progress(step)]


def new_mirror(owner: Any, kind: str = "tensorboard", **fields: Any) -> Mirror:
    project = owner.memberships.get().project
    return create_mirror(owner, project, {"kind": kind, **fields})


@pytest.fixture
def mirror(owner) -> Mirror:
    return new_mirror(owner)


@pytest.fixture
def run(owner, mirror) -> Run:
    """Two steps, and a third that is still being recorded."""
    run = claimed(owner, name="Swan")
    store(run, evaluation(0, "A", 0.25), *step_of(1, 0.5), *step_of(2, 0.75), metrics(3, "A", **{"reward/mean": 1.0}))
    return run


# The evaluation of step 0, and steps 1 and 2; step 3 has not ended.
SENT = [
    (0, "A/accuracy", 0.25),
    (1, "A/reward/mean", 0.5),
    (1, "A/ess/from B", 0.25),
    (2, "A/reward/mean", 0.75),
    (2, "A/ess/from B", 0.375),
]


def test_complete_steps_are_sent_once_and_the_rest_when_the_run_ends(mirror, run):
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 3
    assert event_file_scalars(mirror.folder) == SENT
    assert sender.serve() == 0  # nothing new
    store(run, *step_of(3, 1.0)[1:], metrics(4, "A", **{"reward/mean": 2.0}))
    assert sender.serve() == 1
    Run.objects.filter(pk=run.pk).update(state=State.STOPPED)
    assert sender.serve() == 1
    rest = [(3, "A/reward/mean", 1.0), (3, "A/ess/from B", 0.5), (4, "A/reward/mean", 2.0)]
    assert event_file_scalars(mirror.folder) == SENT + rest
    cursor = MirrorCursor.objects.get()
    assert (cursor.is_done, cursor.step, cursor.problem) == (True, 4, "")
    assert not mirror.due_runs().exists()


def test_full_disk_holds_the_files_of_mirrors_back_and_says_so(mirror, run, monkeypatch):
    monkeypatch.setattr(sending, "full_disk", lambda: "The disk of /data is full.")
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 0
    assert MirrorCursor.objects.get().problem == "The disk of /data is full."
    assert not mirror.folder.exists()
    monkeypatch.setattr(sending, "full_disk", lambda: "")
    MirrorCursor.objects.update(next_try_at=timezone.now())
    assert sender.serve() == 3
    assert MirrorCursor.objects.get().problem == ""


def test_sender_that_dies_before_it_noted_what_was_sent_sends_nothing_twice(mirror, run, monkeypatch):
    def die(cursor: MirrorCursor, **values: Any) -> None:
        if "sent_at" in values:
            raise KeyboardInterrupt
        move(cursor, **values)

    move = MirrorCursor.move
    monkeypatch.setattr(MirrorCursor, "move", die)
    sender = MirrorSender(mirror.pk)
    with pytest.raises(KeyboardInterrupt):
        sender.serve()
    assert len(event_file_scalars(mirror.folder)) == len(SENT)  # it had arrived
    process.kill_all()
    monkeypatch.undo()
    assert MirrorSender(mirror.pk).serve() == 3
    assert event_file_scalars(mirror.folder) == SENT


def test_event_file_has_settings_and_link_of_its_run_once_also_after_a_restart(mirror, run, settings):
    settings.PUBLIC_URL = "https://hacrl.example.org"
    sender = MirrorSender(mirror.pk)
    sender.serve()
    sender.forget_all()
    store(run, *step_of(3, 1.0)[1:])
    sender.serve()
    (path,) = mirror.folder.glob("*/events*")
    data = path.read_bytes()
    assert [data.count(tag) for tag in (b"hacrl/settings", b"hacrl/url")] == [1, 1]
    assert f"<https://hacrl.example.org/runs/{run.pk}>".encode() in data
    assert b"    algorithm.name" in data


def test_file_that_was_removed_is_written_again(mirror, run):
    MirrorSender(mirror.pk).serve()
    for path in mirror.folder.glob("*/events*"):
        path.unlink()
    store(run, *step_of(3, 1.0)[1:])
    MirrorSender(mirror.pk).serve()
    assert event_file_scalars(mirror.folder) == [*SENT, (3, "A/reward/mean", 1.0), (3, "A/ess/from B", 0.5)]


def test_mirror_that_hangs_is_ended_says_so_and_catches_up(mirror, run, settings, tmp_path, monkeypatch):
    python = settings.MIRRORS_PYTHON
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    settings.MIRRORS_PYTHON = str(silent)
    monkeypatch.setattr(process, "ANSWER_S", 0.2)
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 0
    cursor = MirrorCursor.objects.get()
    assert (cursor.tries, cursor.problem) == (1, "The destination did not answer within 0.2 s.")
    assert not process._living
    assert sender.serve() == 0
    assert MirrorCursor.objects.get().tries == 1  # not yet due again
    settings.MIRRORS_PYTHON = python
    monkeypatch.undo()
    MirrorCursor.objects.update(next_try_at=timezone.now())
    Mirror.objects.update(next_try_at=timezone.now())
    assert sender.serve() == 3
    cursor.refresh_from_db()
    assert (cursor.tries, cursor.problem) == (0, "")
    assert event_file_scalars(mirror.folder) == SENT


def test_process_gets_no_secret_but_its_own(mirror, run, monkeypatch, settings, tmp_path):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("HACRL_SECRET_KEY", "secret")
    shown = tmp_path / "shown"
    shown.write_text(f"#!/bin/sh\nenv > {tmp_path / 'env'}\n")
    shown.chmod(0o755)
    settings.MIRRORS_PYTHON = str(shown)
    MirrorSender(mirror.pk).serve()
    text = (tmp_path / "env").read_text()
    assert "postgres://secret" not in text
    assert "HACRL_SECRET_KEY" not in text
    assert "The process that sends ended" in MirrorCursor.objects.get().problem


def test_missing_package_is_named(owner, settings):
    mirror = new_mirror(owner, "trackio")
    command = [settings.MIRRORS_PYTHON, "-c", "import trackio"]
    if not subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("trackio is installed")
    run = claimed(owner)
    store(run, *step_of(1, 0.5))
    MirrorSender(mirror.pk).serve()
    assert MirrorCursor.objects.get().problem == (
        "The Python package trackio is not installed on the host of the watcher: "
        ".venv/bin/pip install -c constraints.txt trackio"
    )


def test_runs_before_the_mirror_and_those_of_other_projects_are_sent_only_if_chosen(client, owner):
    old = claimed(owner, name="old")
    store(old, *step_of(1, 0.5))
    mirror = new_mirror(owner)
    foreign = claimed(make_user("eve"))
    store(foreign, *step_of(1, 0.5))
    new = claimed(owner, name="new")
    store(new, *step_of(1, 0.5))
    assert [run.name for run in mirror.due_runs()] == ["new"]
    for run, choice in ((old, "on"), (new, "off")):
        path = f"/api/v1/runs/{run.pk}/mirrors/{mirror.pk}"
        answer = client.put(path, {"choice": choice}, content_type="application/json")
        assert answer.status_code == 200, answer.content
    assert [run.name for run in mirror.due_runs()] == ["old"]
    path = f"/api/v1/runs/{foreign.pk}/mirrors/{mirror.pk}"
    assert client.put(path, {"choice": "on"}, content_type="application/json").status_code == 404


def test_secret_is_stored_encrypted_and_never_shown(client, owner, settings):
    settings.MIRROR_ALLOW = ["mlflow.example.org"]
    project = owner.memberships.get().project
    body = {"kind": "mlflow", "options": {"url": "https://mlflow.example.org"}, "secret": "swan:white"}
    answer = client.post(f"/api/v1/projects/{project.pk}/mirrors", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    mirror = Mirror.objects.get()
    assert decrypt(mirror.secret_name, mirror.ciphertext) == "swan:white"
    pages = [f"/projects/{project.pk}/mirrors", f"/api/v1/projects/{project.pk}/mirrors", "/audit"]
    for text in (mirror.ciphertext, *(client.get(page).content.decode() for page in pages)):
        assert "swan:white" not in text
    assert answer.json()["has_secret"] is True
    path = f"/api/v1/projects/{project.pk}/mirrors/{mirror.pk}"
    assert client.put(path, {"sends": "chosen"}, content_type="application/json").json()["has_secret"] is True
    settings.MIRROR_ALLOW = ["mlflow.example.org", "other.example.org"]
    moved = {"options": {"url": "https://other.example.org"}}
    assert client.put(path, moved, content_type="application/json").json()["has_secret"] is False
    settings.SECRET_KEY = "another" * 10
    with pytest.raises(SecretUnreadable):
        decrypt(mirror.secret_name, mirror.ciphertext)


def test_key_is_replaced_on_the_page_and_online_mode_is_refused_without_one(client, owner):
    project = owner.memberships.get().project
    made = create_mirror(owner, project, {"kind": "wandb", "options": {"mode": "offline"}})
    path, page = f"/api/v1/projects/{project.pk}/mirrors/{made.pk}", f"/projects/{project.pk}/mirrors"
    online = {"options": {"mode": "online"}}
    refused = client.put(path, online, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "secret")
    assert "Set the key of wandb" in client.get(page).content.decode()
    client.post(f"{page}/{made.pk}", {"do": "secret", "secret": "a" * 40})
    assert "Replace the key of wandb" in client.get(page).content.decode()
    assert client.put(path, online, content_type="application/json").status_code == 200
    made.refresh_from_db()
    assert decrypt(made.secret_name, made.ciphertext) == "a" * 40


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"kind": "swan"}, "kind", "Choose one of"),
        ({"kind": "mlflow"}, "options.url", "required"),
        ({"kind": "mlflow", "options": {"url": "http://169.254.169.254"}}, "options.url", "HACRL_MIRROR_ALLOW"),
        ({"kind": "mlflow", "options": {"url": "file:///etc"}}, "options.url", "https://host/path"),
        ({"kind": "wandb", "options": {"mode": "online"}}, "secret", "needs an API key"),
        ({"kind": "wandb", "options": {"project": "../x"}}, "options.project", "not allowed"),
        ({"kind": "tensorboard", "options": {"folder": "/etc"}}, "options.folder", "no option"),
        ({"kind": "trackio", "secret": "x"}, "secret", "does not use a key"),
    ],
)
def test_what_no_mirror_can_have_is_refused_at_its_field(client, owner, body, field, message):
    project = owner.memberships.get().project
    answer = client.post(f"/api/v1/projects/{project.pk}/mirrors", body, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert message in answer.json()["error"]["message"]
    assert not Mirror.objects.exists()


def test_admins_manage_members_choose_and_viewers_look(client, mirror, run):
    project, pages = mirror.project, (f"/projects/{mirror.project_id}/mirrors", f"/runs/{run.pk}/mirrors")
    changes = [(pages[0], {"kind": "tensorboard", "name": "b"}), (f"{pages[0]}/{mirror.pk}", {"do": "pause"})]
    choice = (f"/runs/{run.pk}/mirrors/{mirror.pk}", {"choice": "off"})
    for role, allowed in (("viewer", 0), ("member", 1), ("admin", 3)):
        client.force_login(make_member(project, role))
        assert [client.get(page).status_code for page in pages] == [200, 200]
        statuses = [client.post(*change).status_code for change in (choice, *changes)]
        assert statuses == [302] * allowed + [403] * (3 - allowed), role
    mirror.refresh_from_db()
    assert not mirror.is_enabled
    assert MirrorSender(mirror.pk).serve() == 0


def test_names_are_safe_for_every_destination_and_stay_apart():
    assert series_key("reward/mean", "A") == "A/reward/mean"
    assert series_key("ess", "A", "B") == "A/ess/from B"
    names = {series_key("x", "ä"), series_key("x", "ö"), series_key("x", "a:b"), series_key("x", "a?b")}
    assert len(names) == 4
    assert all(name.isascii() and ":" not in name for name in names)
    assert len(series_key("m" * 200, "a" * 80)) <= 240


def test_repeated_steps_are_rows_of_their_attempt(owner):
    run = claimed(owner)
    store(run, *step_of(1, 0.5), *step_of(2, 0.75))
    store(run, *step_of(2, 0.7), attempt=2)
    rows = read_rows(run, 0).rows
    assert [(row.attempt, row.step) for row in rows] == [(1, 1), (1, 2), (2, 2)]
    assert json.dumps(rows[2].values) == '{"A/reward/mean": 0.7, "A/ess/from B": 0.35}'


def test_process_that_cannot_be_started_is_a_failure_of_the_run_and_tried_again_later(mirror, run, settings):
    settings.MIRRORS_PYTHON = "/none/python"
    assert MirrorSender(mirror.pk).serve() == 0
    cursor = MirrorCursor.objects.get(mirror=mirror, run=run)
    assert (cursor.tries, cursor.next_try_at > timezone.now()) == (1, True)
    assert cursor.problem == "The process that sends cannot be started (No such file or directory)."


def test_mirror_with_much_to_send_gives_its_thread_to_others_and_goes_on_in_its_next_turn(mirror, run, monkeypatch):
    monkeypatch.setattr(sending, "ROUND_S", -1.0)
    monkeypatch.setattr(sending, "ROWS_AT_ONCE", 1)
    sender = MirrorSender(mirror.pk)
    assert [sender.serve() for _ in range(4)] == [1, 1, 1, 0]
    assert event_file_scalars(mirror.folder) == SENT
    Run.objects.filter(pk=run.pk).update(state=State.STOPPED)
    while mirror.due_runs().exists():
        sender.serve()
    assert event_file_scalars(mirror.folder) == [*SENT, (3, "A/reward/mean", 1.0)]


def test_run_that_failed_and_then_sends_a_whole_round_no_longer_waits_for_another_try(mirror, run, monkeypatch):
    """A slow destination also keeps its small batches, which grow, in the next round."""
    sizes = []
    ask = process.MirrorProcess.ask

    def noted(self: Any, **request: Any) -> Any:
        sizes.append(len(request.get("rows", ())))
        return ask(self, **request)

    monkeypatch.setattr(process.MirrorProcess, "ask", noted)
    monkeypatch.setattr(sending, "ROUND_S", -1.0)
    monkeypatch.setattr(sending, "ROWS_AT_ONCE", 4)
    store(run, *(event for step in range(4, 9) for event in step_of(step, step / 8)))
    MirrorCursor.objects.create(mirror=mirror, run=run, tries=1, problem="The destination did not answer.")
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 1
    cursor = MirrorCursor.objects.get()
    assert (cursor.tries, cursor.problem, cursor.is_done) == (0, "", False)
    while sender.serve():
        pass
    assert sizes == [0, 1, 2, 4, 2]  # nine rows: those of the steps 0 to 8


def test_number_beyond_32_bits_is_infinite_in_tensorboard_and_keeps_no_other_back(mirror, run):
    store(run, metrics(3, "A", ess=1e39, kl=-1e300), progress(3))
    assert MirrorSender(mirror.pk).serve() == 4
    assert event_file_scalars(mirror.folder)[-2:] == [(3, "A/ess", math.inf), (3, "A/kl", -math.inf)]
    assert MirrorCursor.objects.get().problem == ""


def test_log_keeps_the_lines_of_every_process_and_is_bounded(settings, tmp_path, monkeypatch):
    loud = tmp_path / "loud"
    loud.write_text("#!/bin/sh\necho began >&2\nread line\necho ended >&2\n")
    loud.chmod(0o755)
    settings.MIRRORS_PYTHON = str(loud)
    log = tmp_path / "mirror.log"
    processes = [process.MirrorProcess(tmp_path) for _ in range(2)]
    wait_until(lambda: log.read_text() == "began\nbegan\n")
    for one in processes:
        with pytest.raises(process.MirrorFailed):
            one.ask(op="open")
    assert log.read_text() == "began\nbegan\nended\nended\n"
    monkeypatch.setattr(process, "LOG_BYTES", 20)
    last = process.MirrorProcess(tmp_path)
    wait_until(lambda: log.read_text() == "began\n")
    assert (tmp_path / "mirror.log.1").read_text() == "began\nbegan\nended\nended\n"
    last.end()


def test_two_changes_at_once_keep_both(owner, mirror):
    """The second request has read the mirror before the first one pauses it."""
    stale = Mirror.objects.get(pk=mirror.pk)
    change_mirror(owner, mirror, {"is_enabled": False})
    change_mirror(owner, stale, {"sends": "chosen"})
    row = Mirror.objects.get(pk=mirror.pk)
    assert (row.is_enabled, row.sends) == (False, "chosen")
    row.delete()
    with pytest.raises(FieldErrors, match="has been removed"):
        change_mirror(owner, stale, {"sends": "new"})
    assert not Mirror.objects.exists()
