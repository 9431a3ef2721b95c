"""Mirrors: complete steps once, some rollouts if the admins want it, no secret shown, and no trouble for other runs."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest

from hacrl_web.mirrors import follower, process, rows
from hacrl_web.mirrors.follower import MirrorFollower
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.rows import CUT, batches, evenly_chosen, read_rows, safe_text, series_key
from hacrl_web.runs.models import Run, State
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt
from tests.support.waiting import wait_until
from tests.support.web.event_files import event_file_scalars, event_file_tables
from tests.support.web.factories import make_member, make_user, metrics
from tests.support.web.insight_help import claimed, evaluation, store
from workers.contract.events import Progress, Rollout

pytestmark = pytest.mark.django_db


def progress(step: int) -> Progress:
    return Progress(
        step=step, total_steps=9, elapsed_s=1.0, eta_s=1.0, rollouts_generated=0, tokens_generated=0, phase_s={}
    )


def step_of(step: int, reward: float) -> list[Any]:
    """A step's events: one agent's numbers, one pair's, and the end of the step."""
    return [metrics(step, "A", **{"reward/mean": reward}), metrics(step, "A", "B", ess=reward / 2), progress(step)]


def rollout(step: int, agent: str, sample: int, **changes: Any) -> Rollout:
    values: dict[str, Any] = {
        "step": step, "agent": agent, "prompt_id": "q1", "sample": sample, "prompt": "2 + 2?",
        "completion": f"{agent} {step}.{sample}", "answer": "4", "reward": 1.0, "finish_reason": "stop",
        "num_tokens": 3, "mean_logp": -0.5,
    }  # fmt: skip
    return Rollout(**values | changes)


def step_with_rollouts(step: int, number: int = 4, **changes: Any) -> list[Any]:
    rollouts = [rollout(step, agent, sample, **changes) for agent in ("A", "B") for sample in range(number)]
    return [*rollouts, *step_of(step, 0.5)]


def new_mirror(owner: Any, kind: str = "tensorboard", **fields: Any) -> Mirror:
    return create_mirror(owner, owner.memberships.get().project, {"kind": kind, **fields})


def new_run(owner: Any, name: str = "Swan") -> Run:
    """Two steps, and a third that is still being recorded."""
    run = claimed(owner, name=name)
    store(run, evaluation(0, "A", 0.25), *step_of(1, 0.5), *step_of(2, 0.75), metrics(3, "A", **{"reward/mean": 1.0}))
    return run


@pytest.fixture
def mirror(owner) -> Mirror:
    return new_mirror(owner)


@pytest.fixture
def run(owner, mirror) -> Run:
    return new_run(owner)


# The evaluation of step 0, and steps 1 and 2; step 3 has not ended.
SENT = [
    (0, "A/accuracy", 0.25),
    (1, "A/reward/mean", 0.5),
    (1, "A/ess/from B", 0.25),
    (2, "A/reward/mean", 0.75),
    (2, "A/ess/from B", 0.375),
]
REST = [(3, "A/reward/mean", 1.0), (3, "A/ess/from B", 0.5)]


def test_complete_steps_are_sent_once_and_the_rest_when_the_run_ends(mirror, run):
    """Also by one that begins anew, as after a restart of the watcher."""
    sender = MirrorFollower(mirror)
    sender.send_due()
    assert event_file_scalars(mirror.files) == SENT
    sender.send_due()
    store(run, *step_of(3, 1.0)[1:], metrics(4, "A", **{"reward/mean": 2.0}))
    sender.send_due()
    assert event_file_scalars(mirror.files) == SENT + REST
    Run.objects.filter(pk=run.pk).update(state=State.STOPPED)
    MirrorFollower(mirror).send_due()
    assert event_file_scalars(mirror.files) == [*SENT, *REST, (4, "A/reward/mean", 2.0)]
    cursor = MirrorCursor.objects.get()
    assert (cursor.is_done, cursor.step, cursor.problem) == (True, 4, "")
    assert not mirror.due_runs().exists()


def test_run_that_cannot_be_sent_holds_no_other_back_and_is_tried_again_later(mirror, run, owner, monkeypatch):
    def fail(one: Run) -> Any:
        if one.pk == run.pk:
            raise process.MirrorFailed("It is refused.")
        return facts_of(one)

    facts_of = follower.facts_of
    other, sender = new_run(owner, "Goose"), MirrorFollower(mirror)
    with monkeypatch.context() as patch:
        patch.setattr(follower, "facts_of", fail)
        sender.send_due()
    cursors = {cursor.run_id: cursor for cursor in MirrorCursor.objects.all()}
    assert [(cursors[one.pk].problem, cursors[one.pk].seq > 0) for one in (run, other)] == [
        ("It is refused.", False), ("", True),
    ]  # fmt: skip
    sender.send_due()
    assert MirrorCursor.objects.get(run=run).seq == 0  # not yet due again
    sender._retries.clear()
    sender.send_due()
    assert MirrorCursor.objects.filter(seq__gt=0, problem="").count() == 2


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("disk", "The disk of /data is full."),
        ("python", "The process that sends cannot be started (No such file or directory)."),
        ("ends", "The process that sends ended: the end of mirror.log in its folder says why."),
    ],
)
def test_what_keeps_a_run_back_is_said(mirror, run, patch, problem, monkeypatch, settings, tmp_path):
    if patch == "disk":
        monkeypatch.setattr(follower, "full_disk", lambda: problem)
    settings.MIRRORS_PYTHON = {"python": "/none/python", "ends": "/bin/true"}.get(patch, settings.MIRRORS_PYTHON)
    MirrorFollower(mirror).send_due()
    assert MirrorCursor.objects.get().problem == problem
    assert mirror.files.exists() == (patch != "disk")


def test_file_that_was_removed_is_written_again(mirror, run):
    sender = MirrorFollower(mirror)
    sender.send_due()
    sender._end_process()
    for path in mirror.files.glob("*/events*"):
        path.unlink()
    store(run, *step_of(3, 1.0)[1:])
    sender.send_due()
    assert event_file_scalars(mirror.files) == SENT + REST


def test_each_run_gets_its_turn_beside_one_with_much_to_send(mirror, run, owner, monkeypatch):
    monkeypatch.setattr(rows, "EVENTS_AT_ONCE", 4)
    monkeypatch.setattr(follower, "RUNS_OPEN", 1)
    new_run(owner, "Goose")
    sender = MirrorFollower(mirror)
    assert sender.send_due()  # there is more
    assert [cursor.seq > 0 for cursor in MirrorCursor.objects.all()] == [True, True]
    while sender.send_due():
        pass
    Run.objects.update(state=State.STOPPED)
    while sender.send_due():
        pass
    for path in mirror.files.glob("*/events*"):
        assert event_file_scalars(path.parent) == [*SENT, (3, "A/reward/mean", 1.0)]
    assert MirrorCursor.objects.filter(is_done=True).count() == 2


def test_process_gets_no_secret_but_its_own(mirror, run, monkeypatch, settings, tmp_path):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("HACRL_SECRET_KEY", "secret")
    shown = tmp_path / "shown"
    shown.write_text(f"#!/bin/sh\nenv > {tmp_path / 'env'}\n")
    shown.chmod(0o755)
    settings.MIRRORS_PYTHON = str(shown)
    MirrorFollower(mirror).send_due()
    text = (tmp_path / "env").read_text()
    assert "postgres://secret" not in text
    assert "HACRL_SECRET_KEY" not in text


def test_missing_package_is_named(owner, settings):
    mirror = new_mirror(owner, "trackio")
    command = [settings.MIRRORS_PYTHON, "-c", "import trackio"]
    if not subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("trackio is installed")
    new_run(owner)
    MirrorFollower(mirror).send_due()
    assert MirrorCursor.objects.get().problem == (
        "The Python package trackio is not installed on the host of the watcher: "
        ".venv/bin/pip install -c constraints.txt trackio"
    )


def test_runs_before_the_mirror_and_those_of_other_projects_are_sent_only_if_chosen(client, owner):
    old = new_run(owner, "old")
    mirror = new_mirror(owner)
    foreign = new_run(make_user("eve"))
    new = new_run(owner, "new")
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
        ({"kind": "tensorboard", "rollouts": 21}, "rollouts", "from 0 to 20"),
        ({"kind": "tensorboard", "rollouts": -1}, "rollouts", "from 0 to 20"),
        ({"kind": "tensorboard", "rollout_interval": 0}, "rollout_interval", "from 1 to 100,000"),
        ({"kind": "tensorboard", "rollout_interval": True}, "rollout_interval", ""),
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
    form = {"do": "rollouts", "rollouts": "5", "rollout_interval": "10"}
    changes = [(pages[0], {"kind": "tensorboard", "name": "b", "rollouts": "3"})]
    changes += [(f"{pages[0]}/{mirror.pk}", data) for data in ({"do": "pause"}, form)]
    choice = (f"/runs/{run.pk}/mirrors/{mirror.pk}", {"choice": "off"})
    for role, allowed in (("viewer", 0), ("member", 1), ("admin", 4)):
        client.force_login(make_member(project, role))
        assert [client.get(page).status_code for page in pages] == [200, 200]
        statuses = [client.post(*change).status_code for change in (choice, *changes)]
        assert statuses == [302] * allowed + [403] * (4 - allowed), role
    mirror.refresh_from_db()
    assert (mirror.is_enabled, mirror.rollouts, mirror.rollout_interval) == (False, 5, 10)
    assert Mirror.objects.get(name="b").rollouts == 3
    assert "questions and answers of the runs leave this installation" in client.get(pages[0]).content.decode()
    assert "rollout_interval" in client.get("/audit").content.decode()
    client.force_login(make_member(project, "viewer"))
    text = client.get(pages[0]).content.decode()
    assert "with 5 rollouts of each agent, questions and answers included, every 10 steps" in text


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
    found = read_rows(run, 0).rows
    assert [(row.attempt, row.step) for row in found] == [(1, 1), (1, 2), (2, 2)]
    assert json.dumps(found[2].values) == '{"A/reward/mean": 0.7, "A/ess/from B": 0.35}'


def test_slow_destination_gets_few_rows_and_then_more(mirror, owner, monkeypatch):
    monkeypatch.setattr(rows, "ROWS_AT_ONCE", 4)
    run = claimed(owner)
    store(run, *(event for step in range(1, 15) for event in step_of(step, 0.5)))
    assert [len(batch) for batch in batches(mirror, run, read_rows(run, 0).rows, 0)] == [1, 2, 4, 4, 3]


def test_number_beyond_32_bits_is_infinite_in_tensorboard_and_keeps_no_other_back(mirror, run):
    store(run, metrics(3, "A", ess=1e39, kl=-1e300), progress(3))
    MirrorFollower(mirror).send_due()
    assert event_file_scalars(mirror.files)[-2:] == [(3, "A/ess", math.inf), (3, "A/kl", -math.inf)]
    assert MirrorCursor.objects.get().problem == ""


def test_log_keeps_the_lines_of_every_process_and_is_bounded(settings, tmp_path, monkeypatch):
    loud, log = tmp_path / "loud", tmp_path / "mirror.log"
    loud.write_text("#!/bin/sh\necho began >&2\nread line\necho ended >&2\n")
    loud.chmod(0o755)
    settings.MIRRORS_PYTHON = str(loud)
    for _ in range(2):
        with pytest.raises(process.MirrorFailed):
            process.MirrorProcess(tmp_path).ask(op="open")
    assert log.read_text() == "began\nended\nbegan\nended\n"
    monkeypatch.setattr(process, "LOG_BYTES", 20)
    last = process.MirrorProcess(tmp_path)
    assert wait_until(lambda: log.read_text() == "began\n", 60)
    assert (tmp_path / "mirror.log.1").read_text() == "began\nended\nbegan\nended\n"
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


# ---- rollouts


def completions(mirror: Mirror, run: Run) -> list[list[str]]:
    """Of each row that has some."""
    found = [row for batch in batches(mirror, run, read_rows(run, 0).rows, 0) for row in batch]
    return [[one["completion"] for one in row.rollouts] for row in found if row.rollouts]


def test_no_rollout_is_sent_unless_the_mirror_says_so_and_a_change_holds_for_later_rows(owner, mirror):
    run = claimed(owner)
    store(run, *step_with_rollouts(1))
    MirrorFollower(mirror).send_due()
    change_mirror(owner, mirror, {"rollouts": 1})
    store(run, *step_with_rollouts(2))
    MirrorFollower(Mirror.objects.get()).send_due()
    ((step, table),) = event_file_tables(mirror.files)
    head = ["step", "agent", "prompt", "completion", "answer", "reward", "finish_reason", "num_tokens"]
    cells = [["2", agent, "2 + 2?", f"{agent} 2.0", "4", "1.0", "stop", "3"] for agent in "AB"]
    # Each cell is a block of code, which no Markdown in it can end.
    assert (step, table) == (2, [head, *([f"    {cell}" for cell in row] for row in cells)])


def test_rollouts_are_spread_evenly_and_always_the_same():
    assert evenly_chosen([10, 11, 12, 13, 14, 15, 16, 17, 18, 19], 3) == [10, 13, 16]
    assert evenly_chosen([5, 6, 7], 3) == evenly_chosen([5, 6, 7], 20) == [5, 6, 7]
    assert evenly_chosen([], 3) == []


def test_hostile_texts_are_cut_and_written_out():
    assert safe_text("a\x00b\x1b[31mred\x1b[0m\r\nc\rd\te") == "a␀b␛[31mred␛[0m\nc␍d\te"
    assert safe_text("half \ud800 pair") == "half ? pair"
    assert safe_text("\u202eevil") == "⟨U+202E⟩evil"
    assert safe_text("x" * 2000) == "x" * 2000
    assert safe_text("x" * 2001) == "x" * 2000 + CUT
    assert safe_text("\r\n" * 1001) == "\n" * 1000 + CUT  # the first 2,000 characters become 1,000
    assert len(safe_text("\u202e" * 2000)) == 2000 + len(CUT)


def test_rollouts_go_with_the_steps_of_the_interval_and_the_rows_of_their_attempt(owner):
    mirror, run = new_mirror(owner, rollouts=1, rollout_interval=2), claimed(owner)
    store(run, *(event for step in range(1, 5) for event in step_with_rollouts(step)))
    store(run, *step_with_rollouts(6)[:6])  # it ends within step 6
    store(run, *step_with_rollouts(6, completion="again"), attempt=2)
    assert completions(mirror, run) == [["A 2.0", "B 2.0"], ["A 4.0", "B 4.0"], ["again", "again"]]


def test_step_that_is_sent_in_parts_has_its_rollouts_in_one_of_them(owner, monkeypatch):
    monkeypatch.setattr(rows, "EVENTS_AT_ONCE", 2)
    mirror, run = new_mirror(owner, rollouts=20), claimed(owner)
    many = [metrics(1, "A", **{f"m{number}": 0.5}) for number in range(5)]
    store(run, *step_with_rollouts(1)[:8], *many, progress(1))
    sender = MirrorFollower(mirror)
    assert sender.send_due()
    while sender.send_due():
        pass
    (table,) = event_file_tables(mirror.files)
    assert len(table[1]) == 1 + 8


def test_row_has_few_bytes_of_texts_and_none_that_is_no_longer_kept(owner, monkeypatch):
    mirror, run = new_mirror(owner, rollouts=4), claimed(owner)
    store(run, *(event for step in (1, 2, 3) for event in step_with_rollouts(step, prompt="ä" * 3000)))
    # A prompt has 2,000 characters of two bytes and the mark, a rollout some 4,200 bytes with its numbers.
    monkeypatch.setattr(rows, "ROLLOUT_BYTES", 3 * 4300)
    run.rollouts.filter(step=1).update(prompt="", completion="")
    run.rollouts.filter(step=2, agent="A", sample=0).update(prompt="", completion="")
    # Of each agent the first before the second.
    assert completions(mirror, run) == [["A 2.1", "B 2.0", "B 2.1"], ["A 3.0", "A 3.1", "B 3.0"]]
    assert [len(batch) for batch in batches(mirror, run, read_rows(run, 0).rows, 0)] == [1, 1, 1]
