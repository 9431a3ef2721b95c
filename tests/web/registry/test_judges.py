"""Judges are registered with keys that nobody sees, tried out, named by runs, and marked on boards."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.registry.models import Benchmark, Judge
from hacrl_web.registry.rewards.service import judge_keys, register_source, reward_of
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from tests.support.judge_server import judge_server
from tests.support.web import factories
from tests.support.web.leaderboard_help import finish, sweep_of, table_of
from tests.support.web.page_text import text_of
from workers.contract.spec.data import DataSpec
from workers.contract.spec.judge import JudgeFile
from workers.contract.trainer_process import KEYS_PIPE_VARIABLE, keys_pipe, read_keys

KEY = "sk-very-secret-key"
pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings, tmp_path, monkeypatch):
    settings.JUDGES_DIR = tmp_path / "judges"
    with judge_server(lambda message: f"Score: {10 if '42' in message.rpartition('|')[2] else 0}") as one:
        settings.JUDGE_ALLOW = [one.allowed]
        monkeypatch.setenv("HACRL_JUDGE_ALLOW", one.allowed)
        yield one


@pytest.fixture
def fields(server):
    return {"address": server.address, "model": "grader", "rubric": "{question}|{response}", "price_input": 1.0}


@pytest.fixture
def judge(user, fields) -> Judge:
    return register_source(user, Judge, name="helpful", content=fields, key=KEY)


def test_page_registers_shows_and_tries_a_judge_without_its_key(web, user, server, fields):
    page = web.post(reverse("registry:judge_create"), {"name": "helpful", "key": KEY, **fields})
    row = Judge.objects.get()
    assert (page.status_code, page["Location"]) == (302, row.get_absolute_url())
    assert JudgeFile.read(row.path).settings.model == "grader"
    html = text_of(web.get(row.get_absolute_url()))
    assert row.version in html
    answer = {"question": "6*7=", "gold": "42", "response": "it is 42"}
    html += (tried := text_of(web.post(reverse("registry:judge_try", args=[row.pk]), answer)))
    assert "score 10" in tried
    assert "0.001" in tried  # 1000 tokens at 1 a million
    [(headers, _, _)] = server.requests
    assert headers["Authorization"] == f"Bearer {KEY}"
    html += text_of(web.get(reverse("registry:judge_list"))) + web.get("/api/v1/judges").content.decode()
    stored = json.dumps([row.ciphertext, row.settings, row.path.read_text()], default=str)
    assert KEY not in html + stored + json.dumps([*AuditEntry.objects.values()], default=str)
    assert judge_keys(row.project, [str(row.path)]) == {"helpful": KEY}


def test_questions_show_what_a_correct_answer_and_none_get(web, user, judge):
    benchmark = factories.make_benchmark(user)
    benchmark.sample = [{"question": "6*7=", "answer": "42"}]
    benchmark.save()
    html = text_of(web.post(reverse("registry:judge_try", args=[judge.pk]), {"benchmark": benchmark.pk}))
    assert "6*7=" in html
    path = f"/api/v1/judges/{judge.pk}/questions"
    [row] = web.post(path, {"benchmark": benchmark.pk}, content_type="application/json").json()
    assert (row["correct"]["reward"], row["none"]["reward"]) == (1.0, 0.0)


def test_api_changes_and_deletes_and_another_address_loses_the_key(web, user, judge, fields, server):
    path = f"/api/v1/judges/{judge.pk}"
    same = web.put(path, {"settings": fields | {"lowest": -10}}, content_type="application/json").json()
    assert (same["has_key"], same["version"] == judge.version) == (True, False)
    moved = fields | {"address": f"{server.address}/other"}
    assert not web.put(path, {"settings": moved}, content_type="application/json").json()["has_key"]
    assert len(Judge.objects.get().versions.all()) == 3
    assert web.delete(path).status_code == 204
    assert not Judge.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"address": "http://169.254.169.254/v1"}, "address", "not on this installation's list"),
        ({"address": "http://user:pass@127.0.0.1/v1"}, "address", "user name or password"),
        ({"address": "file:///etc/passwd"}, "address", "https://host/path"),
        ({"address": ""}, "kind", "Give the address"),
        ({"kind": "reward_model", "address": "", "model": "/etc"}, "model", "not inside the model folders"),
        ({"kind": "model", "address": "", "model": "gpt2"}, "model", "Give an absolute path"),
        ({"rubric": "Grade."}, "kind", "does not contain {response}"),
        ({"time_limit_s": "soon"}, "time_limit_s", "Must be a number"),
        ({"max_tokens": 10**9}, "max_tokens", "Must be at most"),
        ({"color": "red"}, "color", "no setting of this name"),
        ({"model": "a\x00b"}, "model", "NUL"),
    ],
)
def test_hostile_and_odd_settings_are_refused_at_their_field(user, fields, changes, field, reason):
    with pytest.raises(FieldErrors) as refused:
        register_source(user, Judge, name="helpful", content=fields | changes)
    [error] = refused.value.errors
    assert (error.field, reason in error.message) == (field, True), error
    assert not Judge.objects.exists()


@pytest.mark.parametrize("key", ["two words", "x" * 401, "schlüssel", 7])
def test_implausible_keys_are_refused_without_repeating_them(user, fields, key):
    with pytest.raises(FieldErrors) as refused:
        register_source(user, Judge, name="helpful", content=fields, key=key)
    assert [error.field for error in refused.value.errors] == ["key"]
    assert str(key) not in str(refused.value.errors[0].message)


def test_key_of_another_secret_key_is_named_and_nothing_is_sent(judge, settings, server):
    settings.SECRET_KEY = "another"
    with pytest.raises(FieldErrors, match=r"The key of the judge helpful cannot be read"):
        reward_of(judge, question="q", gold="a", response="r")
    assert server.requests == []


def test_run_names_a_judge_and_its_settings_hold_the_file(web, user, judge):
    request = factories.launch_request(user)
    request["rewards"] = {"terms": "judge helpful = 0.5"}
    answer = web.post("/api/v1/runs", request, content_type="application/json")
    assert answer.status_code == 201, answer.json()
    run = Run.objects.get()
    [term] = run.spec["rewards"]["terms"]
    assert (term["name"], term["judge"], term["weight"]) == ("helpful", str(judge.path), 0.5)
    again = web.get(f"/api/v1/runs/{run.pk}/request").json()
    assert again["rewards"]["terms"][0]["judge"] == "helpful"


def test_keys_go_only_to_files_of_judges_of_the_project(user, judge, tmp_path):
    other = factories.make_run(factories.make_user("eve")).project
    path = judge.path
    assert judge_keys(other, [str(path)]) == {}
    assert judge_keys(judge.project, [str(path.with_name("else.json")), "/etc/passwd", "x"]) == {}


def test_benchmark_of_a_judge_is_a_file_of_its_settings(web, user, judge):
    file = SimpleUploadedFile("q.jsonl", b'{"question": "6*7=", "answer": "42"}\n{"question": "1=", "answer": "1"}\n')
    fields = {"name": "sums", "verifier": "judge", "judge": "helpful", "held_out_fraction": "0.5"}
    answer = web.post("/api/v1/benchmarks", {**fields, "file": file})
    assert answer.status_code == 201, answer.json()
    benchmark = Benchmark.objects.get(name="sums")
    assert DataSpec.model_validate(data_values(benchmark)).judge == str(judge.path)
    assert "not verified" in text_of(web.get(benchmark.get_absolute_url()))
    assert web.delete(f"/api/v1/judges/{judge.pk}").status_code == 409


def test_pipe_of_keys_is_read_once(monkeypatch):
    descriptor = keys_pipe({"helpful": KEY})
    monkeypatch.setenv(KEYS_PIPE_VARIABLE, str(descriptor))
    assert read_keys() == {"helpful": KEY}
    assert KEYS_PIPE_VARIABLE not in os.environ
    assert read_keys() == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(ValueError, match="more than 32,768 bytes"):
        keys_pipe({"helpful": "x" * 40_000})


def test_board_marks_judged_scores_and_keeps_them_apart(web, user):
    sweep = sweep_of(user, ["gspo", "hacpo"], [1])
    for run in sweep.runs.all():
        label = "judge/helpful@0123456789ab" if run.algorithm == "hacpo" else "math/4"
        finish(run, {"A": 0.9 if run.algorithm == "hacpo" else 0.2, "B": 0.2}, verifier=label)
    table = table_of(sweep)
    assert [group.row.algorithm for group in table.groups] == ["gspo", "hacpo"]  # although its number is higher
    judged = table.groups[1].row
    assert judged.distinctions["judge"] == "scored by helpful@0123456789ab, not verified"
    assert table.cell(table.groups[1]).difference is None
    html = text_of(web.get(sweep.get_absolute_url()))
    assert "not verified" in html


def test_board_names_the_judge_that_training_paid_for(user):
    sweep = sweep_of(user, ["gspo"], [1])
    [run] = sweep.runs.all()
    run.spec["rewards"]["terms"] = [
        {"name": "h", "kind": "judge", "judge": str(Path("/judges/1/helpful.json")), "weight": 1}
    ]
    run.save()
    finish(run, {"A": 0.9, "B": 0.2}, verifier="math/4")
    [group] = table_of(sweep).groups
    assert group.row.judged == "trained with helpful"
