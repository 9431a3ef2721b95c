"""Evaluations by lm-evaluation-harness: a run of no step calls it; its scores are shown beside ours, unranked."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hacrl_web.leaderboard.board.boards import sweep_board
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.runs.launch.again import retry
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.tasks import supervise
from hacrl_web.web.errors import FieldErrors
from tests.support.fake_harness import put_harness
from tests.support.marks import in_full
from tests.support.web.factories import make_group, make_model, make_user
from tests.support.web.insight_help import add_checkpoint, claimed, evaluation, store, stored
from tests.support.web.leaderboard_help import by_name, finished_sweep
from workers.contract.events import HarnessResult, HarnessScore
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db
PATH = "/evaluate/harness"


@pytest.fixture
def installed(settings, tmp_path) -> Path:
    """The stand-in of the harness."""
    settings.LM_EVAL_PYTHON = str(put_harness(tmp_path))
    return tmp_path


def post(client: Any, **body: Any) -> Any:
    return client.post("/api/v1/harness-evaluations", json.dumps(body), content_type="application/json")


def wrong(client: Any, **body: Any) -> dict[str, str]:
    """field -> message of a refused request, of which nothing is written."""
    answer = post(client, **body)
    assert answer.status_code == 422, answer.content
    assert not Run.objects.filter(total_steps=0).exists()
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


def result(agent: str, task: str, value: float, *, filter: str = "none", **further: Any) -> HarnessResult:
    scores = [HarnessScore(metric="acc", filter=filter, value=value, stderr=0.0125, higher_is_better=True)]
    head = {"agent": agent, "harness": "lm-evaluation-harness", "version": "0.4.13", "task": task}
    return HarnessResult(**head, **{"scores": scores, **further})


def make_evaluation(owner: Any, source: Run, *results: HarnessResult, again: Sequence[HarnessResult] = ()) -> Run:
    """A finished evaluation of the checkpoint of step 3 of `source`. again: of a second attempt."""
    run = stored(owner, *results)
    if again:
        store(run, *again, attempt=2)
    spec = RunSpec.model_validate(
        run.spec
        | {
            "agents": [{"name": name, "model": "/m"} for name in ("A step 3", "B step 3")],
            "training": {"steps": 0},
            "harness": {"tasks": ["arc_easy"], "source_run": str(source.pk), "source_step": 3},
        }
    )
    Run.objects.filter(pk=run.pk).update(
        spec=spec.model_dump(mode="json"), total_steps=0, state="completed", algorithm="evaluation only", name="by them"
    )
    run.refresh_from_db()
    return run


def test_checkpoint_is_queued_for_the_harness_from_a_copy(client, owner, installed):
    trained = claimed(owner)
    add_checkpoint(trained, 3)
    answer = post(client, run=str(trained.pk), tasks=["gsm8k", "arc_easy"], num_fewshot=5, limit=10, batch_size=4)
    assert answer.status_code == 201, answer.content
    run = Run.objects.exclude(pk=trained.pk).get()
    assert (run.state, run.total_steps, run.benchmark, run.project) == ("queued", 0, None, trained.project)
    assert (run.data_folder, run.agent_names) == (data_folder_id(), ["A step 3", "B step 3"])
    harness = RunSpec.model_validate(run.spec).harness
    assert harness is not None
    assert (harness.tasks, harness.num_fewshot, harness.limit) == (("gsm8k", "arc_easy"), 5, 10)
    assert (harness.batch_size, harness.prompt_format) == (4, "agent")
    assert (harness.source_run, harness.source_step) == (str(trained.pk), 3)
    assert "harness" not in trained.spec  # settings of other runs are as they were


def test_form_queues_tasks(client, owner, installed):
    fields = {"models": [make_model(owner).pk], "tasks": "gsm8k, arc_easy\ngsm8k", "limit": "0", "num_fewshot": ""}
    answer = client.post(PATH, {**fields, "prompt_format": "plain", "seed": "4"})
    assert answer.status_code == 302, answer.content.decode()
    run = Run.objects.get()
    harness = RunSpec.model_validate(run.spec).harness
    assert harness is not None
    assert (harness.tasks, harness.num_fewshot) == (("gsm8k", "arc_easy"), None)
    assert (run.benchmark, run.seed, harness.prompt_format) == (None, 4, "plain")


def test_form_takes_the_time_limit_in_hours(client, owner, installed):
    assert 'name="time_limit_h" value="24"' in client.get(PATH).content.decode()
    fields = {"models": [make_model(owner).pk], "tasks": "gsm8k"}
    for hours in ("0", "721", "1e999", "soon", "nan"):
        answer = client.post(PATH, {**fields, "time_limit_h": hours})
        assert answer.status_code >= 400
        assert "Must be a number of hours above 0 and at most 720." in answer.content.decode()
        assert f'name="time_limit_h" value="{hours}"' in answer.content.decode()
    client.post(PATH, {**fields, "time_limit_h": "1.5"})
    client.post(PATH, {**fields, "time_limit_h": ""})
    specs = [RunSpec.model_validate(run.spec).harness for run in Run.objects.order_by("created_at")]
    assert [spec.time_limit_s for spec in specs if spec] == [5400, 86400]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"tasks": []}, "tasks", "Name a task of the harness."),
        ({"tasks": ["../etc/passwd"]}, "tasks", "characters that are not allowed"),
        ({"tasks": {"a": 1}}, "tasks", "Give a list of tasks."),
        ({"tasks": [3]}, "tasks", "Must be text."),
        ({"models": []}, "models", "Choose 1 to 8 models; you chose 0."),
        ({"num_fewshot": -1}, "num_fewshot", "Must be at least 0."),
        ({"batch_size": 0}, "batch_size", "Must be at least 1."),
        ({"limit": "x"}, "limit", "Must be a whole number."),
        ({"prompt_format": "haiku"}, "prompt_format", "agent"),
        ({"time_limit_s": 10**9}, "time_limit_s", "Must be at most"),
        ({"temperature": 1}, "temperature", "There is no setting named 'temperature'."),
        ({"benchmarks": [1]}, "benchmarks", "There is no setting named 'benchmarks'."),
    ],
)
def test_wrong_settings_are_refused_at_their_field(client, owner, installed, changes, field, message):
    body = {"models": [make_model(owner).pk], "tasks": ["gsm8k"], **changes}
    assert message in wrong(client, **body)[field]


def test_objects_of_another_user_cannot_be_evaluated(client, owner, installed):
    stranger = make_user()
    trained = claimed(stranger)
    add_checkpoint(trained, 3)
    bodies = [{"models": [make_model(stranger).pk]}, {"group": make_group(stranger).pk}, {"run": str(trained.pk)}]
    for body in bodies:
        assert post(client, **body, tasks=["gsm8k"]).status_code in (404, 422)
    assert not Run.objects.filter(total_steps=0).exists()


def test_scores_are_on_the_tab_with_harness_version_and_error(client, owner):
    trained = stored(owner, evaluation(0, "A", 0.5), evaluation(0, "B", 0.5))
    first = result("A step 3", "arc_easy", 0.4375, num_fewshot=0, num_questions=16, task_version="1.0")
    run = make_evaluation(owner, trained, first, result("B step 3", "arc_easy", 0.25))
    for page in (run, trained):
        text = client.get(f"/runs/{page.pk}/evaluations").content.decode()
        assert "these numbers are not ranked, averaged or compared with ours" in text
        assert "lm-evaluation-harness 0.4.13; task 1.0" in text
        assert "arc_easy" in text
        rows = list(csv.DictReader(io.StringIO(client.get(f"/runs/{page.pk}/lm-eval.csv").getvalue().decode())))
        assert [(row["agent"], row["value"], row["stderr"]) for row in rows] == [
            ("A step 3", "0.4375", "0.0125"),
            ("B step 3", "0.25", "0.0125"),
        ]
        assert {(row["version"], row["source_run"], row["step"]) for row in rows} == {("0.4.13", str(trained.pk), "3")}
        lines = client.get(f"/api/v1/runs/{page.pk}/evaluations").json()["harness"]
        assert [(line["task"], line["value"]) for line in lines] == [("arc_easy", 0.4375), ("arc_easy", 0.25)]
    assert "arc_easy: acc 0.438" in client.get(f"/runs/{run.pk}/events").content.decode()


def test_repeated_model_counts_once_with_its_newest_numbers(client, owner):
    trained = claimed(owner)
    again = [result("A step 3", "arc_easy", 0.9)]
    run = make_evaluation(owner, trained, result("A step 3", "arc_easy", 0.1), again=again)
    (line,) = client.get(f"/api/v1/runs/{run.pk}/evaluations").json()["harness"]
    assert line["value"] == 0.9


def test_board_shows_the_harness_below_its_table_and_in_no_rank(client, owner):
    sweep = finished_sweep(owner, {"gspo": (0.4, 0.5), "hacpo": (0.6, 0.75)})
    before = make_table(sweep_board(sweep), BoardSelection())
    address = {"sweep": sweep.pk}
    assert "By lm-evaluation-harness" not in client.get("/leaderboard/board", address).content.decode()
    make_evaluation(owner, by_name(sweep)["gspo", 1], result("A step 3", "arc_easy", 0.99))
    text = client.get("/leaderboard/board", address).content.decode()
    measured, _, theirs = text.partition('id="harness"')
    assert ("arc_easy" in measured, "0.990" in measured) == (False, False)
    assert "arc_easy" in theirs
    assert "lm-evaluation-harness 0.4.13" in theirs
    after = make_table(sweep_board(sweep), BoardSelection())
    assert [group.row.label for group in after.groups] == [group.row.label for group in before.groups]
    assert [column.key for column in after.columns] == [column.key for column in before.columns]
    for path in ("/leaderboard/board-lm-eval.csv", "/api/v1/boards/file/lm-eval.csv"):
        (row,) = csv.DictReader(io.StringIO(client.get(path, address).getvalue().decode()))
        assert (row["task"], row["value"], row["version"]) == ("arc_easy", "0.99", "0.4.13")
        assert row["source_name"] == by_name(sweep)["gspo", 1].name
    assert f"step 3 of {by_name(sweep)['gspo', 1].name}" in theirs
    assert "arc_easy" not in client.get("/leaderboard/board.csv", address).getvalue().decode()


def test_evaluation_of_another_project_that_claims_a_run_as_its_source_is_not_shown(client, owner):
    """A bundle may name any run; staff, and members of both projects, see the two."""
    trained = stored(owner, evaluation(0, "A", 0.5))
    make_evaluation(make_user(), trained, result("A step 3", "forged_task", 0.99))
    client.force_login(make_user(is_staff=True))
    assert client.get(f"/api/v1/runs/{trained.pk}/evaluations").json()["harness"] == []
    assert "forged_task" not in client.get(f"/runs/{trained.pk}/evaluations").content.decode()


def test_evaluation_by_tasks_alone_can_be_retried(client, owner, installed):
    post(client, models=[make_model(owner).pk], tasks=["gsm8k"])
    run = Run.objects.get()
    run.request_stop()
    again = retry(owner, run)
    assert (again.state, again.spec["harness"]["tasks"], again.benchmark) == ("queued", ["gsm8k"], None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("task", "state", "reason"),
    [
        ("gsm8k", "completed", ""),
        *in_full(("fails", "failed", "ended with status 1: ValueError: Tasks not found: fails")),
    ],
)
def test_worker_carries_it_out_like_every_run(client, owner, installed, task, state, reason):
    post(client, models=[make_model(owner, "M").pk], tasks=[task])
    run = Run.objects.get()
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, reason in run.reason) == (state, True), run.reason
    lines = client.get(f"/api/v1/runs/{run.pk}/evaluations").json()["harness"]
    assert [(line["agent"], line["filter"], line["value"]) for line in lines if line["metric"] == "exact_match"] == (
        [("M", "strict", 0.25), ("M", "flexible", 0.75)] if state == "completed" else []
    )
    assert "own output" in client.get(f"/api/v1/runs/{run.pk}/output").content.decode()


def test_evaluation_that_also_asked_benchmarks_is_shown_and_not_retried(client, owner):
    run = make_evaluation(owner, claimed(owner), result("A step 3", "arc_easy", 0.9))
    run.spec["harness"]["has_benchmarks"] = True
    run.save(update_fields=["spec"])
    assert "arc_easy" in client.get(f"/runs/{run.pk}/evaluations").content.decode()
    assert client.get(f"/runs/{run.pk}/config").status_code == 200
    with pytest.raises(FieldErrors, match="name tasks of the harness alone"):
        retry(owner, run)
