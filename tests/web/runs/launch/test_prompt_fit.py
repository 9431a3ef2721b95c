"""Benchmarks whose questions are too long for the agents are refused before the queue, by form, API and sweeps."""

import json

import pytest

from hacrl_web.registry.children import PROMPT_LENGTHS
from hacrl_web.registry.models import Agent, Benchmark, LanguageModel
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from hacrl_web.runs.sweeps.sweeps import launch_sweep
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import launch_request

pytestmark = pytest.mark.django_db
FIELD = "rollout.max_prompt_length"


@pytest.fixture
def request_(user, tmp_path):
    """Two plain agents, six questions of 100, 200 ... 600 bytes, batches of 4, and 60 tokens for a prompt."""
    lines = [json.dumps({"question": "x" * size, "answer": "1"}) for size in range(600, 0, -100)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    request = launch_request(user, rollout={"max_prompt_length": 60, "max_completion_length": 20})
    Agent.objects.update(prompt_format="plain")
    Benchmark.objects.update(train_path=str(tmp_path / "train.jsonl"), name="long", num_train=6)
    return request


@pytest.fixture
def measured(monkeypatch):
    """Agent A needs a token for two bytes, agent B for four; the requests that the child got."""
    requests = []

    def ask(at, request):
        requests.append(request)
        assert at == FIELD
        return {"lengths": [[len(text) // 2, len(text) // 4] for text in request["questions"]]}

    monkeypatch.setattr(PROMPT_LENGTHS, "ask", ask)
    return requests


def refusal(launched, user, request):
    with pytest.raises(LaunchError) as refused:
        launched(user, request)
    assert not Run.objects.exists()
    [error] = refused.value.errors
    assert (error.code, error.field) == ("questions_too_long", FIELD)
    return error.message


def test_no_question_fits_is_refused_with_the_length_that_would(user, request_, measured):
    # 100 bytes are 50 tokens for A, which fit: with 40, none does. The fourth shortest, 400 bytes, has 200 tokens.
    request_["rollout"]["max_prompt_length"] = 40
    expected = (
        "No training question of long fits: the shortest prompt has 50 tokens for agent A, and max_prompt_length is "
        "40. For a batch of 4, raise it to 200 or more."
    )
    assert refusal(launch, user, request_) == expected
    assert [len(text) for text in measured[0]["questions"]] == [100, 200, 300, 400, 500, 600]
    sweep = {key: value for key, value in request_.items() if key not in ("seed", "algorithm")}
    assert refusal(launch_sweep, user, sweep | {"algorithms": ["hacpo", "gspo"], "seeds": [0, 1]}) == expected
    assert len(measured) == 1  # of equal questions, agents and limits the answer is kept


def test_fewer_questions_than_a_batch_are_refused_within_the_models_contexts(user, request_, measured):
    few = "Only 1 training question of long fit into max_prompt_length 60, too few for a batch of 4: "
    assert refusal(launch, user, request_) == few + "raise it to 200 or more; or lower train_batch_size."
    LanguageModel.objects.update(context_length=210)
    lower = "raise it to 200 or more, and lower max_completion_length to 10 or less; or lower train_batch_size."
    assert refusal(launch, user, request_) == few + lower
    LanguageModel.objects.update(context_length=128)
    request_["rollout"]["max_prompt_length"] = 61
    assert "the models read and write at most 128 tokens, so choose a benchmark" in refusal(launch, user, request_)


def test_lengths_that_would_do_come_along(user, request_, measured):
    LanguageModel.objects.update(context_length=210)
    with pytest.raises(LaunchError) as refused:
        launch(user, request_)
    [fix] = refused.value.errors[0].fixes
    assert fix.label == "max_prompt_length 200, max_completion_length 10"
    assert fix.request == {"rollout": {"max_prompt_length": 200, "max_completion_length": 10}}
    assert launch(user, request_ | fix.request).state == "queued"


def test_questions_that_fit_by_their_bytes_start_no_child(user, request_, measured):
    request_["rollout"]["max_prompt_length"] = 450
    assert launch(user, request_).state == "queued"
    assert measured == []


def test_enough_short_questions_and_unknown_lengths_are_queued(user, request_, measured, monkeypatch):
    request_["rollout"]["max_prompt_length"] = 200
    assert launch(user, request_).state == "queued"
    assert len(measured) == 1

    def busy(at, request):
        raise FieldErrors.single("busy", "Try again.", at, status=503)

    monkeypatch.setattr(PROMPT_LENGTHS, "ask", busy)
    request_["rollout"]["max_prompt_length"] = 59
    assert launch(user, request_).state == "queued"


def test_form_and_api_name_the_field(client, user, request_, measured):
    client.force_login(user)
    answer = client.post("/api/v1/runs", json.dumps(request_), content_type="application/json")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [FIELD]
    form = {"name": "one", "group": request_["group"], "benchmark": request_["benchmark"], "seed": "0"}
    form |= {"training.train_batch_size": "4", "training.mini_batch_size": "4", FIELD: "60"}
    page = client.post("/runs/new", form | {"rollout.max_completion_length": "20"})
    assert page.status_code == 422
    assert 'data-field="rollout.max_prompt_length"' in page.content.decode()
    assert "too few for a batch of 4" in page.content.decode()
