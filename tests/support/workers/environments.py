"""Environments for tests: one that answers, one that never does, and a pair of tiny agents that talk to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.workers.tiny import make_agent
from workers.environments.base import Environment, Episode, Observation
from workers.questions.dataset import Question

CHAT = (
    "{% for m in messages %}{{ m.role[0] }}{{ m.content }}<eos>{% endfor %}{% if add_generation_prompt %}a{% endif %}"
)
CALL = "<calculator>7</calculator>"
PIECES = ("a", "s", "t", "u")  # the letters of the roles


class _EchoEpisode(Episode):
    def __init__(self) -> None:
        self.turns: list[str] = []

    async def step(self, text: str) -> Observation | None:
        self.turns.append(text)
        if text.endswith("="):
            return Observation("7", is_failed="1" in text)
        return Observation("12345", role="user") if text.endswith("+") else None


class Echo(Environment):
    """It answers `7` to a turn that ends with `=` (failed if it has a 1), and as the user to one that ends with `+`."""

    stop = ("=", "+")

    def reset(self, question: Question) -> Episode:
        return _EchoEpisode()


class SilentEpisode(Episode):
    """No answer."""

    async def step(self, text: str) -> Observation | None:
        return None


class Silent(Environment):
    """It answers nothing."""

    instructions = "1+1"

    def reset(self, question: Question) -> Episode:
        return SilentEpisode()


class Paying(Echo):
    """Echo with a reward of its own: 0.5 for every rollout."""

    def reset(self, question: Question) -> Episode:
        class Paid(_EchoEpisode):
            async def reward(self) -> float | None:
                return 0.5

        return Paid()


def make_talkers(root: Path, *, chat: bool = True) -> list[dict[str, Any]]:
    """Two agents of different tokenizers; with a chat template, in which every turn ends with <eos>."""
    agents = []
    for name, kind, pieces in (("Qwen", "qwen3", ()), ("Llama", "llama", ("12", "45"))):
        folder = make_agent(root / name, kind, seed=len(name), extra_pieces=(*PIECES, *pieces))
        if chat:
            (folder / "chat_template.jinja").write_text(CHAT)
        agents.append({"name": name, "model": str(folder)})
    return agents


def make_callers(root: Path) -> list[dict[str, Any]]:
    """Two agents, one of whose tokens is a call of the calculator, so that random models call it now and then."""
    agents = []
    for name, kind in (("Qwen", "qwen3"), ("Llama", "llama")):
        # head_dim 32: the smallest that vLLM knows on a CPU.
        folder = make_agent(root / name, kind, seed=len(name), extra_pieces=(CALL, *PIECES), head_dim=32)
        (folder / "chat_template.jinja").write_text(CHAT)
        agents.append({"name": name, "model": str(folder)})
    return agents
