"""Environments of the installed verifiers package itself: its single- and multi-turn classes, and its tools."""

from __future__ import annotations

import json
import sys

import pytest

from workers.environments.base import EnvironmentFailed
from workers.environments.verifiers import VerifiersEnvironment, main
from workers.questions.dataset import Question

pytest.importorskip("verifiers", reason="verifiers 0.1.14 is not installed")
pytestmark = pytest.mark.slow  # loading the package takes seconds

MODULE = '''
import verifiers as vf
from datasets import Dataset

ROWS = [{"question": "2*21", "answer": "42", "info": {"unit": "m"}}]


def text_of(completion):
    last = completion[-1]
    return str(last["content"] if isinstance(last, dict) else last.content)


async def is_right(completion, answer):
    return float(answer in text_of(completion))


def raising(completion, answer):
    raise ZeroDivisionError("of " + answer)


def double(x: int) -> str:
    """Twice a number."""
    return str(2 * int(x))


class Guess(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "no, try again"}]


def load_environment(kind="single"):
    rubric = vf.Rubric(funcs=[raising if kind == "raising" else is_right])
    data = Dataset.from_list(ROWS)
    if kind == "tool":
        return vf.ToolEnv(tools=[double], max_turns=3, dataset=data, rubric=rubric, system_prompt="Use the tool.")
    if kind == "multi":
        return Guess(max_turns=2, dataset=data, rubric=rubric)
    return vf.SingleTurnEnv(dataset=data, rubric=rubric)
'''
QUESTION = Question("q", "2*21", "42")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    def opened(kind: str) -> VerifiersEnvironment:
        name = f"hacrl_test_{kind}"
        (tmp_path / f"{name}.py").write_text(MODULE.replace('kind="single"', f'kind="{kind}"'))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return VerifiersEnvironment(name)

    monkeypatch.syspath_prepend(str(tmp_path))
    return opened


def test_single_turn_is_complete_and_rewarded_by_the_rubric(opened):
    environment = opened("single")
    episodes = [environment.reset(QUESTION) for _ in range(2)]
    assert environment.step_all([(episodes[0], "It is 42"), (episodes[1], "It is 41")]) == [None, None]
    assert environment.rewards(episodes) == [1.0, 0.0]


def test_second_turn_follows_the_answer_of_the_environment(opened):
    environment = opened("multi")
    episode = environment.reset(QUESTION)
    [observation] = environment.step_all([(episode, "It is 41")])
    assert (observation.text, observation.role) == ("no, try again", "user")
    assert environment.step_all([(episode, "It is 42")]) == [None]
    assert environment.rewards([episode]) == [1.0]


def test_call_of_a_tool_is_answered(opened):
    environment = opened("tool")
    assert environment.stop == ("</tool_call>",)
    assert "Use the tool." in environment.instructions
    assert '"double"' in environment.instructions
    episode = environment.reset(QUESTION)
    call = '<tool_call>{"name": "double", "arguments": {"x": 21}}</tool_call>'
    [observation] = environment.step_all([(episode, call)])
    assert (observation.text, observation.role) == ("42", "tool")
    assert environment.step_all([(episode, "It is 42")]) == [None]
    assert environment.rewards([episode]) == [1.0]


def test_reward_that_raises_is_named(opened):
    environment = opened("raising")
    episode = environment.reset(QUESTION)
    environment.step_all([(episode, "It is 42")])
    with pytest.raises(EnvironmentFailed, match="reward raising raised ZeroDivisionError: of 42"):
        environment.rewards([episode])


def test_its_data_set_becomes_a_file_of_questions(opened, tmp_path):
    opened("single")
    assert main(["hacrl_test_single", str(tmp_path / "out.jsonl")]) == 0
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"question": "2*21", "answer": "42"}
