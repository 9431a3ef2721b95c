"""What a judge answers to one message, and how a score is read from it.

Only the last line of an answer states a score, and nothing else stands in it: words before it may quote the response.
A response that speaks of the very score gets the lowest reward: the judge may have quoted or obeyed it. It is not
unscorable, or a response could list the scores that it does not want to count.
"""

from __future__ import annotations

import json
import re
import unicodedata
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

# How a response speaks of a score, in the languages that models write most. Words that mean other things too ("Note:",
# a fraction, a degree) count as a label at the end of a line alone.
_SCORE_WORDS = (
    "scor|rating|rat(?:e|ing) (?:it|this|me|my)|deserve|award|bewertung|punktzahl|puntuacion|puntaje|puntua"
    "|calificacion|pontuacao|avaliacao|punteggio|valutazione|оценк|оцени|评分|評分|得分|打分|スコア|評価|得点|점수|평점"
    "|امتیاز|skor|ocena|βαθμολογ"
)
_LABELS = (
    "grades?|marks?|points?|evaluation|assessment|reward|note|nota|voto|punkte|балл|бал|分数|分數|点数|درجة|نتيجة|अंक"
    "|diem|puan|nilai|wynik|cijfer|betyg|poeng"
)
_LATIN = str.maketrans("аеорсухіѕкмтвнԁɡο", "aeopcyxiskmtbhdgo")  # letters that look like these
_UNSEEN = ("Mn", "Cf", "Cc")  # categories: accents, invisible characters, controls
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORD, _LABEL = (unicodedata.normalize("NFKD", words).translate(_LATIN) for words in (_SCORE_WORDS, _LABELS))
_N, _SEPARATOR = r"(-?\d+(?:\.\d+)?)", r"[\s'\"“”]*[:=][\s'\"“”]*"
_SPEAKS = re.compile(rf"(?:{_WORD})[^\d.!?]{{0,40}}?{_N}")
_LABELS_ALONE = re.compile(
    rf"(?:{_WORD})\w{{0,4}}{_SEPARATOR}{_N}|(?:{_LABEL}){_SEPARATOR}{_N}\s*(?=/|out of|['\"}}]|$)", re.MULTILINE
)
_SPACED = re.compile(rf"(?:{_WORD})\w{{0,3}}?{_N}")  # without what stands between its letters


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
    settings: JudgeSettings, replies: Sequence[Reply], response: str = "", question: str = ""
) -> tuple[float | None, str]:
    """The reward of one response to a question from the replies to its messages, and the reason in a few words."""
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
    return _of_score(settings, replies[0].text, response, question)


def _of_score(settings: JudgeSettings, text: str, response: str, question: str) -> tuple[float | None, str]:
    score = stated_score(text)
    if score is None:
        return None, f"unscorable: the last line of the judge states no score: {_shown(text)}"
    if _speaks_of(score, response, question):
        return 0.0, f"lowest: the response speaks of the score itself, which the judge may repeat: {_shown(text)}"
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
    if any(_speaks_of_preference(str(word), response) for word in words):
        return 0.0, "lowest: the response speaks of the preference itself, which the judge may repeat"
    first, second = (_WORTH[str(word)] for word in words)
    return (first + (1.0 - second)) / 2, f"compared: {words[0]} of (response, reference), {words[1]} of the reverse"


def _speaks_of(score: StatedScore, response: str, question: str) -> bool:
    """Whether a response names the score: that number behind a word for it.

    Where the question is about scores too, only a label before the number counts, such as `Score: 10`.
    """
    text, is_about_scores = folded(response), re.search(_WORD, folded(question)) is not None
    found = [*_LABELS_ALONE.finditer(text)]
    if not is_about_scores:
        found += [*_SPEAKS.finditer(text), *_SPACED.finditer(re.sub(r"[^\w.-]+|_", "", text))]
    return any(score.number == float(one[one.lastindex or 0]) for one in found)


def _speaks_of_preference(word: str, response: str) -> bool:
    """As above, of a comparison."""
    return re.search(rf"better(?:{_SEPARATOR}| is (?:the )?){word}", folded(response)) is not None


def folded(text: str) -> str:
    """Small letters and plain digits, without marks, accents and invisible characters."""
    text = unicodedata.normalize("NFKD", text).casefold().translate(_LATIN)
    text = "".join(one for one in _DECORATION.sub("", text) if one == "\n" or unicodedata.category(one) not in _UNSEEN)
    return re.sub(rf"\b({'|'.join(_NUMBER_WORDS)})\b", lambda word: str(_NUMBER_WORDS.index(word[1])), text)


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
