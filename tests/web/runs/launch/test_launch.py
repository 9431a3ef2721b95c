"""From request to queued run: what is filled in, what is refused and where, and that a refusal writes nothing."""

import json
from pathlib import Path

import pytest

from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.cost import estimate
from hacrl_web.runs.launch.launch import launch, queue_draft
from hacrl_web.runs.launch.plan import LaunchError, plan_of
from hacrl_web.runs.models import Host, Run, StatusChange
from tests.support.web.factories import launch_request, make_group, make_user
from workers.algorithms.registry import algorithms
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db


def refusal(user, request) -> dict[str, str]:
    """{field: code} of a refused request, after checking that nothing was written."""
    with pytest.raises(LaunchError) as caught:
        launch(user, request)
    assert not Run.objects.exists()
    assert not StatusChange.objects.exists()
    assert all(error.message for error in caught.value.errors)
    return {error.field: error.code for error in caught.value.errors}


def messages(user, request) -> dict[str, str]:
    with pytest.raises(LaunchError) as caught:
        launch(user, request)
    return {error.field: error.message for error in caught.value.errors}


def test_launched_run_is_queued_with_its_whole_spec(user):
    request = launch_request(user, seed=7)
    run = launch(user, request)
    assert (run.state, run.algorithm, run.seed, run.total_steps) == ("queued", "hacpo", 7, 5)
    spec = RunSpec.model_validate(run.spec)
    assert [agent.name for agent in spec.agents] == ["A", "B"]
    assert spec.agents[0].model == run.group.agents.first().model.location
    assert spec.data.benchmark == run.benchmark.name
    assert spec.training.learning_rate == 1e-6  # a default, written out
    assert [c.to_state for c in run.status_changes.all()] == ["queued"]


def planned(user, request) -> RunSpec:
    return plan_of(user, request, Run).specs[0]


def test_every_algorithm_can_be_chosen_and_empty_epsilons_are_its_own(user):
    for name, cls in algorithms().items():
        spec = planned(user, launch_request(user, algorithm={"name": name, "epsilon": "", "epsilon_high": ""}))
        assert spec.algorithm.epsilon is None
        assert (spec.rule.epsilon, spec.rule.epsilon_high) == cls.own_epsilons
        assert cls.own_epsilons == (3e-4, 4e-4) or not cls.can_share


@pytest.mark.parametrize(
    ("algorithm", "num_generations", "field"),
    [("grpo", 1, "rollout.num_generations"), ("gspox2", 1, None), ("hacpo", 1, None), ("grpo", 2, None)],
)
def test_run_that_cannot_teach_is_said_by_the_estimate_and_not_queued(user, algorithm, num_generations, field):
    """Two agents: alone a group of one has no advantage, shared it has two rollouts."""
    request = launch_request(user, algorithm=algorithm, rollout={"num_generations": num_generations})
    told = [line for line in estimate(user, request, Run).void_settings if "nothing is learned" in line]
    if field is None:
        assert told == []
        assert launch(user, request).state == "queued"
        return
    assert [line.partition(":")[0] for line in told] == [field]
    assert refusal(user, request) == {field: "teaches_nothing"}
    draft = launch(user, request | {"draft": True})  # a draft trains nothing yet
    with pytest.raises(LaunchError) as caught:
        queue_draft(user, draft)
    assert [error.code for error in caught.value.errors] == ["teaches_nothing"]


def test_large_delta_is_refused_until_it_is_confirmed(user):
    request = launch_request(user, algorithm={"name": "hacpo", "delta": 0.8})
    found = messages(user, request)
    assert found == {
        "algorithm.delta": "A delta of 0.8 means a lower bound of 0.2. The paper's Table 5 prints lower bounds under "
        '"delta": its 0.8 is a delta of 0.2 here.'
    }
    assert refusal(user, request) == {"algorithm.delta": "delta_above_half"}
    run = launch(user, {**request, "confirm": ["delta_above_half"]})
    assert run.spec["algorithm"]["delta"] == 0.8
    assert "confirm" not in json.dumps(run.spec)


def test_objects_of_another_user_are_not_found(user):
    assert refusal(make_user(), launch_request(user)) == {"group": "not_found", "benchmark": "not_found"}


def test_group_without_agents_is_refused(user):
    request = launch_request(user, group=make_group(user, agents=()).pk)
    assert refusal(user, request) == {"group": "empty_group"}


class TestApi:
    @pytest.fixture
    def api_client(self, client, user):
        client.force_login(user)
        return client

    def post(self, api_client, path, body):
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return api_client.post(f"/api/v1{path}", text, content_type="application/json")

    def test_post_launches_and_get_shows_it(self, api_client, user):
        answer = self.post(api_client, "/runs", launch_request(user))
        assert answer.status_code == 201
        run_id = answer.json()["id"]
        shown = api_client.get(f"/api/v1/runs/{run_id}").json()
        assert (shown["state"], shown["spec"]["seed"]) == ("queued", 1)
        assert [run["id"] for run in api_client.get("/api/v1/runs?state=queued").json()["items"]] == [run_id]
        assert api_client.get("/api/v1/runs?state=failed").json() == {"items": [], "count": 0, "next": None}


def test_model_folder_that_changed_since_it_was_registered_is_refused(user):
    request = launch_request(user)
    model = LanguageModel.objects.filter(agents__group=request["group"]).first()
    (Path(model.location) / "model.safetensors").write_bytes(b"other weights")
    assert refusal(user, request) == {"group": "model_changed"}


def test_lengths_beyond_a_known_context_are_refused_where_they_are_set(user):
    request = launch_request(user, rollout={"max_prompt_length": 100, "max_completion_length": 29})
    models = LanguageModel.objects.filter(agents__group=request["group"])
    models.filter(agents__name="B").update(context_length=128)  # A's is not known
    both = ("rollout.max_completion_length", "rollout.max_prompt_length")
    assert refusal(user, request) == dict.fromkeys(both, "context_too_short")
    text = messages(user, request)["rollout.max_completion_length"]
    together = "Longest prompt and Longest completion together are 129 tokens"
    limit = "agent B reads and writes at most 128"
    assert text == f"{together}, and {limit}: lower them, for instance to Longest completion 28."  # 128 - 100
    # One error of each setting, however many agents it is too long for.
    models.filter(agents__name="A").update(context_length=64)
    with pytest.raises(LaunchError) as refused:
        launch(user, request)
    [error, _] = refused.value.errors
    # Half of A's 64 tokens each: the prompt alone, of 100, would not fit.
    assert error.fixes[0].request == {"rollout": {"max_prompt_length": 32, "max_completion_length": 32}}
    models.filter(agents__name="A").update(context_length=None)
    request["rollout"]["max_completion_length"] = 28
    assert launch(user, request).state == "queued"


def test_batch_larger_than_the_benchmark_is_refused(user):
    request = launch_request(user, training={"steps": 5, "train_batch_size": 20_000, "mini_batch_size": 20_000})
    assert refusal(user, request) == {"training.train_batch_size": "too_few_questions"}  # it has 10,000


def test_an_engine_that_no_host_has_is_refused_at_its_field(user):
    request = launch_request(user, rollout={"engine": "vllm"})
    Host.objects.create(name="silent")  # has not told what is installed there
    Host.objects.create(name="plain", versions={"torch": "2.13.0"})
    assert refusal(user, request) == {"rollout.engine": "engine_missing"}
    assert "install" in messages(user, request)["rollout.engine"]
    Host.objects.create(name="gpu", versions={"torch": "2.13.0", "vllm": "0.32.0"})
    assert launch(user, request).spec["rollout"]["engine"] == "vllm"


def test_an_engine_is_not_refused_before_any_host_has_told_what_it_has(user):
    assert launch(user, launch_request(user, rollout={"engine": "vllm"})).state == "queued"


def test_ray_is_refused_where_no_host_has_it(user):
    request = launch_request(user, compute={"placement": "ray"})
    plan_of(user, request, Run)  # no host has told what it has: only the trainer can say
    Host.objects.create(name="plain", versions={"torch": "2.13.0"})
    assert refusal(user, request) == {"compute.placement": "ray_missing"}
    assert "No host that trains has Ray installed: run " in messages(user, request)["compute.placement"]
    plan_of(user, launch_request(user), Run)  # whoever does not ask for it does not need it
    Host.objects.create(name="cluster", versions={"torch": "2.13.0", "ray": "2.60.0"})
    assert planned(user, request).compute.placement == "ray"
