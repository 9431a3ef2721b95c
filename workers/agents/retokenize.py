"""A shared rollout in its learner's tokens: text goes from agent to agent, turn by turn, and masks are made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.agents.messages import Response
from workers.algorithms.base.sharing import SharingSpec
from workers.model.policy import Policy


class ResponseTooLong(ValueError):
    """overflow: error, and a shared rollout does not fit."""


@dataclass(frozen=True)
class LearnerTokens:
    """The ids after the prompt. train_mask: by token, whether it trains; empty: all do."""

    token_ids: list[int]
    train_mask: Sequence[bool] = ()


def retokenize(policy: Policy, response: Response, sharing: SharingSpec, max_length: int) -> LearnerTokens | str:
    """A shared rollout in the learner's tokens, or the reason why it is dropped. Error: ResponseTooLong."""
    tokens = _turns_in_tokens(policy, response, sharing) if response.turns else _in_tokens(policy, response, sharing)
    if len(tokens.token_ids) > max_length:
        if sharing.overflow == "error":
            raise ResponseTooLong(
                f"a shared rollout has {len(tokens.token_ids)} tokens for agent {policy.agent.name}, more than "
                f"max_completion_length {max_length}: raise it, or set algorithm.overflow to drop"
            )
        if sharing.overflow == "drop":
            return "overflow"
        tokens = LearnerTokens(tokens.token_ids[:max_length], tokens.train_mask[:max_length])
    has_own = any(tokens.train_mask) if tokens.train_mask else bool(tokens.token_ids)
    return tokens if has_own else "empty"


def _in_tokens(policy: Policy, response: Response, sharing: SharingSpec) -> LearnerTokens:
    ids = policy.encode_response(response.shared_text, literal=sharing.eos == "literal")
    if sharing.eos == "map" and response.finish_reason == "stop" and response.has_eos:
        ids.append(policy.turn_eos)
    return LearnerTokens(ids)


def _turns_in_tokens(policy: Policy, response: Response, sharing: SharingSpec) -> LearnerTokens:
    """The agent's turns count, with the learner's EOS where the source's turn had one; the environment's do not."""
    ids: list[int] = []
    train_mask: list[bool] = []
    for turn in response.turns:
        is_own = turn.role == "assistant"
        if turn.role == "assistant":
            new = policy.encode_response(turn.text, literal=sharing.eos == "literal")
            if sharing.eos == "map" and turn.has_eos:
                new.append(policy.turn_eos)
        else:
            # Without the learner's EOS before it, the marks of its chat template bring one, which does not count.
            has_eos = bool(ids) and ids[-1] in policy.eos_ids
            new = policy.environment_ids(turn.text, turn.role, has_eos=has_eos)
        ids += new
        train_mask += [is_own] * len(new)
    return LearnerTokens(ids, train_mask)
