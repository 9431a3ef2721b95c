"""The names of environments, which answer an agent's turns within a rollout; and turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EnvironmentName = Literal["none", "calculator", "verifiers"]
ENVIRONMENTS: dict[EnvironmentName, str] = {
    "none": "a rollout is one response",
    "calculator": "computes the arithmetic expression of a call",
    "verifiers": "an installed environment of the verifiers package, which also gives the reward",
}
PAYING: tuple[EnvironmentName, ...] = ("verifiers",)  # they give rewards
# Who wrote a turn: the agent, a tool that it called, or an environment that speaks as the user.
Role = Literal["assistant", "tool", "user"]


@dataclass(frozen=True)
class Turn:
    """A turn of a rollout as text. has_eos: the agent ended it with an EOS.  is_failed: a tool's answer is that it
    could not do what it was called for.  opening: the beginning of the text that is the chat template's, a thought.
    """

    role: Role
    text: str
    has_eos: bool = False
    is_failed: bool = False
    opening: str = ""
