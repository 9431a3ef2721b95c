"""Environments of the verifiers package, against a stand-in with the documented classes of version 0.1."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable, signature
from types import ModuleType
from typing import Any

import pytest

from workers.contract.spec.rollout import RolloutSpec
from workers.environments.base import EnvironmentFailed
from workers.environments.registry import open_environment
from workers.environments.verifiers import VerifiersEnvironment, main
from workers.questions.dataset import Question


@dataclass
class Message:
    role: str
    content: str
    tool_calls: Any = None
    tool_call_id: str = ""


@dataclass
class ToolCall:
    id: str
    name: str
    arguments: str


class StandIn:
    """A multi-turn environment with one tool, `double`; a final turn is one without a call. Pays 1 for the answer."""

    system_prompt = "Use the tool."
    tool_defs = ({"name": "double", "parameters": {"x": "integer"}},)
    max_turns = 4

    def __init__(self, reward: float = 1.0) -> None:
        self.rubric, self._reward = self, reward

    def get_dataset(self) -> list[dict[str, Any]]:
        prompt = [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "2*21"}]
        return [{"prompt": prompt, "answer": "42", "task": "double", "info": {"unit": "m"}, "example_id": 7}]

    async def init_state(self, row: dict[str, Any], client: Any, model: str, sampling_args: Any) -> dict[str, Any]:
        assert isinstance(client, OpenAIChatCompletionsClient)
        return {**row, "trajectory": [], "trajectory_id": "t", "completion": None, "reward": None}

    async def setup_state(self, state: dict[str, Any]) -> None:
        state["unit"] = state["info"].get("unit", "")

    async def add_trajectory_step(self, state: dict[str, Any], step: dict[str, Any]) -> None:
        state["trajectory"].append(step)

    async def is_completed(self, state: dict[str, Any]) -> bool:
        return not state["trajectory"][-1]["completion"][-1].tool_calls or len(state["trajectory"]) >= self.max_turns

    async def env_response(self, messages: list[Any], state: dict[str, Any]) -> list[Message]:
        answers = []
        for call in messages[-1].tool_calls:
            value = 2 * json.loads(call.arguments)["x"]
            answers.append(Message("tool", f"{value} {state['unit']}".strip(), tool_call_id=call.id))
        return answers

    async def get_prompt_messages(self, state: dict[str, Any]) -> list[Any]:
        last = state["trajectory"][-1]
        messages = [*last["prompt"], *last["completion"]]
        return [*messages, *await self.env_response(messages, state)]

    async def render_completion(self, state: dict[str, Any]) -> None:
        last = state["trajectory"][-1]
        state["completion"] = [*last["prompt"], *last["completion"]][len(state["prompt"]) :]

    async def score_rollout(self, state: dict[str, Any]) -> None:
        state["reward"] = self._reward * (state["answer"] in state["completion"][-1].content)

    async def cleanup(self, state: dict[str, Any]) -> None: ...


class OpenAIChatCompletionsClient:
    def __init__(self, client: Any) -> None: ...


@pytest.fixture
def package(monkeypatch) -> ModuleType:
    module = ModuleType("verifiers")
    module.load_environment = lambda name: {"doubling": StandIn, "generous": lambda: StandIn(1.5)}[name]()
    module.AssistantMessage = lambda content, tool_calls=None: Message("assistant", content, tool_calls)
    module.ToolCall, module.OpenAIChatCompletionsClient = ToolCall, OpenAIChatCompletionsClient
    monkeypatch.setitem(sys.modules, "verifiers", module)
    return module


QUESTION = Question("q", "2*21", "42")
CALL = '<tool_call>{"name": "double", "arguments": {"x": 21}}</tool_call>'


def test_turns_are_answered_and_the_environment_gives_the_reward(package):
    environment = open_environment(RolloutSpec(environment="verifiers", verifiers_environment="doubling"))
    assert environment.stop == ("</tool_call>",)
    assert environment.instructions.startswith("Use the tool.\n\nYou can call these tools.")
    assert '"double"' in environment.instructions
    episode, other = environment.reset(QUESTION), environment.reset(QUESTION)
    first, ending = environment.step_all([(episode, "I double. " + CALL), (other, "It is 41")])
    assert (first.text, first.role) == ("42 m", "tool")  # "m" is of the info in the environment's own row
    assert ending is None
    assert environment.step_all([(episode, "It is 42")]) == [None]
    assert environment.rewards([episode, other]) == [1.0, 0.0]


def test_question_outside_the_data_set_has_its_text_and_answer_alone(package):
    environment = VerifiersEnvironment("doubling")
    episode = environment.reset(Question("p", "2*5", "10"))
    [answer] = environment.step_all([(episode, '<tool_call>{"name": "double", "arguments": {"x": 5}}</tool_call>')])
    assert answer.text == "10"


@pytest.mark.parametrize("call", ["not JSON", "[]", "3", '{"arguments": {}}', "[" * 5000])
def test_call_that_cannot_be_read_is_no_call(package, call):
    environment = VerifiersEnvironment("doubling")
    assert environment.step_all([(environment.reset(QUESTION), f"<tool_call>{call}</tool_call>")]) == [None]


def test_reward_above_one_and_what_the_environment_raises_end_the_rollouts_with_a_reason(package):
    generous = VerifiersEnvironment("generous")
    episode = generous.reset(QUESTION)
    generous.step_all([(episode, "42")])
    with pytest.raises(EnvironmentFailed, match=r"reward is 1.5: it must be from 0 to 1"):
        generous.rewards([episode])
    with pytest.raises(EnvironmentFailed, match="raised KeyError"):
        generous.step_all(
            [(generous.reset(QUESTION), '<tool_call>{"name": "double", "arguments": {"y": 1}}</tool_call>')]
        )


class Rubric:
    """As the package's: what a function raises is logged, and the reward is 0."""

    def __init__(self, *funcs: Any, weights: tuple[float, ...] = (1.0, 0.0), rubrics: tuple[Any, ...] = ()) -> None:
        self.funcs, self.weights, self.rubrics = [*funcs], [*weights][: len(funcs)], rubrics

    async def score_rollout(self, state: dict[str, Any]) -> None:
        state["reward"] = 0.0
        for rubric in (self, *self.rubrics):
            for function, weight in zip(rubric.funcs, rubric.weights, strict=True):
                fields = {name: state[name] for name in signature(function).parameters}
                with suppress(Exception):
                    result = function(**fields)
                    state["reward"] += weight * (await result if isawaitable(result) else result)


def half(answer):
    return 0.5


async def raising(answer):
    raise ZeroDivisionError(f"of {answer}")


def raising_at_once(answer):
    raise KeyError(answer)


@pytest.mark.parametrize(
    ("rubric", "reason"),
    [
        (Rubric(half, raising), ""),  # a metric without a weight
        (Rubric(half, raising, weights=(0.5, 0.5)), "reward raising raised ZeroDivisionError: of 42"),
        (Rubric(raising_at_once), "reward raising_at_once raised KeyError: '42'"),
        (Rubric(rubrics=(Rubric(half), Rubric(raising))), "reward raising raised ZeroDivisionError: of 42"),
    ],
)
def test_reward_that_raises_is_not_the_reward_0_that_the_package_makes_of_it(package, rubric, reason):
    stand_in = StandIn()
    stand_in.rubric = rubric
    package.load_environment = lambda name: stand_in
    environment = VerifiersEnvironment("any")
    episode = environment.reset(QUESTION)
    environment.step_all([(episode, "It is 42")])
    if not reason:
        assert environment.rewards([episode]) == [0.5]
        return
    with pytest.raises(EnvironmentFailed, match=f"^the environment's {reason}$"):
        environment.rewards([episode])


def test_environment_that_rewards_groups_is_refused(package):
    stand_in = StandIn()
    stand_in.has_group_rewards = True
    package.load_environment = lambda name: stand_in
    with pytest.raises(EnvironmentFailed, match="'any' rewards groups of rollouts, and here each rollout has a reward"):
        VerifiersEnvironment("any")


def test_missing_package_version_or_environment_is_said(package, monkeypatch):
    with pytest.raises(EnvironmentFailed, match="cannot load 'other': KeyError"):
        VerifiersEnvironment("other")
    del package.load_environment
    with pytest.raises(EnvironmentFailed, match="no load_environment: install"):
        VerifiersEnvironment("doubling")
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(EnvironmentFailed, match="not installed here"):
        VerifiersEnvironment("doubling")


def test_data_set_becomes_a_file_of_questions(package, tmp_path, capsys):
    assert main(["doubling", str(tmp_path / "out.jsonl")]) == 0
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"question": "2*21", "answer": "42"}
    assert "1 questions" in capsys.readouterr().out
