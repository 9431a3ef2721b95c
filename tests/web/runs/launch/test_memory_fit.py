"""A run that no known host can hold is refused with what would fit; one that some host can hold is not."""

from __future__ import annotations

from typing import Any

import pytest

from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.launch.memory_fit import memory_needed
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Drain, Host, Run
from hacrl_web.runs.worker.hosts import write_heartbeat
from tests.support.web.factories import make_benchmark, make_group, make_user
from workers.contract.spec.run import RunSpec

GIB = 2**30
SIZES = {
    "hidden_size": 2048,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 151_936,
    "intermediate_size": 6144,
}
SMALL = {"training": {"micro_batch_size": 1}, "rollout": {"rollout_batch_size": 1}}

pytestmark = pytest.mark.django_db


def host(name: str, memory: int, *gpus: int) -> None:
    devices = [{"kind": "gpu", "name": "GPU", "total_bytes": size} for size in gpus]
    write_heartbeat(devices=[*devices, {"kind": "memory", "total_bytes": memory, "used_bytes": 0}])
    Host.objects.filter(name=write_heartbeat().name).update(name=name)


def group_of(user: Any, parameters: int = 1_720_000_000) -> AgentGroup:
    group = make_group(user)
    LanguageModel.objects.filter(agents__group=group).update(num_parameters=parameters)
    for model in LanguageModel.objects.filter(agents__group=group):
        model.facts = {**model.facts, "sizes": SIZES}
        model.save()
    return group


def request_of(user: Any, group: AgentGroup, **sections: Any) -> dict[str, Any]:
    return {"name": "run", "group": group.pk, "benchmark": make_benchmark(user).pk, "algorithm": "hacpo", **sections}


def refusal(user: Any, request: dict[str, Any]) -> str:
    with pytest.raises(LaunchError) as refused:
        launch(user, request)
    (error,) = refused.value.errors
    assert (error.code, error.field) == ("does_not_fit", "compute.device")
    assert not Run.objects.exists()
    return error.message


def test_run_that_fits_no_host_is_refused_with_three_changes():
    user = make_user()
    host("small", 64 * GIB, 80 * GIB)
    host("large", 500 * GIB, 80 * GIB, 80 * GIB)
    message = refusal(user, request_of(user, group_of(user)))
    assert message.startswith("On none of 2 hosts; on ")
    assert "The run needs about 84.2 GiB on a GPU, which has 80.0 GiB. Any of these fits: " in message
    assert message.count("GiB)") == 3


def test_the_change_it_names_is_accepted():
    user = make_user()
    host("one", 500 * GIB, 80 * GIB)
    request = request_of(user, group_of(user))
    assert "gradient_checkpointing (70.2 GiB)" in refusal(user, request)
    assert launch(user, {**request, "compute": {"gradient_checkpointing": True}}).pk


def test_one_host_that_can_hold_it_is_enough():
    user = make_user()
    host("small", 8 * GIB)
    host("large", 500 * GIB, 141 * GIB)
    assert launch(user, request_of(user, group_of(user))).pk


@pytest.mark.parametrize("update", [{"drain": Drain.FINISH}, {"last_seen": None}], ids=["drained", "silent"])
def test_hosts_that_take_nothing_do_not_count(update):
    user = make_user()
    host("small", 8 * GIB)
    host("large", 500 * GIB, 141 * GIB)
    Host.objects.filter(name="large").update(**update)
    assert refusal(user, request_of(user, group_of(user))).startswith("On host small: The run needs about ")


def test_nothing_is_refused_where_no_host_or_no_shape_is_known():
    user = make_user()
    group = group_of(user)
    assert launch(user, request_of(user, group)).pk
    host("small", GIB)
    plain = make_group(user)  # its models were registered without their sizes
    assert launch(user, request_of(user, plain)).pk


def test_estimate_is_told_in_words():
    user = make_user()
    group = group_of(user)
    agents = list(group.agents.select_related("model"))
    names = [{"name": agent.name, "model": "model"} for agent in agents]
    spec = RunSpec.model_validate({"agents": names, "data": {"train_path": "questions.jsonl"}, **SMALL})
    assert memory_needed(spec, agents) == ""
    host("one", 500 * GIB, 141 * GIB)
    assert memory_needed(spec, agents) == "about 84.2 GiB of 141.0 GiB (a GPU on one)"
    fixed = {"training": {"micro_batch_size": 64, "tokens_per_micro_batch": 300_000}}
    large = RunSpec.model_validate({"agents": names, "data": {"train_path": "questions.jsonl"}, **fixed})
    told = "more than 141.0 GiB of a GPU on one: batches are halved until they fit"
    assert memory_needed(large, agents) == told
