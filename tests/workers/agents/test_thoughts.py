"""A response carries the thought that its prompt has opened, to verifiers and to peers whose templates differ."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers import decoders as token_decoders
from transformers import PreTrainedTokenizerFast

from tests.support.workers.tiny import make_spec
from workers.agents.local import LocalAgent
from workers.agents.messages import Response
from workers.agents.retokenize import retokenize
from workers.contract.spec.environments import Turn
from workers.model.loading import CPU
from workers.model.text_difference import text_difference
from workers.model.thoughts import thought_marks
from workers.rollouts.sampler import Sample
from workers.trainer.rewards import tags_reward
from workers.verifiers.mathematics.extraction import after_thoughts

CHAT = "{% for m in messages %}({{ m.content }}){% endfor %}"
OPENS = CHAT + "{% if add_generation_prompt %}<think>\n{% endif %}"
CLOSES = CHAT + "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}"
MISTRAL = CHAT + "{# [THINK] #}"


def byte_tokenizer(template: str, *special: str) -> PreTrainedTokenizerFast:
    """All bytes, <eos>, and special pieces."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = token_decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")
    fast.add_tokens([AddedToken(one, special=True, normalized=False) for one in special])
    fast.chat_template = template
    return fast


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """By template, one agent with a model of 264 rows, of which a few have no token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    root = tmp_path_factory.mktemp("thoughts")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=264, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=256, eos_token_id=256, pad_token_id=256, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    rows = []
    for name, template, special in (
        ("opens", OPENS, ()), ("plain", CHAT, ()), ("closes", CLOSES, ()), ("mistral", MISTRAL, ("[THINK]", "[/THINK]"))
    ):  # fmt: skip
        model.save_pretrained(root / name)
        byte_tokenizer(template, *special).save_pretrained(root / name)
        rows.append({"name": name, "model": str(root / name)})
    rollout = {"max_prompt_length": 64, "max_completion_length": 100}
    spec = make_spec(root, rows, rollout=rollout)
    return {agent.name: LocalAgent(agent, spec, CPU, None) for agent in spec.agents}


def response_of(agent: LocalAgent, text: str, question: str = "1+1", *, finished: bool = True) -> Response:
    ids = agent.policy.encode_response(text) + [agent.policy.turn_eos] * finished
    row = Sample(ids, [-1.0] * len(ids), finished, 0.0)
    return agent._response(row, len(ids), -1.0, agent.policy.opening(question))


def taught(learner: LocalAgent, response: Response, **settings: object) -> tuple[str, str] | str:
    """What the learner reads and what it trains on, as text; or why it gets nothing."""
    sharing = learner.spec.sharing.model_copy(update=settings)
    tokens = retokenize(learner.policy, response, sharing, 100, learner.policy.opening("1+1"))
    if isinstance(tokens, str):
        return tokens
    mask = tokens.train_mask or [True] * len(tokens.token_ids)
    parts = [[token for token, is_own in zip(tokens.token_ids, mask, strict=True) if is_own == own] for own in (0, 1)]
    return tuple(learner.policy.decode(part, literal=True) for part in parts)


THOUGHT, ANSWER = "I add.\n</think>\n\n", "It is 4."
WITHOUT = "\n</think>\n\n"


@pytest.mark.parametrize(
    ("source", "text", "learner", "expected"),
    [
        # source's template opens the thought: its peer reads the mark and trains on what was sampled
        ("opens", THOUGHT + ANSWER, "plain", ("<think>\n", THOUGHT + ANSWER + "<eos>")),
        ("opens", THOUGHT + ANSWER, "closes", ("<think>\n", THOUGHT + ANSWER + "<eos>")),
        ("opens", THOUGHT + ANSWER, "opens", ("", THOUGHT + ANSWER + "<eos>")),
        ("opens", THOUGHT + ANSWER, "mistral", ("[THINK]\n", "I add.\n[/THINK]\n\n" + ANSWER + "<eos>")),
        # the learner's opens it: what the source wrote itself is not repeated, and no answer stands within a thought
        ("plain", "<think>\n" + THOUGHT + ANSWER, "opens", ("", THOUGHT + ANSWER + "<eos>")),
        ("plain", ANSWER, "opens", (WITHOUT, ANSWER + "<eos>")),
        ("closes", ANSWER, "opens", (WITHOUT, ANSWER + "<eos>")),
        ("mistral", "<think>a</think>b", "opens", ("", "a</think>b<eos>")),
        # neither: as it is; an end without a beginning gets one
        ("plain", "<think>a</think>b", "closes", ("", "<think>a</think>b<eos>")),
        ("plain", "<think>a</think>b", "mistral", ("", "[THINK]a[/THINK]b<eos>")),
        ("plain", "a</think>b", "plain", ("<think>\n", "a</think>b<eos>")),
    ],
)
def test_peer_never_learns_the_end_of_a_thought_without_its_beginning(agents, source, text, learner, expected):
    assert taught(agents[learner], response_of(agents[source], text)) == expected


@pytest.mark.parametrize(
    ("text", "finished", "learner", "kept", "left_out"),
    [
        ("I add", False, "plain", ("<think>\n", "I add"), "unfinished thought"),
        ("I add", True, "plain", ("<think>\n", "I add<eos>"), "unfinished thought"),
        ("I add", False, "opens", ("", "I add"), ("", "I add")),
        (THOUGHT + ANSWER, True, "plain", ("<think>\n", THOUGHT + ANSWER + "<eos>"), ("", ANSWER + "<eos>")),
        (THOUGHT, True, "plain", ("<think>\n", THOUGHT + "<eos>"), "unfinished thought"),
    ],
)
def test_thoughts_of_peers_are_kept_or_left_out_as_the_setting_says(agents, text, finished, learner, kept, left_out):
    response = response_of(agents["opens"], text, finished=finished)
    assert taught(agents[learner], response) == kept
    assert taught(agents[learner], response, peer_thoughts="leave_out") == left_out


def test_opening_that_a_peer_is_given_takes_the_room_that_its_prompt_leaves(agents):
    """A rollout at its limit is not dropped for 8 tokens that its source had in the prompt."""
    learner, response = agents["plain"], response_of(agents["opens"], "x" * 100, finished=False)
    sharing = learner.spec.sharing.model_copy(update={"overflow": "drop"})
    tokens = [retokenize(learner.policy, response, sharing, 100, "", spare) for spare in (7, 8, 50)]
    assert tokens[0] == "overflow"
    assert [(len(one.token_ids), sum(one.train_mask)) for one in tokens[1:]] == [(108, 100)] * 2


def test_verifier_format_rewards_and_evaluation_read_the_thought_whoever_opened_it(agents):
    inner = "a</think><answer>4</answer>"
    opened, written = response_of(agents["opens"], inner), response_of(agents["plain"], "<think>" + inner)
    special = response_of(agents["mistral"], "<think>" + inner)
    for response in (opened, written, special):
        assert tags_reward(response.text, ("think", "answer")) == tags_reward(f"<think>{inner}", ("think", "answer"))
        assert after_thoughts(response.text) == "<answer>4</answer>"
    assert (opened.text, opened.opening, special.text) == ("<think>\n" + inner, "<think>\n", "<think>" + inner)
    assert after_thoughts(response_of(agents["opens"], "so 4", finished=False).text) == ""
    assert response_of(agents["closes"], ANSWER).text == ANSWER
    row = Sample(agents["opens"].policy.encode_response("so 4"), [-1.0] * 4, False, 0.0)
    assert agents["opens"]._text(row, agents["opens"].policy.opening("1+1")) == "<think>\nso 4"


def test_stop_string_is_looked_for_in_what_was_sampled(agents):
    agent = agents["opens"]
    spec = agent.spec
    agent.spec = spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"stop": ("\n",)})})
    try:
        ids = agent.policy.encode_response("4\n")
        assert agent._text(Sample(ids, [-1.0] * 2, True, 0.0, has_stop=True), "<think>\n") == "<think>\n4"
    finally:
        agent.spec = spec


def test_each_turn_carries_its_own_opening(agents):
    turns = (Turn("assistant", "<think>\na</think>b", True, opening="<think>\n"), Turn("user", "7"))
    turns += (Turn("assistant", "<think>\nc</think>d", True, opening="<think>\n"),)
    response = Response("", "", "stop", 9, 9, -1.0, turns=turns)
    assert taught(agents["plain"], response) == ("<think>\n)(7)<think>\n", "a</think>b<eos>c</think>d<eos>")
    assert taught(agents["opens"], response) == (")(7)<think>\n", "a</think>b<eos>c</think>d<eos>")
    assert agents["opens"].policy.opening_after("user") == "<think>\n"


def test_other_families_marks_are_read_as_thoughts():
    harmony = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>")
    tokenizer = byte_tokenizer(CHAT + "{# <|channel|>analysis<|message|> #}", *harmony)
    sampled = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>4"
    ids = tokenizer(sampled, add_special_tokens=False).input_ids
    assert thought_marks(tokenizer).decode(ids) == "<think>a</think>4"
    assert text_difference(tokenizer, ids) == ""
    exaone = byte_tokenizer(CHAT + "<thought>\n")
    marks = thought_marks(exaone)
    assert marks.decode(exaone("<thought>a</thought>4").input_ids) == "<think>a</think>4"
    assert marks.runs("<think>a</think>4") == ["<thought>a</thought>4"]
    assert marks.opened_at_end("(1)<thought>\n") == "<think>\n"


# Text is not ids


@pytest.mark.parametrize(
    ("text", "extra", "cause", "shared"),
    [
        ("4é", [], "", "4é"),
        ("4é".encode()[:-1], [], "characters", "4"),  # cut within é
        (b"ab\xffcd", [], "characters", "ab"),
        ("a\ufffdb", [], "", "a\ufffdb"),  # the character itself was sampled
        ("4", [256], "special", "4"),  # an EOS in the middle has no text
        ("日本", [], "", "日本"),
    ],
)
def test_text_that_is_not_what_was_sampled_is_counted_and_taught_up_to_the_last_whole_character(
    agents, text, extra, cause, shared
):
    source = agents["plain"]
    vocabulary = source.policy.tokenizer.get_vocab()
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if isinstance(text, str):
        ids = source.policy.encode_response(text)
    else:
        byte = {letters.pre_tokenize_str(chr(one))[0][0]: one for one in range(128)}
        names = {value: letter for letter, value in byte.items()}
        whole = letters.pre_tokenize_str("é")[0][0]
        names |= {0xC3: whole[0], 0xFF: "ÿ"}
        ids = [vocabulary[names[one]] for one in text]
    ids = [*ids, *extra]
    row = Sample([*ids, 256], [-1.0] * (len(ids) + 1), True, 0.0)
    response = source._response(row, len(ids), -1.0, "")
    assert (response.difference, response.shared_text) == (cause, shared)
    # Behind a part of an answer no peer learns to end.
    assert taught(agents["closes"], response) == ("", shared + ("" if cause == "characters" else "<eos>"))


def test_ids_beyond_the_tokenizer_are_never_sampled(agents):
    from workers.rollouts.sampler import SampleRequest

    agent = agents["plain"]  # 257 tokens, 264 rows
    assert agent.policy.textless == (257, 258, 259, 260, 261, 262, 263)
    import torch

    with torch.no_grad():
        head = agent.policy.model.lm_head.weight
        before = head.clone()
        head[257:] *= 300  # they would be sampled nearly always, or by the greedy choice
    try:
        for way in ("growing", "static"):
            agent.engine.way = way
            for temperature in (0.0, 1.0):
                request = SampleRequest([[1, 2], [3]], [0, 0, 1, 1], [1, 2, 3, 4], temperature, 20, 4, top_p=0.9)
                rows = agent.engine.sample(request)
                assert all(token < 257 for row in rows for token in row.token_ids)
                assert min(logp for row in rows for logp in row.logps) < -1  # of the whole distribution, as in training
    finally:
        agent.engine.way = "auto"
        with torch.no_grad():
            head.copy_(before)
