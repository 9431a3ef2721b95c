"""A shared rollout in its learner's tokens: text goes from agent to agent, turn by turn, and masks are made here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.agents.messages import Response
from workers.algorithms.base.sharing import SharingSpec
from workers.contract.spec.environments import Turn
from workers.model.policy import Policy
from workers.model.thoughts import CLOSING, OPENING, begins_within, without_thoughts

UNFINISHED = "unfinished thought"  # drop reason, where thoughts are left out


class ResponseTooLong(ValueError):
    """overflow: error, and a shared rollout does not fit."""


@dataclass(frozen=True)
class LearnerTokens:
    """The ids after the prompt. train_mask: by token, whether it trains; empty: all do."""

    token_ids: list[int]
    train_mask: Sequence[bool] = ()


def retokenize(
    policy: Policy, response: Response, sharing: SharingSpec, max_length: int, opening: str = "", spare: int = 0
) -> LearnerTokens | str:
    """A shared rollout in the learner's tokens, or the reason why it is dropped. Error: ResponseTooLong.

    opening: what of a thought the learner's own prompt holds. spare: tokens by which that prompt is shorter than the
    longest allowed; what is given before the source's first token may take them, as it was part of the source's prompt.
    """
    has_eos = response.finish_reason == "stop" and response.has_eos
    turns = response.turns or [Turn("assistant", response.shared_text, has_eos, opening=response.opening)]
    tokens = _in_tokens(policy, turns, sharing, opening)
    if tokens is None:
        return UNFINISHED
    max_length += min(spare, next((place for place, trains in enumerate(tokens.train_mask) if trains), 0))
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


def _in_tokens(policy: Policy, turns: Sequence[Turn], sharing: SharingSpec, opening: str) -> LearnerTokens | None:
    """The agent's turns count, with the learner's EOS where the source's turn had one; the environment's do not.

    None: a turn has nothing but an unfinished thought, and thoughts are left out.
    """
    ids: list[int] = []
    train_mask: list[bool] = []
    for turn in turns:
        if turn.role == "assistant":
            parts = _own_turn(turn, opening, leaves_out=sharing.peer_thoughts == "leave_out")
            if parts is None:
                return None
            is_literal = sharing.eos == "literal"
            given, own = (policy.encode_response(text, literal=is_literal) for text in parts)
            if sharing.eos == "map" and turn.has_eos:
                own.append(policy.turn_eos)
        else:
            # Without the learner's EOS before it, the marks of its chat template bring one, which does not count.
            has_eos = bool(ids) and ids[-1] in policy.eos_ids
            given, own = policy.environment_ids(turn.text, turn.role, has_eos=has_eos), []
            opening = policy.opening_after(turn.role)
        ids += [*given, *own]
        train_mask += [False] * len(given) + [True] * len(own)
    return LearnerTokens(ids, () if all(train_mask) else train_mask)


def _own_turn(turn: Turn, opening: str, *, leaves_out: bool) -> tuple[str, str] | None:
    """A source's turn after the learner's prompt: what is given, as the source did not sample it, and what counts.

    The two agents' templates may open a thought or not (`turn.opening`, `opening`); in both the same text is thought.
    """
    sampled = turn.text.removeprefix(turn.opening)
    is_within = bool(turn.opening) or begins_within(sampled)
    if opening and is_within:
        return "", sampled
    if opening:
        if sampled.lstrip().startswith(OPENING):  # the source wrote itself what the learner's template writes
            rest = sampled.lstrip().removeprefix(OPENING)
            return "", rest.removeprefix(opening.removeprefix(OPENING))
        return f"\n{CLOSING}\n\n", sampled
    if leaves_out and (is_within or OPENING in sampled):
        answer = without_thoughts(turn.text)
        return ("", answer) if answer else None
    return (turn.opening or f"{OPENING}\n" if is_within else ""), sampled
