"""Rollouts of mirrors: none unless the admins want them; then some of each agent, bounded, once, and safe to show."""

from __future__ import annotations

from typing import Any

import pytest

from hacrl_web.mirrors import event_rows, process, rollout_rows
from hacrl_web.mirrors.event_rows import read_rows
from hacrl_web.mirrors.mirrors import change_mirror, create_mirror
from hacrl_web.mirrors.models import Mirror, MirrorCursor
from hacrl_web.mirrors.rollout_rows import CUT, RowBatches, evenly_chosen, safe_text
from hacrl_web.mirrors.sending import MirrorSender
from hacrl_web.runs.models import Run
from tests.support.web.event_files import event_file_scalars, event_file_tables
from tests.support.web.factories import make_member, metrics
from tests.support.web.insight_help import claimed, store
from tests.web.mirrors.test_mirrors import progress, step_of
from workers.contract.events import Rollout

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def new_mirror(owner: Any, **fields: Any) -> Mirror:
    return create_mirror(owner, owner.memberships.get().project, {"kind": "tensorboard", **fields})


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


def completions(mirror: Mirror, run: Run, after: int = 0) -> list[list[str]]:
    """Of each row that has some."""
    batches, found = RowBatches(mirror, run, read_rows(run, after).rows, after), []
    while batch := batches.take(256):
        found += [[one["completion"] for one in row.rollouts] for row in batch if row.rollouts]
    return found


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


def test_no_rollout_is_sent_unless_the_mirror_says_so(owner):
    mirror, run = new_mirror(owner), claimed(owner)
    store(run, *step_with_rollouts(1))
    assert MirrorSender(mirror.pk).serve() == 1
    assert event_file_tables(mirror.folder) == []
    assert completions(mirror, run) == []


def test_table_of_each_step_arrives_once_after_a_crash_with_its_columns(owner, monkeypatch):
    def die(cursor: MirrorCursor, **values: Any) -> None:
        if "sent_at" in values:
            raise KeyboardInterrupt
        move(cursor, **values)

    mirror, run = new_mirror(owner, rollouts=2), claimed(owner)
    store(run, *step_with_rollouts(1), *step_with_rollouts(2, reward=None, completion="# big\n![x](http://x.example)"))
    move = MirrorCursor.move
    with monkeypatch.context() as patch:
        patch.setattr(MirrorCursor, "move", die)
        with pytest.raises(KeyboardInterrupt):
            MirrorSender(mirror.pk).serve()
    process.kill_all()
    assert len(event_file_tables(mirror.folder)) == 2  # it had arrived
    assert MirrorSender(mirror.pk).serve() == 2
    (one, first), (two, second) = event_file_tables(mirror.folder)
    assert (one, two) == (1, 2)
    head = ["step", "agent", "prompt", "completion", "answer", "reward", "finish_reason", "num_tokens"]
    # Each cell is a block of code, which no Markdown in it can end.
    cells = [["1", agent, "2 + 2?", f"{agent} 1.{n}", "4", "1.0", "stop", "3"] for agent in "AB" for n in (0, 2)]
    assert first == [head, *([f"    {cell}" for cell in row] for row in cells)]
    assert [row[3] for row in second[1:]] == ["    # big\n    ![x](http://x.example)"] * 4
    assert [row[5] for row in second[1:]] == ["    "] * 4  # it could not be scored
    assert len(event_file_scalars(mirror.folder)) == 4


def test_rollouts_go_with_the_steps_of_the_interval(owner):
    mirror, run = new_mirror(owner, rollouts=1, rollout_interval=2), claimed(owner)
    store(run, *(event for step in range(1, 6) for event in step_with_rollouts(step)))
    assert completions(mirror, run) == [["A 2.0", "B 2.0"], ["A 4.0", "B 4.0"]]


def test_repeated_step_has_the_rollouts_of_its_attempt(owner):
    mirror, run = new_mirror(owner, rollouts=1), claimed(owner)
    store(run, *step_with_rollouts(1), *step_with_rollouts(2)[:6])  # it ends within step 2
    store(run, *step_with_rollouts(2, completion="again"), attempt=2)
    assert completions(mirror, run) == [["A 1.0", "B 1.0"], ["again", "again"]]


def test_step_that_is_sent_in_parts_has_its_rollouts_in_one_of_them(owner, monkeypatch):
    monkeypatch.setattr(event_rows, "EVENTS_AT_ONCE", 2)
    mirror, run = new_mirror(owner, rollouts=20), claimed(owner)
    many = [metrics(1, "A", **{f"m{number}": 0.5}) for number in range(5)]
    store(run, *step_with_rollouts(1)[:8], *many, progress(1))
    assert MirrorSender(mirror.pk).serve() > 1
    (table,) = event_file_tables(mirror.folder)
    assert len(table[1]) == 1 + 8


def test_row_has_few_bytes_of_texts_and_a_batch_not_much_more(owner, monkeypatch):
    mirror, run = new_mirror(owner, rollouts=4), claimed(owner)
    store(run, *(event for step in (1, 2, 3) for event in step_with_rollouts(step, prompt="ä" * 3000)))
    # A prompt has 2,000 characters of two bytes and the mark, a rollout some 4,200 bytes with its numbers.
    monkeypatch.setattr(rollout_rows, "ROW_BYTES", 3 * 4300)
    assert completions(mirror, run)[0] == ["A 1.0", "A 1.1", "B 1.0"]  # of each agent the first before the second
    monkeypatch.setattr(rollout_rows, "BATCH_BYTES", 20_000)
    batches = RowBatches(mirror, run, read_rows(run, 0).rows, 0)
    assert [len(batches.take(256)) for _ in range(3)] == [2, 1, 0]


def test_rollouts_whose_texts_are_no_longer_kept_are_left_out(owner):
    mirror, run = new_mirror(owner, rollouts=2), claimed(owner)
    store(run, *step_with_rollouts(1), *step_with_rollouts(2))
    run.rollouts.filter(step=1).update(prompt="", completion="")
    run.rollouts.filter(step=2, agent="A", sample=0).update(prompt="", completion="")
    assert completions(mirror, run) == [["A 2.2", "B 2.0", "B 2.2"]]


def test_change_holds_for_later_rows_and_ends_what_is_under_way(owner):
    mirror, run = new_mirror(owner, rollouts=1), claimed(owner)
    store(run, *step_with_rollouts(1))
    sender = MirrorSender(mirror.pk)
    assert sender.serve() == 1
    sender.interrupt(Mirror.objects.get().sent_settings)
    assert not sender._is_interrupted
    change_mirror(owner, mirror, {"rollouts": 0})
    sender.interrupt(Mirror.objects.get().sent_settings)
    assert sender._is_interrupted
    store(run, *step_with_rollouts(2))
    assert sender.serve() == 1
    assert [step for step, _ in event_file_tables(mirror.folder)] == [1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("rollouts", 21), ("rollouts", -1), ("rollout_interval", 0), ("rollout_interval", 100_001)],
)
def test_setting_has_bounds(client, owner, field, value):
    mirror = new_mirror(owner, name="first")
    path = f"/api/v1/projects/{mirror.project_id}/mirrors"
    body = {"kind": "tensorboard", "name": "second", field: value}
    for answer in (
        client.post(path, body, content_type="application/json"),
        client.put(f"{path}/{mirror.pk}", {field: value}, content_type="application/json"),
    ):
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert client.post(path, body | {field: True}, content_type="application/json").status_code == 422
    assert [(row.rollouts, row.rollout_interval) for row in Mirror.objects.all()] == [(0, 1)]


def test_admins_alone_let_texts_leave_and_everybody_sees_it(client, owner):
    mirror = new_mirror(owner)
    page, path = f"/projects/{mirror.project_id}/mirrors", f"/api/v1/projects/{mirror.project_id}/mirrors/{mirror.pk}"
    form = {"do": "rollouts", "rollouts": "5", "rollout_interval": "10"}
    for role, status in (("viewer", 403), ("member", 403), ("admin", 302)):
        client.force_login(make_member(mirror.project, role))
        assert client.put(path, {"rollouts": 5}, content_type="application/json").status_code in (200, status)
        assert client.post(f"{page}/{mirror.pk}", form).status_code == status
        mirror.refresh_from_db()
        assert (mirror.rollouts, mirror.rollout_interval) == ((5, 10) if role == "admin" else (0, 1))
    client.force_login(make_member(mirror.project, "viewer"))
    text = client.get(page).content.decode()
    assert "with 5 rollouts of each agent, questions and answers included, every 10 steps" in text
    client.force_login(owner)
    assert "questions and answers of the runs leave this installation" in client.get(page).content.decode()
    assert client.post(page, {"kind": "tensorboard", "name": "b", "rollouts": "3"}).status_code == 302
    assert Mirror.objects.get(name="b").rollouts == 3
    assert client.post(page, {"kind": "tensorboard", "name": "c", "rollouts": "21"}).status_code == 422
    assert "rollout_interval" in client.get("/audit").content.decode()
