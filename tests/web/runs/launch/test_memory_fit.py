"""A run that no known host can hold is refused with what would fit; one that some host can hold is not."""

from __future__ import annotations

from typing import Any

import pytest

from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.runs.launch.cost import estimate
from hacrl_web.runs.launch.fit.memory_fit import memory_needed
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.launch.presets import MACHINE_PRESETS, sections_of
from hacrl_web.runs.launch.recommendation import recommended
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
FULL = {"gradient_checkpointing": False, "agent_devices": "shared"}  # what takes most memory
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
    sections = {"algorithm": {"name": "hacpo", "beta": 0.001}, "compute": FULL} | sections
    return {"name": "run", "group": group.pk, "benchmark": make_benchmark(user).pk, **sections}


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
    assert "The run needs about 85.6 GiB on a GPU, which has 80.0 GiB. Any of these fits: " in message
    assert message.count("GiB)") == 3


def merged(request: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return request | {section: request.get(section, {}) | own for section, own in change.items()}


def test_every_change_that_the_refusal_brings_along_is_accepted(client):
    user = make_user()
    host("one", 64 * GIB, 24 * GIB)
    group = small_pair(user)
    sections = sections_of(MACHINE_PRESETS[0].values | {"training.lora_rank": 0})
    request = {"name": "run", "group": group.pk, "benchmark": make_benchmark(user).pk, **sections}
    client.force_login(user)
    [error] = client.post("/api/v1/runs", request, content_type="application/json").json()["errors"]
    labels = [fix["label"] for fix in error["fixes"]]
    assert all(label in error["message"] for label in labels)
    of_lora = next(fix for fix in error["fixes"] if fix["label"].startswith("lora_rank 16 for every agent ("))
    assert of_lora["request"] == {"agents": {agent.name: {"lora_rank": 16} for agent in group.agents.all()}}
    assert len(labels) > 1
    for fix in error["fixes"]:
        assert launch(user, merged(request, fix["request"])).state == "queued"


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
    most = {"data": {"train_path": "questions.jsonl"}, "algorithm": {"name": "hacpo", "beta": 0.001}, "compute": FULL}
    spec = RunSpec.model_validate({"agents": names, **most, **SMALL})
    assert memory_needed(spec, agents) == ""
    host("one", 500 * GIB, 141 * GIB)
    assert memory_needed(spec, agents) == "about 85.6 GiB of 141.0 GiB (a GPU on one)"
    fixed = {"training": {"micro_batch_size": 64, "tokens_per_micro_batch": 300_000}}
    large = RunSpec.model_validate({"agents": names, **most, **fixed})
    told = "more than 141.0 GiB of a GPU on one: batches are halved until they fit"
    assert memory_needed(large, agents) == told


# The presets of machines

# config.json of two models
QWEN = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "intermediate_size": 4864,
}
LLAMA = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "intermediate_size": 8192,
}


def small_pair(user: Any) -> AgentGroup:
    """Qwen2.5-0.5B and Llama-3.2-1B, by their configurations and numbers of weights alone."""
    group = make_group(user)
    models = zip(group.agents.all(), (QWEN, LLAMA), (494_032_768, 1_235_814_400), strict=True)
    for agent, sizes, parameters in models:
        agent.model.facts = {**agent.model.facts, "sizes": sizes}
        agent.model.num_parameters = parameters
        agent.model.save()
    return group


def test_qwen_and_llama_are_accepted_on_24_gib_with_that_preset_and_by_lora():
    user = make_user()
    host("one", 64 * GIB, 24 * GIB)
    group = small_pair(user)
    request = {"name": "run", "group": group.pk, "benchmark": make_benchmark(user).pk}
    run = launch(user, request | sections_of(MACHINE_PRESETS[0].values))
    assert [(agent["lora_rank"], agent["learning_rate"]) for agent in run.spec["agents"]] == [(16, 1e-5)] * 2
    # All weights of both need 14 bytes each, and gradients of the larger one 4: 27.1 GiB.
    full = sections_of(MACHINE_PRESETS[0].values | {"training.lora_rank": 0})
    with pytest.raises(LaunchError) as refused:
        launch(user, request | full)
    assert [error.code for error in refused.value.errors] == ["does_not_fit"]
    assert Run.objects.get() == run


def test_presets_of_machines_set_the_same_settings_so_that_none_of_another_stays():
    first, *others = (set(preset.values) for preset in MACHINE_PRESETS)
    assert all(first <= other for other in others)


def test_checkpoints_of_a_run_with_lora_are_estimated_without_optimizers():
    user = make_user()
    group, benchmark = small_pair(user), make_benchmark(user)
    request = {"name": "run", "group": group.pk, "benchmark": benchmark.pk}
    sizes = []
    for rank in (0, 16):
        sizes.append(estimate(user, {**request, "training": {"lora_rank": rank}}, Run).disk_bytes)
    # 1,729,847,168 weights; the two newest checkpoints and the best
    assert sizes == [3 * 14 * 1_729_847_168, 3 * 4 * 1_729_847_168]


def test_recommendation_is_the_preset_of_the_largest_machine_that_this_one_covers():
    user = make_user()
    agents = list(group_of(user).agents.select_related("model"))
    assert recommended(agents) is None  # no host has reported its devices
    host("one", 64 * GIB, 22 * GIB)  # what a 24 GB card reports
    assert recommended(agents).label.startswith("One 24 GB GPU")
    host("two", 128 * GIB, 80 * GIB)
    best = recommended(agents)
    assert best.label.startswith("One 80 GB GPU")
    assert best.reason.startswith("For 2 agents on two (1 x 80 GiB GPU)")


def test_recommended_values_fit_the_context_and_the_questions():
    user = make_user()
    host("one", 64 * GIB, 24 * GIB)
    group = group_of(user)
    LanguageModel.objects.filter(agents__group=group).update(context_length=300)
    benchmark = make_benchmark(user)
    benchmark.num_train = 20
    best = recommended(list(group.agents.select_related("model")), benchmark)
    assert best.values["rollout.max_prompt_length"] + best.values["rollout.max_completion_length"] == 300
    assert (best.values["training.train_batch_size"], best.values["training.mini_batch_size"]) == (16, 16)


def test_models_of_a_few_parameters_are_recommended_the_settings_of_the_demo():
    user = make_user()
    host("one", 16 * GIB)
    best = recommended(list(group_of(user, 100_000).agents.select_related("model")))
    assert best.label.startswith("The demo's settings")
    assert [one["field"] for one in best.confirm] == ["algorithm.delta"]
