"""RunSpec refuses what cannot be meant, says where, and derives the numbers that others rely on."""

import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from workers.contract.spec.agent import RESERVED_KEYWORDS, AgentSpec
from workers.contract.spec.algorithm import field_path
from workers.contract.spec.run import InvalidSettings, RunSpec

BASE = {"agents": [{"name": "a", "model": "m"}, {"name": "b", "model": "m"}], "data": {"train_path": "q.jsonl"}}


def last_bound(spec: RunSpec) -> float:
    """The lower bound of shared ratios at a step's last update."""
    band = spec.rule.shared_band(spec.last_update)
    assert band is not None
    return band[0]


def spec(**over) -> RunSpec:
    return RunSpec.model_validate({**BASE, **over})


def refused(**over) -> dict[tuple, str]:
    with pytest.raises(ValidationError) as caught:
        spec(**over)
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


@pytest.mark.parametrize(
    ("agent", "arguments"),
    [
        ({}, {}),
        ({"thinking": "off"}, {"enable_thinking": False}),
        ({"thinking": True, "chat_template_kwargs": {"a": 1}}, {"a": 1, "enable_thinking": True}),  # YAML's bare on
    ],
)
def test_thinking_is_an_argument_of_the_chat_template(agent, arguments):
    assert spec(agents=[{"name": "a", "model": "m", **agent}]).agents[0].template_arguments == arguments


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "0", "-1", "1,5", "", "１", "1e400", "0x1", "1_0", "9" * 5000, True, [1], {}]
)
def test_learning_rate_must_be_a_finite_positive_number(text):
    assert ("training", "learning_rate") in refused(training={"learning_rate": text})


@pytest.mark.parametrize("count", [-1, 2.5, 10**30, "１２", "1e3", True, None, "9" * 5000])
def test_counts_are_positive_whole_and_bounded(count):
    assert ("training", "steps") in refused(training={"steps": count})


def test_no_step_is_an_evaluation_and_no_prompt_is_refused():
    assert spec(training={"steps": 0}).is_evaluation_only
    assert not spec(training={"steps": 0}, algorithm={"delta": 0.8}).cautions()
    assert not spec(training={"steps": 1}).is_evaluation_only
    assert ("training", "train_batch_size") in refused(training={"train_batch_size": 0})


@pytest.mark.parametrize("section", ["algorithm", "rollout", "training", "evaluation", "checkpoint", "compute", "data"])
def test_unknown_keys_are_refused_where_they_stand(section):
    over = {**(BASE["data"] if section == "data" else {}), "detla": 0.2}
    problems = {field_path(place): text for place, text in refused(**{section: over}).items()}
    assert problems[f"{section}.detla"] == "Extra inputs are not permitted"


def test_settings_of_another_algorithm_and_unknown_algorithms_are_refused_by_name():
    assert list(map(field_path, refused(algorithm={"name": "gspo", "delta": 0.2}))) == ["algorithm.delta"]
    (text,) = refused(algorithm={"name": "ppo"}).values()
    assert "'ppo'" in text
    assert "'hacpo'" in text


def test_settings_of_version_1_are_upgraded():
    stored = {"name": "gspo", "beta": 0.5, "delta": 0.7, "sharing": False}
    upgraded = spec(schema_version=1, algorithm=stored)
    assert upgraded.algorithm.model_dump(exclude_unset=True) == {"name": "gspo", "beta": 0.5}
    assert upgraded.schema_version == 3
    kept = spec(schema_version=1, algorithm={**stored, "name": "hacpo"}).algorithm
    assert kept.model_dump(exclude_unset=True) == {**stored, "name": "hacpo"}


def test_unknown_top_level_key_is_refused():
    assert ("trust_remote_code",) in refused(trust_remote_code=True)


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x7f", "a\u202eb", ""])
def test_control_characters_in_a_name_are_refused(name):
    assert ("name",) in refused(name=name)
    assert ("agents", 0, "name") in refused(agents=[{"name": name, "model": "m"}])


def test_mini_batch_that_does_not_divide_is_named_at_its_field():
    message = refused(training={"train_batch_size": 24, "mini_batch_size": 7})[("training", "mini_batch_size")]
    assert "must divide train_batch_size 24; 7 does not" in message


def test_two_agents_need_two_names():
    assert "'a'" in refused(agents=[{"name": "a", "model": "m"}] * 2)[("agents",)]


def test_two_agents_need_two_seeds():
    # They would sample with the same random keys.
    pair = [{"name": "a", "model": "m", "seed": 7}, {"name": "b", "model": "m", "seed": 7}]
    message = refused(agents=pair)[("agents",)]
    assert "agents 'a' and 'b' have the same seed 7" in message
    assert "give each its own seed" in message
    derived = AgentSpec(name="a", model="m").stable_seed
    assert "the same seed" in refused(agents=[{"name": "a", "model": "m"}, dict(pair[1], seed=derived)])[("agents",)]


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"rollout": {"engine": "vllm", "max_staleness": 1}}, "a vllm engine does not sample while its agent learns"),
        (
            {"rollout": {"max_staleness": 1}, "compute": {"processes_per_agent": 2}},
            "max_staleness 1 needs agents of one",
        ),
        ({"rollout": {"max_staleness": 1}, "compute": {"placement": "ray"}}, "max_staleness 1 needs agents of one"),
        ({"rollout": {"max_staleness": 2}}, "less than or equal to 1"),
    ],
)
def test_sampling_ahead_is_refused_where_nothing_can_do_it(sections, told):
    with pytest.raises(ValidationError, match=told):
        RunSpec.model_validate(BASE | sections)


def test_nine_agents_and_no_agent_are_refused():
    nine = [{"name": str(i), "model": "m"} for i in range(9)]
    assert ("agents",) in refused(agents=nine)
    assert ("agents",) in refused(agents=[])


def test_template_without_question_is_refused():
    assert ("agents", 0, "prompt_template") in refused(agents=[{"name": "a", "model": "m", "prompt_template": "solve"}])


def test_canonical_text_reads_back_to_the_same_spec():
    original = spec(algorithm={"delta": 0.3}, training={"learning_rate": 3e-7})
    assert RunSpec.model_validate_json(original.to_json()) == original
    assert list(json.loads(original.to_json())) == sorted(json.loads(original.to_json()))


def test_every_setting_has_help_and_a_source():
    schema = RunSpec.model_json_schema()
    sections = [*schema["$defs"].values()]
    for section in sections:
        for name, field in section["properties"].items():
            if "const" in field:  # an algorithm's name: its summary is its help
                continue
            assert field.get("description"), f"{section['title']}.{name} has no help text"
            assert field.get("source"), f"{section['title']}.{name} has no source"


@pytest.mark.parametrize(("delta", "asks"), [(0.2, False), (0.5, False), (0.51, True), (0.8, True), (0.9, True)])
def test_delta_above_one_half_asks_to_be_confirmed(delta, asks):
    cautions = {c.code: c for c in spec(algorithm={"delta": delta}).cautions()}
    assert ("delta_above_half" in cautions) is asks
    if delta == 0.8:
        text = cautions["delta_above_half"].message
        assert text == (
            "A delta of 0.8 means a lower bound of 0.2. The paper's Table 5 prints lower bounds under "
            '"delta": its 0.8 is a delta of 0.2 here.'
        )
        assert cautions["delta_above_half"].field == "algorithm.delta"


def test_one_agent_alone_is_asked_nothing_about_sharing():
    alone = BASE["agents"][:1]
    assert spec(agents=alone, algorithm={"delta": 0.8}).cautions() == []
    assert spec(algorithm={"delta": 0.8, "sharing": False}).cautions() == []


def test_gspox2_doubles_rollouts_and_halves_the_mini_batch():
    doubled = spec(algorithm={"name": "gspox2"}, training={"train_batch_size": 24, "mini_batch_size": 24})
    assert doubled.num_generations == 16
    assert doubled.mini_batch_prompts == 12
    assert doubled.updates_per_block == 2
    assert ("training",) in refused(
        algorithm={"name": "gspox2"}, training={"train_batch_size": 9, "mini_batch_size": 9}
    )


def test_last_bound_by_hand():
    # B 128, mini-batch 64: M = 2. Two agents: updates 0..3, last m = 3: 1 - .2 + 3 * .025 = .875.
    two = spec()
    assert two.updates_per_block == 2
    assert last_bound(two) == pytest.approx(0.875, abs=1e-12)


@given(n=st.integers(3, 8), step=st.floats(0.001, 0.05))
def test_scaled_schedule_ends_at_the_two_agent_bound_for_every_n(n, step):
    agents = [{"name": str(i), "model": "m"} for i in range(n)]
    many = spec(agents=agents, algorithm={"delta_step": step})
    two = spec(algorithm={"delta_step": step})
    assert last_bound(many) == pytest.approx(last_bound(two), abs=1e-12)


def test_schedule_counts_the_sources_that_are_trained_on():
    agents = [{"name": str(i), "model": "m"} for i in range(5)]
    few = spec(agents=agents, algorithm={"max_sources_per_learner": 1})
    # One peer a step: two blocks of M = 2 updates each, as with two agents.
    assert (few.num_blocks, few.rule.delta_step, last_bound(few)) == (
        2,
        0.025,
        pytest.approx(0.875),
    )
    assert spec(agents=agents).num_blocks == 5
    assert spec(agents=agents, algorithm={"name": "gspo"}).num_blocks == 1


def test_only_what_is_clipped_has_cautions_about_the_clip():
    for changes in ({"cross_gate": "signed"}, {"clip_cross": False}, {"sharing": False}):
        assert spec(algorithm={"delta": 0.8, **changes}).cautions() == []


def test_audit_of_rules_is_a_caution():
    audit, terms = {"audit_share": 0.1}, [{"name": "own", "kind": "function", "function": "own.py"}]
    for verifier, codes in {"math": ["audit_decides_little"], "json": ["audit_decides_little"], "python": []}.items():
        data = {**BASE["data"], "verifier": verifier}
        assert [c.code for c in spec(data=data, algorithm=audit).cautions()] == codes
        assert spec(data=data).cautions() == []
    assert spec(rewards={"terms": terms}, algorithm=audit).cautions() == []  # its calls are repeated


def test_audit_where_the_environment_gives_the_rewards_is_a_caution():
    paying = {"environment": "verifiers", "verifiers_environment": "some-env"}
    (caution,) = spec(rollout=paying, algorithm={"audit_share": 0.1}).cautions()
    assert (caution.code, caution.field) == ("audit_decides_little", "algorithm.audit_share")
    assert "Rewards of an environment are not audited" in caution.message
    assert spec(rollout=paying).cautions() == []
    (caution,) = spec(rollout={**paying, "environment": "calculator"}, algorithm={"audit_share": 0.1}).cautions()
    assert "environment" not in caution.message


def test_raw_schedule_of_five_agents_warns_that_the_last_batch_teaches_nothing():
    # n 5, M 2: last m = 9: 1 - .2 + 9 * .025 = 1.025, cut to 1.
    agents = [{"name": str(i), "model": "m"} for i in range(5)]
    raw = spec(agents=agents, algorithm={"cross_clip_schedule": "raw"})
    assert last_bound(raw) == 1.0
    assert [c.code for c in raw.cautions()] == ["last_bound_reaches_one"]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("zero", "teaches nothing"),
        ("keep", "weighs every shared rollout as if its ratio were 1"),
        ("sided", "teaches only where a step moves the ratio towards 1"),
    ],
)
def test_last_bound_of_one_is_told_as_its_clip_mode_has_it(mode, told):
    (caution,) = spec(algorithm={"delta_step": 0.2, "cross_clip_gradient": mode}).cautions()
    assert caution.code == "last_bound_reaches_one"
    assert caution.message == (
        f"The last cross mini-batch of each step has a lower bound of 1 and {told}: "
        "lower delta_step or raise mini_batch_size."
    )


def test_agent_seed_depends_on_the_name_not_the_place():
    assert AgentSpec(name="a", model="m").stable_seed == AgentSpec(name="a", model="other").stable_seed
    assert AgentSpec(name="a", model="m").stable_seed != AgentSpec(name="b", model="m").stable_seed
    assert AgentSpec(name="a", model="m", seed=7).stable_seed == 7


def test_keywords_that_the_trainer_sets_itself_are_refused_for_a_chat_template():
    transformers = pytest.importorskip("transformers")
    parameters = inspect.signature(transformers.PreTrainedTokenizerBase.apply_chat_template).parameters.values()
    named = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}
    assert named <= RESERVED_KEYWORDS
    agent = {"name": "a", "model": "m", "chat_template_kwargs": {"enable_thinking": False, "tokenize": True}}
    assert "'tokenize'" in refused(agents=[agent])[("agents", 0, "chat_template_kwargs")]


def test_overlong_cache_beyond_the_longest_answer_is_refused():
    message = refused(algorithm={"overlong_cache": 9}, rollout={"max_completion_length": 8})[("rollout",)]
    assert "max_completion_length 8 is below algorithm.overlong_cache 9" in message
    assert spec(algorithm={"overlong_cache": 8}, rollout={"max_completion_length": 8}).overlong.cache == 8


LORA = [{"name": "a", "model": "m", "lora_rank": 8}, {"name": "b", "model": "m"}]


def test_agent_with_lora_has_ten_times_the_learning_rate_unless_it_has_its_own():
    assert [agent.learning_rate for agent in spec(agents=LORA).agents] == [1e-5, None]
    own = [{**LORA[0], "learning_rate": 3e-5}, LORA[1]]
    assert spec(agents=own).agents[0].learning_rate == 3e-5
    factor = spec(agents=LORA, training={"lora_learning_rate_factor": 4, "learning_rate": 2e-6})
    assert factor.agents[0].learning_rate == 8e-6
    assert RunSpec.model_validate_json(factor.to_json()) == factor


def test_run_with_lora_of_version_2_keeps_its_learning_rate_and_its_other_defaults():
    stored = spec(schema_version=2, agents=LORA)
    assert [agent.learning_rate for agent in stored.agents] == [None, None]  # the run's: 1e-6
    assert (stored.algorithm.beta, stored.rollout.engine, stored.save_interval) == (1e-3, "transformers", 0)
    assert (stored.evaluation.max_questions, stored.evaluation.question_choice) == (0, "first")
    assert (stored.compute.agent_devices, stored.compute.gradient_checkpointing) == ("shared", False)
    assert RunSpec.model_validate_json(stored.to_json()) == stored


def test_lora_of_the_run_is_that_of_agents_without_their_own():
    of_run = spec(agents=LORA, training={"lora_rank": 16})
    assert [(agent.lora_rank, agent.learning_rate) for agent in of_run.agents] == [(8, 1e-5), (16, 1e-5)]


def test_vllm_takes_lora_up_to_rank_512():
    vllm = {"engine": "vllm"}
    assert spec(agents=LORA, training={"lora_rank": 512}, rollout=vllm).agents[1].lora_rank == 512
    told = refused(agents=LORA, training={"lora_rank": 513}, rollout=vllm)[("training",)]
    assert "rank 512 at most, and those of 'b' have rank 513" in told
    assert spec(agents=LORA, training={"lora_rank": 513, "steps": 0}, rollout=vllm)  # only evaluated: no matrices


@pytest.mark.parametrize(("rate", "asks"), [(1.9e-7, True), (2e-7, False), (5e-5, False), (5.1e-5, True)])
def test_learning_rate_of_lora_outside_the_usual_is_a_caution(rate, asks):
    cautions = spec(agents=LORA, training={"learning_rate": rate}).cautions()
    assert [c.code for c in cautions] == ["lora_learning_rate"] * asks
    if rate == 1.9e-7:
        assert cautions[0].field == "training.learning_rate"
        told = "a trains LoRA matrices at a learning rate of 1.9e-06: 2e-06 to 0.0005 is usual."
        assert cautions[0].message.startswith(told)
    assert spec(training={"learning_rate": rate}).cautions() == []


def test_checkpoints_are_a_tenth_of_the_run_apart():
    assert [spec(training={"steps": steps}).save_interval for steps in (1, 10, 58)] == [1, 1, 6]
    assert spec(checkpoint={"save_steps": ""}).checkpoint.save_steps is None
    assert spec(checkpoint={"save_steps": "7"}).save_interval == 7


def test_changed_settings_without_effect_are_listed_with_the_reason():
    agents = [{"name": "a", "model": "m"}, {"name": "b", "model": "n"}]
    spec = RunSpec.model_validate(
        {
            "agents": agents,
            "data": {"train_path": "-"},
            "algorithm": {"name": "sapo", "epsilon": 0.1},
            "rollout": {"engine": "transformers", "gpu_memory_utilization": 0.5, "importance_cap": 3},
            "evaluation": {"top_p": 0.9},
        }
    )
    assert spec.void_settings() == {
        "algorithm.epsilon": "SAPO does not use it",
        "rollout.gpu_memory_utilization": "no effect with rollout.engine transformers",
        "rollout.importance_cap": "no effect with rollout.importance_correction none",
        "evaluation.top_p": "no effect with evaluation.temperature 0.0",
    }
    hacpo = RunSpec.model_validate(
        {"agents": agents, "data": {"train_path": "-"}, "algorithm": {"clip_cross": False, "delta_step": 0.1}}
    )
    assert hacpo.void_settings() == {"algorithm.delta_step": "no effect with algorithm.clip_cross false"}


@pytest.mark.parametrize(
    "text",
    ["name: 2026-13-45", "[" * 5000, "seed: !!int x", "x: !!bool swan", "x: !!timestamp x", "seed: " + "9" * 5000],
)
def test_yaml_of_values_that_misfit_their_tags_is_refused_with_its_path(tmp_path, text):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=r"spec\.yaml is not YAML of settings"):
        RunSpec.from_file(path)
