"""A benchmark that a run is evaluated on, and that is deleted: said in one sentence wherever the run is repeated."""

from __future__ import annotations

import json
import re

import pytest

from hacrl_web.insight.checkpoints import checkpoints
from hacrl_web.insight.checkpoints.reuse import launch_extension
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.again import cannot_repeat, retry
from hacrl_web.runs.launch.launch import launch, launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, State
from tests.support.web.factories import launch_request, make_benchmark
from tests.support.web.insight_help import add_checkpoint

pytestmark = pytest.mark.django_db
FIELD = "evaluation.benchmarks"


@pytest.fixture
def words(user):
    row = make_benchmark(user)
    Benchmark.objects.filter(pk=row.pk).update(name="words", train_path="/data/words.jsonl")
    row.refresh_from_db()
    return row


@pytest.fixture
def request_with(user, words):
    return launch_request(user) | {"evaluation": {"benchmarks": [words.pk]}}


def failed(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(state=State.FAILED)
    run.refresh_from_db()
    return run


def test_request_of_a_run_names_the_deleted_benchmark_and_is_refused(web, user, words, request_with):
    run = launch(user, request_with)
    path = f"/api/v1/runs/{run.pk}/request"
    assert web.get(path).json()["evaluation"]["benchmarks"] == [words.pk]
    words.delete()
    request = web.get(path).json()
    assert request["evaluation"]["benchmarks"] == [{"benchmark": None, "name": "words"}]
    answer = web.post("/api/v1/runs", json.dumps(request), content_type="application/json")
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], error["field"]) == ("benchmark_deleted", FIELD)
    assert error["message"] == (
        "The evaluation benchmark “words” was deleted: choose another benchmark, or remove the entry."
    )
    request["evaluation"]["benchmarks"] = []
    assert web.post("/api/v1/runs", json.dumps(request), content_type="application/json").status_code == 201


def test_form_of_a_clone_names_it_and_ticks_no_other_of_that_name(web, user, words, request_with):
    run = launch(user, request_with)
    Benchmark.objects.filter(pk=words.pk).update(name="renamed")
    page = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="evaluation.benchmarks" value="{words.pk}" checked' in page
    assert "is not among these benchmarks" not in page
    words.delete()
    other = make_benchmark(user)
    Benchmark.objects.filter(pk=other.pk).update(name="words")
    page = web.get(f"/runs/new?clone={run.pk}").content.decode()
    assert f'name="evaluation.benchmarks" value="{other.pk}" checked' not in page
    told = "The evaluation benchmark “words” is not among these benchmarks"
    assert told in page
    other.delete()
    assert told in web.get(f"/runs/new?clone={run.pk}").content.decode(), "also where one benchmark is left"


def test_form_of_a_draft_sweep_names_it(web, user, words, request_with):
    request = request_with | {"algorithms": ["hacpo"], "seeds": [1, 2], "draft": True}
    del request["algorithm"], request["seed"]
    sweep = launch_sweep(user, request)
    path = f"/runs/new?sweep={sweep.pk}"
    assert f'name="evaluation.benchmarks" value="{words.pk}" checked' in web.get(path).content.decode()
    pk = words.pk
    words.delete()
    assert f"The evaluation benchmark “{pk}” is not among these benchmarks" in web.get(path).content.decode()


def test_nothing_is_repeated_on_a_deleted_benchmark(user, words, request_with):
    draft, run = launch(user, request_with | {"draft": True}), failed(launch(user, request_with))
    assert cannot_repeat(run) == []
    words.delete()
    with pytest.raises(LaunchError) as refused:
        queue_draft(user, draft)
    assert [(one.code, one.field) for one in refused.value.errors] == [("benchmark_deleted", FIELD)]
    told = "The evaluation benchmark “words” of complete was deleted: clone the run and choose another."
    add_checkpoint(run, 3)
    manifest = checkpoints.find_checkpoint(run, 3)
    for again in (lambda: retry(user, run), lambda: launch_extension(user, run, manifest, 5)):
        with pytest.raises(LaunchError) as refused:
            again()
        assert [one.message for one in refused.value.errors] == [told]
    assert not Run.objects.filter(state=State.QUEUED).exists()


def test_chosen_benchmark_is_not_among_the_further_ones(web, words, request_with):
    page = web.get(f"/runs/new?group={request_with['group']}&benchmark={words.pk}").content.decode()
    boxes = re.findall(r'<div class="choice"( hidden)?>\s*<input[^>]*evaluation-benchmarks-(\d+)"', page)
    assert len(boxes) == 2
    assert [pk for hidden, pk in boxes if hidden] == [str(words.pk)]
