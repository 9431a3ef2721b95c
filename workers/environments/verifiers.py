"""Environments of the `verifiers` package, by its documented classes of version 0.1 (`verifiers.load_environment`).

The environment answers turns and gives the reward; the agents sample the turns themselves. A question of the run that
is in the environment's data set gets the row it has there, with its info; any other only its text and answer.
`python -m workers.environments.verifiers NAME OUT.jsonl` writes that data set as a file of questions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import Any

from workers.environments.base import Environment, EnvironmentFailed, Episode, Observation, Result
from workers.questions.dataset import Question

OPENING, CLOSING = "<tool_call>", "</tool_call>"
INSTALL = "install it and the environment's package into the trainer's Python: pip install verifiers==0.1.14"
_CALL = re.compile(rf"{OPENING}(.*?)(?:{CLOSING}|$)", re.DOTALL)


class VerifiersEnvironment(Environment):
    """A single- or multi-turn environment, with tools or without."""

    def __init__(self, name: str) -> None:
        """Error: EnvironmentFailed, if the package or the environment is not installed."""
        try:
            self.package: Any = import_module("verifiers")
        except ImportError as error:
            raise EnvironmentFailed(f"the verifiers package is not installed here ({error}): {INSTALL}") from None
        if not hasattr(self.package, "load_environment"):
            raise EnvironmentFailed(f"this version of verifiers has no load_environment: {INSTALL}")
        try:
            self.environment = self.package.load_environment(name)
        except Exception as error:
            raise EnvironmentFailed(f"verifiers cannot load {name!r}: {type(error).__name__}: {error}") from error
        rubric = self.environment.rubric
        if getattr(rubric, "has_group_rewards", False):
            raise EnvironmentFailed(
                f"{name!r} rewards groups of rollouts, and here each rollout has a reward of its own: "
                "choose another environment"
            )
        self.failures: list[str] = []  # of functions that the rewards are made of
        _note_failures(rubric, self.failures)
        self._loop = asyncio.new_event_loop()  # one for all calls: environments keep connections
        self._rows: dict[str, Mapping[str, Any]] | None = None  # by question
        tools = [_plain(tool) for tool in getattr(self.environment, "tool_defs", None) or ()]
        self.stop = (CLOSING,) if tools else ()
        self.instructions = _instructions(getattr(self.environment, "system_prompt", None), tools)

    def reset(self, question: Question) -> Episode:
        return _VerifiersEpisode(self, self.row_of(question))

    def row_of(self, question: Question) -> dict[str, Any]:
        """What the environment knows of a question."""
        if self._rows is None:
            self._rows = {question_text(row["prompt"]): row for row in self.rows()}
        if row := self._rows.get(question.question):
            return {**row, "answer": question.answer}
        prompt = [{"role": "user", "content": question.question}]
        return {"prompt": prompt, "answer": question.answer, "info": {}, "example_id": 0}

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of the environment's data set; none if it has no training set."""
        try:
            yield from self.environment.get_dataset()
        except (AttributeError, ValueError, AssertionError):
            return

    def _run(self, work: Coroutine[Any, Any, list[Result]]) -> list[Result]:
        return self._loop.run_until_complete(work)


class _VerifiersEpisode(Episode):
    def __init__(self, wrapper: VerifiersEnvironment, row: dict[str, Any]) -> None:
        self._package, self._environment, self._row = wrapper.package, wrapper.environment, row
        self._failures = wrapper.failures
        self._state: Any = None
        self._messages: Sequence[Any] = ()  # of the conversation before the agent's next turn

    async def step(self, text: str) -> Observation | None:
        environment, state = self._environment, await self._begun()
        turn = _message(self._package, text, len(self._messages))
        step = dict.fromkeys(("response", "tokens", "reward", "advantage"))
        step |= {"prompt": self._messages, "completion": [turn], "trajectory_id": state.get("trajectory_id")}
        step |= {"is_truncated": False, "extras": {}}
        await environment.add_trajectory_step(state, step)
        if await environment.is_completed(state):
            return None
        num_before = len(self._messages) + 1
        self._messages = await environment.get_prompt_messages(state)
        if state.get("final_env_response") is not None:
            return None
        answers = self._messages[num_before:]
        is_tool = any(_part(answer, "role") == "tool" for answer in answers)
        content = "\n".join(content_text(_part(answer, "content")) for answer in answers)
        return Observation(content, "tool" if is_tool else "user")

    async def reward(self) -> float | None:
        state = await self._begun()
        await self._environment.render_completion(state)
        await self._environment.rubric.score_rollout(state)
        await self._environment.cleanup(state)
        if self._failures:
            raise EnvironmentFailed(self._failures[0])
        return float(state["reward"])

    async def _begun(self) -> Any:
        """The environment's state of this rollout."""
        if self._state is None:
            client = self._package.OpenAIChatCompletionsClient(None)  # never called: the agent samples
            self._state = await self._environment.init_state(self._row, client, "agent", {})
            changed = await self._environment.setup_state(self._state)  # changes it in place; older ones return it
            self._state = self._state if changed is None else changed
            self._messages = self._state["prompt"]
        return self._state


def _note_failures(rubric: Any, failures: list[str]) -> None:
    """Wrap a rubric's functions: the package turns what they raise into a reward of 0, which would be trained on."""
    for part in getattr(rubric, "rubrics", None) or ():
        _note_failures(part, failures)
    functions, weights = getattr(rubric, "funcs", None), getattr(rubric, "weights", None)
    if functions and weights:
        rubric.funcs = [
            _noted(function, failures) if weight else function
            for function, weight in zip(functions, weights, strict=True)
        ]


def _noted(function: Callable[..., Any], failures: list[str]) -> Callable[..., Any]:
    name = getattr(function, "__name__", repr(function))

    def note(error: Exception) -> None:
        failures.append(f"the environment's reward {name} raised {type(error).__name__}: {error}")

    async def awaited(result: Awaitable[Any]) -> Any:
        try:
            return await result
        except Exception as error:
            note(error)
            raise

    @wraps(function)
    def call(*arguments: Any, **fields: Any) -> Any:
        try:
            result = function(*arguments, **fields)
        except Exception as error:
            note(error)
            raise
        return awaited(result) if isawaitable(result) else result

    return call


def _message(package: Any, text: str, place: int) -> Any:
    """The agent's turn, its calls parsed. place: makes the calls' ids unique."""
    calls = []
    for number, call in enumerate(_CALL.findall(text)):
        try:
            values = json.loads(call)
            arguments = json.dumps(values.get("arguments") or {})
            calls.append(package.ToolCall(id=f"call-{place}-{number}", name=str(values["name"]), arguments=arguments))
        except (ValueError, KeyError, AttributeError, RecursionError):
            continue  # no call, as in the package's own parsers
    return package.AssistantMessage(content=text, tool_calls=calls or None)


def _part(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def content_text(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(_part(part, "text") or "") for part in content)


def question_text(prompt: Any) -> str:
    """The last message of the user in a row's prompt."""
    if isinstance(prompt, str):
        return prompt
    texts = [content_text(_part(message, "content")) for message in prompt if _part(message, "role") == "user"]
    return texts[-1] if texts else ""


def _plain(tool: Any) -> dict[str, Any]:
    return tool if isinstance(tool, dict) else tool.model_dump(exclude_none=True)


def _instructions(system_prompt: str | None, tools: Sequence[dict[str, Any]]) -> str:
    parts = [system_prompt or ""]
    if tools:
        call = f'{OPENING}{{"name": NAME, "arguments": {{...}}}}{CLOSING}'
        described = "\n".join(json.dumps(tool) for tool in tools)
        parts.append(f"You can call these tools. Write {call} and stop: you then read the result.\n{described}")
    return "\n\n".join(filter(None, parts))


def main(arguments: list[str] | None = None) -> int:
    """Write an environment's data set as a file of questions."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.environments.verifiers",
        description="Write the data set of an environment of the verifiers package as a file of questions.",
    )
    parser.add_argument("name", help="as verifiers.load_environment takes it")
    parser.add_argument("file", type=Path, metavar="OUT.jsonl")
    options = parser.parse_args(arguments)
    count = 0
    with open(options.file, "w", encoding="utf-8") as file:
        for row in VerifiersEnvironment(options.name).rows():
            question = {"question": question_text(row["prompt"]), "answer": str(row.get("answer") or "")}
            file.write(json.dumps(question) + "\n")
            count += 1
    print(f"{count} questions in {options.file}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
