"""What a judge answers to one message, and how a score is read from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from workers.contract.spec.judge import JudgeSettings

# What it says before its end may be the response's words, such as a score that the response asks for.
CUT_OFF = "its answer was cut off at max_tokens: raise them"
MAX_SHOWN = 120  # characters of an answer in a reason
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_SCORE = re.compile(r"score\W{0,6}?(-?\d+(?:\.\d+)?)(?![\d.]*\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\W{0,3}?(-?\d+(?:\.\d+)?)(?:\s*/\s*\d+)?\W{0,3}")
_BETTER = re.compile(r"better\W{0,6}(first|second|tie)\b", re.IGNORECASE)
_WORTH = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True)
class Reply:
    """text: the judge's answer, or value: a reward model's reward; failure: why there is none, or empty.

    is_transport: the judge was not reached or did not answer, as against an answer that cannot be read.
    """

    text: str = ""
    value: float | None = None
    failure: str = ""
    is_transport: bool = False
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


def reward_of_replies(settings: JudgeSettings, replies: Sequence[Reply]) -> tuple[float | None, str]:
    """The reward of one response from the replies to its messages, and the reason in a few words."""
    for reply in replies:
        if reply.failure:
            return None, f"unscorable: {reply.failure}"
    if settings.kind == "reward_model":
        [reply] = replies
        if reply.value is None:
            return None, "unscorable: the reward model gave no finite number"
        return reply.value, f"reward {reply.value:.3g}"
    if settings.is_comparison:
        return _of_comparison(replies)
    return _of_score(settings, replies[0].text)


def _of_score(settings: JudgeSettings, text: str) -> tuple[float | None, str]:
    score = stated_score(text)
    if score is None:
        return None, f"unscorable: the judge states no score: {_shown(text)}"
    reward = settings.reward_of_score(score)
    if reward is None:
        return None, f"unscorable: a score of {score:g} is not on the scale {settings.lowest:g} to {settings.highest:g}"
    return reward, f"score {score:g}"


def _of_comparison(replies: Sequence[Reply]) -> tuple[float | None, str]:
    """The response is first in the first message and second in the second one."""
    words = [stated_preference(reply.text) for reply in replies]
    if None in words:
        return None, f"unscorable: the judge states no preference: {_shown(replies[words.index(None)].text)}"
    first, second = (_WORTH[str(word)] for word in words)
    return (first + (1.0 - second)) / 2, f"compared: {words[0]} of (response, reference), {words[1]} of the reverse"


def stated_score(text: str) -> float | None:
    """The last `Score: 7`, also bold or as 7/10; else the number if the answer is nothing else."""
    text = _after_thoughts(text)
    if matches := _SCORE.findall(text):
        return float(matches[-1])
    alone = _NUMBER.fullmatch(text.strip())
    return float(alone[1]) if alone else None


def stated_preference(text: str) -> str | None:
    """The last `Better: first`, `second` or `tie`."""
    matches = _BETTER.findall(_after_thoughts(text))
    return matches[-1].lower() if matches else None


def _after_thoughts(text: str) -> str:
    """A thought that was cut off says nothing yet."""
    text = _THOUGHTS.sub("", text)
    return text.partition("<think>")[0] if "<think>" in text else text.rpartition("</think>")[2]


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat[-MAX_SHOWN:])
