"""The messages between the trainer and its agents: text, advantages and one mean log-probability per rollout.

They hold no token ids and no tensors, so an agent may be in another process, on other devices, with another tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from workers.contract.events import TextDifference
from workers.contract.spec.environments import Turn

UNREADABLE = -1  # as a number of tokens: an agent cannot read the question


@dataclass(frozen=True)
class Response:
    """One sampled rollout. `shared_text` is what other agents re-tokenise: `text` with its stop string, unless eos is
    literal. Without has_eos they put no EOS after it.

    num_tokens counts all sampled tokens; `length` those in mean_logp (without the EOS if it is stripped).  turns: of a
    rollout with an environment, whose `text` is the last one's; num_tokens and length are of the agent's own tokens.
    reward: the environment's; None: the verifier decides.  opening: the beginning of text and shared_text that was not
    sampled: the prompt holds it, for the chat template opened a thought.  difference: why the text is not what was
    sampled, if it is not; peers get it up to the last whole character.
    """

    text: str
    shared_text: str
    finish_reason: Literal["stop", "length"]
    num_tokens: int
    length: int
    mean_logp: float
    has_eos: bool = True  # if the reason is stop
    turns: tuple[Turn, ...] = ()
    reward: float | None = None
    opening: str = ""
    difference: TextDifference = ""


@dataclass(frozen=True)
class FinalAnswer:
    """An answer in an evaluation: what the verifier reads, and the environment's reward if it gives one."""

    text: str
    reward: float | None = None


class RolloutsMissing(RuntimeError):
    """An agent could not deliver its rollouts of a step; the text gives the reason."""


class AgentLost(RuntimeError):
    """The process or machine of an agent is gone, with everything since the last checkpoint."""


@dataclass(frozen=True)
class GeneratedRollouts:
    """An agent's rollouts of a step: responses[prompt][sample], and (sum, count) of the sampled tokens' entropy.

    is_missing: there are none, and each responses[prompt] is empty.  notes: for the log.  staleness: by how many steps
    the weights that sampled are older than the learner's, if the run allows any.
    """

    responses: list[list[Response]]
    entropy: tuple[float, float]
    is_missing: bool = False
    notes: tuple[str, ...] = ()
    staleness: int | None = None


@dataclass(frozen=True)
class LearnerRow:
    """One rollout in one learner's mini-batch. Own rollouts have omega 1 and no response: the agent has their ids."""

    prompt: int
    source: int
    sample: int
    is_self: bool
    advantage: float
    omega: float
    response: Response | None = None


@dataclass(slots=True)
class RowResult:
    """A row's effect on an update. Ratios are None if it was not evaluated: advantage 0, or dropped."""

    num_tokens: int = 0
    sequence_ratio: float | None = None
    clipped_ratio: float | None = None
    clip_side: int = 0
    gradient_flows: bool = False
    weight: float = 0.0
    drop_reason: str | None = None
    # Shares of the row's tokens whose gradient the clip removed; 0 or 1 if a row has one ratio.
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    importance: float | None = None  # the factor of its loss; None for 1


@dataclass
class UpdateReport:
    """A learner's updates of a step: results[m][row], and numbers over its updates.

    alignment: by source, the cosine of its gradient with the learner's own; None if either is 0, empty if it was
    not measured.  engine_logp_difference: see rollouts/engine.py; None if the trainer itself samples.
    largest_logp_difference: of a token, on that response and on the step's own rollouts.
    importance_weights: of own rollouts.  notes: for the log.
    """

    results: list[list[RowResult]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    kl: tuple[float, float] = (0.0, 0.0)
    learning_rate: float = 0.0
    skipped_updates: int = 0
    failures_in_a_row: int = 0
    rolled_back: bool = False
    sampling_logp_differences: list[float] = field(default_factory=list)
    importance_weights: list[float] = field(default_factory=list)
    engine_logp_difference: float | None = None
    largest_logp_difference: float | None = None
    alignment: dict[int, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
