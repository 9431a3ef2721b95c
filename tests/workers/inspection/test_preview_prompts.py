"""The preview shows the ids that the trainer encodes, of tiny models and of real tokenizers; lengths are theirs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS
from tests.support.workers.real_tokenizers import real_tokenizer
from tests.support.workers.tiny import make_agent, make_pair, make_spec
from workers.inspection import preview_prompts

QUESTION = "Ana hat 3 Äpfel 🍎 und kauft \\frac{1}{2} Dutzend: 日本?"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"


def preview(monkeypatch, capsys, agents: list[dict], question="1+1=", template="{question}", system="") -> list[dict]:
    request = {"question": question, "template": template, "system": system, "agents": agents}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    assert preview_prompts.main() == 0
    return json.loads(capsys.readouterr().out)["agents"]


def child(request: dict) -> dict:
    """What the child itself prints, which has no torch: no fork, where it is loaded."""
    command = [sys.executable, "-m", "workers.inspection.preview_prompts"]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def with_template(folder: Path, template: str | None) -> dict:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return {"name": folder.name, "model": str(folder)}


def test_ids_are_those_of_the_trainers_agents(tmp_path):
    import torch

    from workers.agents.local import LocalAgent
    from workers.questions.dataset import Question

    pair = make_pair(tmp_path)
    with_template(tmp_path / "qwen", "{% for m in messages %}({{ m['content'] }}){% endfor %}")
    agents = [{**pair[0], "prompt_template": "({question}"}, {**pair[1], "prompt_format": "plain"}]
    spec = make_spec(tmp_path, agents)
    question = Question("q", "12+1=", "", template="3{question}", system="4")
    expected = [LocalAgent(agent, spec, torch.device("cpu"), None)._encode(question) for agent in spec.agents]
    request = {"question": "12+1=", "template": "3{question}", "system": "4", "agents": agents}
    replies = child(request)["agents"]
    assert [reply["token_ids"] for reply in replies] == [list(ids) for ids in expected]
    assert replies[0]["text"] == "(4)((312+1=)"
    assert replies[1]["notes"] == [preview_prompts.NO_TEMPLATE]


def test_a_template_without_system_messages_is_named_and_one_that_raises_hides_no_other_agent(
    tmp_path, monkeypatch, capsys
):
    refuses = with_template(make_agent(tmp_path / "refuses", "llama"), NO_SYSTEM + "({{ messages[-1]['content'] }})")
    broken = with_template(make_agent(tmp_path / "broken", "llama"), "{{ raise_exception('no users') }}")
    gone = {"name": "gone", "model": str(tmp_path / "no such folder")}
    plain = with_template(make_agent(tmp_path / "plain", "qwen3"), None) | {"prompt_format": "chat"}
    replies = preview(monkeypatch, capsys, [broken, gone, plain, refuses], system="3*4")
    assert "no users" in replies[0]["error"]
    assert "no such folder" in replies[1]["error"]
    assert "has prompt_format chat, but the tokenizer" in replies[2]["error"]
    assert replies[3]["notes"] == [preview_prompts.NO_SYSTEM]
    assert [piece["text"] for piece in replies[3]["pieces"]][:4] == ["(", "3", "*", "4"]


def test_thinking_reaches_a_template_that_knows_it_and_no_other(tmp_path, monkeypatch, capsys):
    switch = "{% if enable_thinking is defined %}{{ '1' if enable_thinking else '0' }}{% endif %}"
    knows = "{{ messages[0]['content'] }}" + switch
    agent = with_template(make_agent(tmp_path / "knows", "qwen3"), knows)
    other = with_template(make_agent(tmp_path / "other", "qwen3"), "{{ messages[0]['content'] }}")
    agents = [{**agent, "thinking": thinking} for thinking in ("auto", "on", "off")] + [{**other, "thinking": "on"}]
    replies = preview(monkeypatch, capsys, agents, question="7=")
    assert [reply.get("text") for reply in replies] == ["7=", "7=1", "7=0", None]
    assert "has no enable_thinking: choose auto" in replies[3]["error"]


FAMILIES = [
    pytest.param("qwen3", {"thinking": "off"}, {"enable_thinking": False}, id="qwen3 thinking off"),
    pytest.param("qwen3", {"thinking": "on"}, {"enable_thinking": True}, id="qwen3 thinking on"),
    pytest.param("qwen3", {}, {}, id="qwen3"),
    pytest.param("llama", {}, {}, id="llama 3.1"),
    pytest.param("smollm2", {}, {}, id="smollm2", marks=pytest.mark.full),
]


@pytest.mark.slow  # real tokenizers have 150,000 pieces, and the first run fetches them
@pytest.mark.parametrize(("family", "settings", "arguments"), FAMILIES)
@pytest.mark.parametrize("ready", READY_PROMPTS, ids=lambda ready: ready.key)
def test_every_ready_prompt_is_previewed_token_by_token(monkeypatch, capsys, family, settings, arguments, ready):
    folder = real_tokenizer(family)
    agent = {"name": "A", "model": str(folder), **settings}
    texts = {"question": QUESTION, "template": ready.prompt_template, "system": ready.system_prompt}
    [reply] = preview(monkeypatch, capsys, [agent], **texts)
    tokenizer = preview_prompts._tokenizer(str(folder))
    user = ready.prompt_template.replace("{question}", QUESTION)
    messages = [{"role": "system", "content": ready.system_prompt}] if ready.system_prompt else []
    messages.append({"role": "user", "content": user})
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False, **arguments)
    assert reply["token_ids"] == list(expected)
    assert "".join(piece["text"] for piece in reply["pieces"]) == reply["text"]
    assert QUESTION in reply["text"]
    ends = {"llama": "<|eot_id|>"}.get(family, "<|im_end|>")
    assert {"text": ends, "is_special": True} in reply["pieces"]
    assert ("<think>\n\n</think>" in reply["text"]) == (settings.get("thinking") == "off")


def lengths(agents: list[dict], **changes) -> dict:
    request = {"questions": ["1+1=", "12+10=", "3="], "template": "{question}", "system": "", "agents": agents}
    return child(request | {"limit": 4, "enough": 2} | changes)


def test_lengths_are_tokens_of_each_agent_until_enough_questions_are_short(tmp_path):
    # Qwen's tokenizer has characters alone, Llama's has a piece "10" too: "12+10=" is 6 or 5 tokens.
    pair = make_pair(tmp_path)
    assert lengths(pair) == {"agents": ["Qwen", "Llama"], "lengths": [[4, 4], [6, 5], [2, 2]]}
    assert lengths(pair, enough=1)["lengths"] == [[4, 4]]
    gone = lengths([*pair, {"name": "gone", "model": str(tmp_path / "none")}])
    assert "lengths" not in gone
    assert gone["error"]
