"""Benchmarks whose questions are too long for the agents are refused before the queue, by form, API and sweeps."""

import json

import pytest

from hacrl_web.registry.base.children import PROMPT_LENGTHS
from hacrl_web.registry.models import Agent, Benchmark, LanguageModel
from hacrl_web.runs.launch.launch import launch, launch_sweep
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
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


FEW = "Of the training questions of long, {} fit into {} tokens, too few for a batch of 4: "


@pytest.mark.parametrize(
    ("limit", "context", "short", "cure", "fix"),
    [
        # 100 bytes are 50 tokens for A. The fourth shortest, of 400 bytes, has 200.
        (40, None, 0, "set max_prompt_length 200", {"max_prompt_length": 200}),
        (60, 210, 1, "set max_prompt_length 200, max_completion_length 10",
         {"max_prompt_length": 200, "max_completion_length": 10}),
        (61, 128, 1, "the models read and write at most 128, so choose a benchmark", None),
    ],
)  # fmt: skip
def test_too_few_short_questions_are_refused_with_the_lengths_that_would_do(
    web, user, request_, measured, limit, context, short, cure, fix
):
    LanguageModel.objects.update(context_length=context)
    request_["rollout"]["max_prompt_length"] = limit
    sweep = {key: value for key, value in request_.items() if key not in ("seed", "algorithm")}
    for launched, request in ((launch, request_), (launch_sweep, sweep | {"algorithms": ["gspo"], "seeds": [0, 1]})):
        with pytest.raises(LaunchError) as refused:
            launched(user, request)
        [error] = refused.value.errors
        assert (error.code, error.field) == ("questions_too_long", FIELD)
        assert error.message.startswith(FEW.format(short, limit) + cure)
        assert [one.request for one in error.fixes] == ([{"rollout": fix}] if fix else [])
    assert [len(text) for text in measured[0]["questions"]] == [100, 200, 300, 400, 500, 600]
    assert len(measured) == 1  # of equal questions, agents and limits the answer is kept
    assert not Run.objects.exists()
    if fix:
        assert launch(user, request_ | {"rollout": fix}).state == "queued"


def test_what_fits_by_its_bytes_and_what_cannot_be_measured_is_queued(user, request_, measured, monkeypatch):
    request_["rollout"]["max_prompt_length"] = 600
    assert launch(user, request_).state == "queued"
    assert measured == []
    request_["rollout"]["max_prompt_length"] = 200
    assert launch(user, request_).state == "queued"
    assert len(measured) == 1

    def busy(at, request):
        raise FieldErrors.single("busy", "Try again.", at, status=503)

    monkeypatch.setattr(PROMPT_LENGTHS, "ask", busy)
    request_["rollout"]["max_prompt_length"] = 59
    assert launch(user, request_).state == "queued"
