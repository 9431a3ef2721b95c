"""What stands between an agent's turns in the chat templates of real families."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from tests.support.marks import in_full
from tests.support.workers.real_tokenizers import real_tokenizer
from tests.support.workers.tiny import character_tokenizer
from workers.contract.spec.agent import AgentSpec
from workers.model.prompts import turn_marks

QWEN = ("<|im_end|>\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
SMOLLM = ("<|im_end|>\n<|im_start|>tool\n", "<|im_end|>\n<|im_start|>assistant\n")
LLAMA = (
    "<|eot_id|><|start_header_id|>tool<|end_header_id|>\n\n",
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
)


@pytest.mark.parametrize(("name", "texts"), [("qwen3", QWEN), ("llama", LLAMA), *in_full(("smollm2", SMOLLM))])
def test_answer_stands_in_the_familys_own_turn_of_a_tool(name, texts):
    folder = real_tokenizer(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    marks = turn_marks(tokenizer, AgentSpec(name="A", model=str(folder)), "tool")
    assert (tokenizer.decode(marks.before), tokenizer.decode(marks.after)) == texts
    eos = tokenizer.eos_token_id
    assert marks.before[0] == eos
    # A turn that ended with its EOS has it already.
    assert marks.around([1, 2], [eos], has_eos=True) == [*marks.before[1:], 1, 2, *marks.after]
    assert marks.around([1, 2], [eos], has_eos=False) == [*marks.before, 1, 2, *marks.after]


def test_template_without_tools_gets_the_users_turn_and_one_without_later_turns_is_refused():
    tokenizer = character_tokenizer()
    agent = AgentSpec(name="A", model="-")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('none') }}{% endif %}"
        "{{ '1' if m.role == 'user' else '2' }}{{ m.content }}<eos>{% endfor %}2"
    )
    marks = turn_marks(tokenizer, agent, "tool")
    assert tokenizer.convert_ids_to_tokens(marks.before) == ["<eos>", "1"]
    assert tokenizer.convert_ids_to_tokens(marks.after) == ["<eos>", "2"]
    tokenizer.chat_template = "{{ messages[0].content }}2{{ messages[1].content if messages | length == 2 }}"
    with pytest.raises(ValueError, match="chat template of agent 'A' writes no turn after an answer"):
        turn_marks(tokenizer, agent, "tool")
