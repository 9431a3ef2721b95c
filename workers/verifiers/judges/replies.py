"""What a judge answers to one message, and how a score is read from it.

Only the last line of an answer states a score, and nothing else stands in it: words before it may quote the response.
A response that has the very line in itself is unscorable, because the judge may have quoted that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workers.contract.spec.judge import JudgeSettings

# What it says before its end may be the response's words, such as a score that the response asks for.
CUT_OFF = "its answer was cut off at max_tokens: raise them"
MAX_SCORE = 1e15
MAX_SHOWN = 120  # characters of an answer in a reason
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_DECORATION = re.compile(r"[*_#`]+")  # a quotation mark or `>` before a line is none: it quotes
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?:\s*/\s*(\d+(?:\.\d+)?))?\.?")
_SCORE = re.compile(rf"(?:final |overall |total )?score\s*[:=]?\s*{_NUMBER.pattern}", re.IGNORECASE)
_BETTER = re.compile(r"better\s*[:=]?\s*(first|second|tie)\.?", re.IGNORECASE)
_WORTH = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True)
class StatedScore:
    """number: as stated; highest: of the scale that the judge names, as in 7/10, if it names one."""

    number: float
    highest: float | None = None


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


def reward_of_replies(
    settings: JudgeSettings, replies: Sequence[Reply], response: str = ""
) -> tuple[float | None, str]:
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
        return _of_comparison(replies, response)
    return _of_score(settings, replies[0].text, response)


def _of_score(settings: JudgeSettings, text: str, response: str) -> tuple[float | None, str]:
    score = stated_score(text)
    if score is None:
        return None, f"unscorable: the last line of the judge states no score: {_shown(text)}"
    if score in map(_score_of_line, response.splitlines()):
        return None, f"unscorable: the judge's last line may be a quotation, a line of the response: {_shown(text)}"
    reward = settings.reward_of_score(score.number)
    if reward is None or score.highest not in (None, settings.highest):
        value = f"{score.number:g}" if score.highest is None else f"{score.number:g}/{score.highest:g}"
        return None, f"unscorable: a score of {value} is not on the scale {settings.lowest:g} to {settings.highest:g}"
    return reward, f"score {score.number:g}"


def _of_comparison(replies: Sequence[Reply], response: str) -> tuple[float | None, str]:
    """The response is first in the first message and second in the second one."""
    words = [stated_preference(reply.text) for reply in replies]
    if None in words:
        text = _shown(replies[words.index(None)].text)
        return None, f"unscorable: the last line of the judge states no preference: {text}"
    if set(words) & set(map(_preference_of_line, response.splitlines())):
        return None, "unscorable: the judge's last line may be a quotation, a line of the response"
    first, second = (_WORTH[str(word)] for word in words)
    return (first + (1.0 - second)) / 2, f"compared: {words[0]} of (response, reference), {words[1]} of the reverse"


def stated_score(text: str) -> StatedScore | None:
    """Of the last line, `Score: 7`, also bold, as 7/10 or as `{"score": 7}`; or the whole answer if it is a number."""
    text = _after_thoughts(text).strip()
    lines = text.splitlines()
    if len(lines) == 1 and (alone := _NUMBER.fullmatch(_plain(text))):
        return _score(alone)
    return _score_of_line(lines[-1]) if lines else None


def stated_preference(text: str) -> str | None:
    """Of the last line, `Better: first`, `second` or `tie`, also bold or as `{"better": "first"}`."""
    lines = _after_thoughts(text).strip().splitlines()
    return _preference_of_line(lines[-1]) if lines else None


def _score_of_line(line: str) -> StatedScore | None:
    value = _json_value(line, "score")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return StatedScore(float(value)) if abs(value) < MAX_SCORE else None
    match = _SCORE.fullmatch(_plain(line))
    return _score(match) if match else None


def _preference_of_line(line: str) -> str | None:
    value = _json_value(line, "better")
    match = _BETTER.fullmatch(f"better: {value}" if isinstance(value, str) else _plain(line))
    return match[1].lower() if match else None


def _json_value(line: str, name: str) -> object:
    """Of an object of JSON in one line with that key alone; else None."""
    if not line.strip().startswith("{"):
        return None
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values[name] if list(values) == [name] else None


def _plain(line: str) -> str:
    """Without marks of bold text, headings and code."""
    return _DECORATION.sub("", line).strip()


def _score(match: re.Match[str]) -> StatedScore:
    return StatedScore(float(match[1]), float(match[2]) if match[2] else None)


def _after_thoughts(text: str) -> str:
    """A thought that was cut off says nothing yet."""
    text = _THOUGHTS.sub("", text)
    return text.partition("<think>")[0] if "<think>" in text else text.rpartition("</think>")[2]


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat[-MAX_SHOWN:])
