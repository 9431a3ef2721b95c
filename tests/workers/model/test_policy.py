"""One agent's model and text: prompts, re-tokenised rollouts, ends of sequence, optimizer in two precisions."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from tests.support.workers.tiny import make_agent, make_pair, make_spec
from workers.agents.local import LocalAgent
from workers.agents.messages import Response
from workers.agents.retokenize import ResponseTooLong, retokenize
from workers.contract.spec.run import RunSpec
from workers.model.loading import load_model
from workers.model.policy import Policy
from workers.model.prompts import eos_ids
from workers.questions.dataset import Question


def make_policy(root: Path, *, agent: dict | None = None, **changes) -> tuple[Policy, RunSpec]:
    folder = root / "model"
    if not folder.exists():
        make_agent(folder, "llama", extra_pieces=("12",))
    spec = make_spec(root, [{"name": "A", "model": str(folder), **(agent or {})}], **changes)
    return Policy(spec.agents[0], spec, torch.device("cpu")), spec


def response(text: str, *, finish_reason="stop", shared_text: str | None = None) -> Response:
    return Response(text, shared_text or text, finish_reason, 5, 5, -1.0)


def retokenized(policy: Policy, spec: RunSpec, given: Response, max_length: int = 6):
    tokens = retokenize(policy, given, spec.algorithm, max_length)
    return tokens if isinstance(tokens, str) else tokens.token_ids


def test_finished_rollout_gets_the_learners_own_eos(tmp_path):
    policy, spec = make_policy(tmp_path)
    ids = retokenized(policy, spec, response("12+3"))
    assert policy.tokenizer.convert_ids_to_tokens(ids) == ["12", "+", "3", "<eos>"]
    assert policy.turn_eos not in retokenized(policy, spec, response("12+3", finish_reason="length"))


def test_special_token_of_the_source_stays_text(tmp_path):
    policy, _ = make_policy(tmp_path)
    assert policy.turn_eos not in policy.encode_response("1<eos>2")
    assert policy.turn_eos in policy.encode_response("1<eos>2", literal=True)


def test_eos_strip_and_literal(tmp_path):
    policy, spec = make_policy(tmp_path, algorithm={"eos": "strip"})
    assert policy.turn_eos not in retokenized(policy, spec, response("12+3"))
    policy, spec = make_policy(tmp_path, algorithm={"eos": "literal"})
    ids = retokenized(policy, spec, response("12+3", shared_text="12+3<eos>"))
    assert ids.count(policy.turn_eos) == 1


def test_overflow_is_dropped_cut_or_refused(tmp_path):
    long = response("1+1+1+1")  # 7 tokens and the EOS
    policy, spec = make_policy(tmp_path)
    assert retokenized(policy, spec, long) == "overflow"
    assert len(retokenized(policy, spec, long, max_length=8)) == 8
    policy, spec = make_policy(tmp_path, algorithm={"overflow": "truncate"})
    ids = retokenized(policy, spec, long)
    assert len(ids) == 6
    assert policy.turn_eos not in ids
    policy, spec = make_policy(tmp_path, algorithm={"overflow": "error"})
    with pytest.raises(ResponseTooLong, match="8 tokens for agent A"):
        retokenized(policy, spec, long)


def test_empty_text_is_dropped(tmp_path):
    policy, spec = make_policy(tmp_path)
    assert retokenized(policy, spec, response("", finish_reason="length")) == "empty"


def test_prompt_goes_through_the_agents_own_format(tmp_path):
    policy, _ = make_policy(tmp_path, agent={"prompt_template": "({question}"})
    assert policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("1+1=")) == list("(1+1=")
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}*{% endif %}"
    )
    policy.tokenizer.save_pretrained(tmp_path / "model")
    policy, _ = make_policy(tmp_path)  # auto: chat, now that there is a template
    assert policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("1+1=")) == list("1+1=*")
    policy, _ = make_policy(tmp_path, agent={"prompt_format": "plain"})
    assert policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("1+1=")) == list("1+1=")


def test_system_message_stands_where_the_template_puts_it_or_before_the_question(tmp_path):
    def prompt(template: str | None, **agent) -> str:
        policy, _ = make_policy(tmp_path, agent={"prompt_template": "({question}", **agent})
        policy.tokenizer.chat_template = template
        return "".join(policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("1+1=", "3*4")))

    system_first = "{% for m in messages %}{{ '+' if m['role'] == 'system' else '-' }}{{ m['content'] }}{% endfor %}"
    assert prompt(system_first) == "+3*4-(1+1="
    assert prompt(system_first, prompt_format="plain") == prompt(None)
    # Templates that leave a system message out, or refuse it, as Gemma's does.
    leaves_out = "{% for m in messages if m['role'] == 'user' %}-{{ m['content'] }}{% endfor %}"
    refuses = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}" + leaves_out
    assert prompt(leaves_out) == prompt(refuses) == "-" + prompt(None)
    assert prompt(None).startswith("3*4")
    assert prompt(None).endswith("(1+1=")


def test_chat_template_that_fails_at_a_question_names_agent_and_question(tmp_path):
    policy, _ = make_policy(tmp_path)
    raising = "{% if '7' in messages[0]['content'] %}{{ raise_exception('no sevens') }}{% endif %}"
    policy.tokenizer.chat_template = raising + "{{ messages[0]['content'] }}"
    assert policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("1+1=")) == list("1+1=")
    with pytest.raises(ValueError, match=r"agent 'A' fails \(TemplateError: no sevens\) at '1\+7=': mend it, or set"):
        policy.encode_prompt("1+7=")


def test_chat_format_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"agent 'A' has prompt_format chat, but the tokenizer of .* has no chat template"
    ):
        make_policy(tmp_path, agent={"name": "A", "prompt_format": "chat"})


def test_chat_template_without_the_question_is_refused_before_training(tmp_path):
    policy, _ = make_policy(tmp_path)
    policy.tokenizer.chat_template = "{% if thinks %}{{ messages[0]['content'] }}{% else %}1+1={% endif %}"
    policy.tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"chat template of agent 'A' leaves the question out, so every prompt would"):
        make_policy(tmp_path)
    for agent in ({"prompt_format": "plain"}, {"chat_template_kwargs": {"thinks": True}}):
        policy, _ = make_policy(tmp_path, agent=agent)
        assert policy.tokenizer.convert_ids_to_tokens(policy.encode_prompt("2+2=")) == list("2+2=")


def test_template_without_the_question_is_refused(tmp_path):
    for changes in ({"agent": {"prompt_template": "2+2="}}, {"data": {"prompt_template": "2+2="}}):
        with pytest.raises(ValidationError, match=r"the template must contain \{question\}"):
            make_policy(tmp_path, **changes)


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"model": {"type": "other"}}'])
def test_tokenizer_that_does_not_load_is_said_in_one_sentence(tmp_path, text):
    make_agent(tmp_path / "model", "llama", extra_pieces=("12",))
    (tmp_path / "model" / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"^the tokenizer of .*model does not load \(.*\): copy the model's"):
        make_policy(tmp_path)


def test_context_is_what_the_model_can_place(tmp_path):
    policy, _ = make_policy(tmp_path)
    assert policy.context_length == 64
    # Rotary embeddings stretched by 4 from 64, where the configuration still names the length before.
    policy.model.config.rope_parameters = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    assert policy.context_length == 256


def test_all_sources_of_eos_count(tmp_path):
    policy, _ = make_policy(tmp_path)
    policy.model.generation_config.eos_token_id = [4, 5]
    assert eos_ids(policy.tokenizer, policy.model) == [1, 4, 5]


# As Gemma has it: a turn ends with another token than a text.
TURNS = (
    "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}a{% else %}<eos>{% endif %}"
)


def test_shared_rollout_ends_as_the_learners_own_turns_do(tmp_path):
    folder = make_agent(tmp_path / "model", "llama", extra_pieces=("<end>",), eos_token_id=[1, 18])
    policy, spec = make_policy(tmp_path)
    assert policy.tokenizer.convert_tokens_to_ids("<end>") == 18
    assert retokenized(policy, spec, response("3"))[-1] == 1  # a text without turns
    policy.tokenizer.chat_template = TURNS
    policy.tokenizer.save_pretrained(folder)
    policy, spec = make_policy(tmp_path)
    assert retokenized(policy, spec, response("3"))[-1] == 18
    policy, spec = make_policy(tmp_path, agent={"prompt_format": "plain"})
    assert retokenized(policy, spec, response("3"))[-1] == 1


@pytest.mark.parametrize(
    ("template", "stops"),
    [
        (TURNS, [1]),  # its own answers do not end with that token
        ("{% if messages|length > 1 %}{{ raise_exception('one turn') }}{% endif %}{{ messages[0]['content'] }}", [18]),
        ("{{ messages[0]['content'] }}<end>", [1, 18]),
    ],
)
def test_template_without_an_end_leaves_the_eos(tmp_path, template, stops):
    folder = make_agent(tmp_path / "model", "llama", extra_pieces=("<end>",), eos_token_id=stops)
    policy, _ = make_policy(tmp_path)
    policy.tokenizer.chat_template = template
    policy.tokenizer.save_pretrained(folder)
    assert make_policy(tmp_path)[0].turn_eos == 1


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"temperature": 0.6, "do_sample": True}, {"temperature": 0.6, "do_sample": True}),
        ({"pad_token_id": -1}, {"eos_token_id": 1}),
        ({"length_penalty": 0.5, "early_stopping": True}, {"eos_token_id": 1}),
    ],
)
def test_generation_settings_that_cannot_be_written_cost_no_checkpoint(tmp_path, settings, kept):
    file = make_agent(tmp_path / "model", "llama") / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    policy, _ = make_policy(tmp_path)
    policy.save(tmp_path / "saved")
    found = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert {name: found.get(name) for name in settings | kept} == dict.fromkeys(settings) | kept


def test_model_without_safetensors_is_refused(tmp_path):
    policy, _ = make_policy(tmp_path)
    weights = tmp_path / "model" / "model.safetensors"
    torch.save(policy.model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(OSError, match="safetensors"):
        make_policy(tmp_path)


def test_small_steps_are_not_lost_in_bfloat16(tmp_path):
    policy, _ = make_policy(tmp_path, compute={"dtype": "bfloat16"}, training={"weight_decay": 0.0})
    before = {name: master.clone() for name, master in policy.optimizer.masters.items()}
    for _ in range(2):
        logps, _ = policy.token_logps([[2, 3]], [[4, 5, 6]])
        policy.optimizer.backward(-logps.sum())
        _, taken = policy.optimizer.step(1e-6, is_sound=True)
        assert taken
    name = "model.layers.0.mlp.up_proj.weight"
    assert policy.model.dtype == torch.bfloat16
    moved = (policy.optimizer.masters[name] - before[name]).abs().max().item()
    assert 1e-6 < moved < 3e-6  # two steps of 1e-6, kept in float32
    assert torch.equal(policy.model.get_parameter(name), policy.optimizer.masters[name].bfloat16())


def test_update_without_finite_gradient_changes_nothing(tmp_path):
    policy, _ = make_policy(tmp_path)
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    for poison, is_sound in ((float("nan"), True), (1.0, False)):
        logps, _ = policy.token_logps([[2, 3]], [[4, 5, 6]])
        (logps.sum() * poison).backward()
        _, taken = policy.optimizer.step(1.0, is_sound=is_sound)
        assert not taken
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_agent(tmp_path / "qwen", "qwen3")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 tensors of its model, such as model\.layers\.1\.mlp\.up_proj"):
        load_model(str(folder), None, torch.float32, torch.device("cpu"))


def test_question_is_put_into_its_benchmarks_template_and_that_into_the_agents(tmp_path):
    agents = [{**make_pair(tmp_path)[0], "prompt_template": "({question}"}]
    spec = make_spec(tmp_path, agents)
    agent = LocalAgent(spec.agents[0], spec, torch.device("cpu"), None)
    question = Question(id="q", question="1+1=", answer="2", template="3{question}")
    assert agent.policy.tokenizer.convert_ids_to_tokens(agent._encode(question)) == list("(31+1=")


def test_questions_kept_in_tokens_take_little_memory_and_each_is_a_sign_of_work(tmp_path, monkeypatch):
    _, spec = make_policy(tmp_path)
    agent = LocalAgent(spec.agents[0], spec, torch.device("cpu"), None)
    beats = []
    monkeypatch.setattr("workers.heartbeat.send_heartbeat", lambda: beats.append(1))
    monkeypatch.setattr(agent.policy, "encode_prompt", lambda text, system: [1000 + number for number in range(200)])
    questions = [Question(str(number), f"{number}", "1") for number in range(500)]
    tracemalloc.start()
    try:
        agent.prompt_lengths(questions)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(beats) == 500
    assert size < 500 * 1500  # 200 tokens of 4 bytes, and what Python adds; a list has 36 bytes a token
