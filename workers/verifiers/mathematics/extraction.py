r"""Which text of a response is its answer: the last box, else what it states as its answer, else its last formula.

Standard library only; every step is linear in the text.
"""

from __future__ import annotations

import re
from collections import deque
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.statements.negation_words import doubts, is_unstated

MAX_ANSWER_CHARACTERS = 1000
_MAX_SEARCHED = 20_000  # of the response's end, for a stated answer

_BOX = re.compile(r"\\(?:boxed|fbox|bbox\s*(?:\[[^\[\]{}]{0,80}\])?)(?![a-zA-Z])")
_SIMPLE_GROUP = re.compile(r"\{([^{}\\]{0,200})\}")
_LABEL = r"(?:the[ \t]+)?(?:(?:final|correct)[ \t]+)?answer"
_SUBJECT = r"(?:(?:the|my|our)[ \t]+(?:(?:final|correct|required|desired|right)[ \t]+)?|final[ \t]+)answers?"
_TO_WHAT = r"(?:[ \t]+to[ \t]+(?:the|this|our)[ \t]+(?:[a-z]+[ \t]+){0,2}(?:problem|question|exercise|task))?"
_VERB = r"(?:is|are|equals|must[ \t]+be|comes[ \t]+out[ \t]+to(?:[ \t]+be)?)"
_ADVERB = (
    r"(?:,?[ \t]+(?:therefore|thus|then|hence|simply|just|indeed|now|clearly|exactly|probably|about|approximately"
    r"|roughly|given[ \t]+by|equal[ \t]+to)\b,?){0,2}"
)
# Answers in other languages: German, French, Spanish, Portuguese, Italian, Russian, Chinese, Japanese, Korean.
_FOREIGN = re.compile(
    r"(?:\b(?:die|la|a|le)\s+)?\b(?:antwort|l[oö]sung|r[eé]ponse|respuesta|resposta|risposta|ответ)\s*(?:\b(?:lautet|ist|est|es|é|è)\b|[:：—])\s*:?"
    r"|(?:答案|答え|正解|答)\s*(?:[是为為はが][：:]?|[：:])|(?:정답|답)(?:은|:)",
    re.IGNORECASE,
)
_FOREIGN_END = re.compile(r"\s*(?:です|である|だ|입니다|이다)?\s*[。．！]?\s*$")
_TAG = re.compile(r"<answer>(.{1,1000}?)</answer>", re.DOTALL | re.IGNORECASE)
# What is behind them on the line, or on the next line with text, is an answer.
_LABELS = (
    re.compile(rf"####(?!#)(?![ \t]*\**{_LABEL}\b)(?=[^\n]*[^\s])", re.IGNORECASE),
    re.compile(rf"\*\*{_LABEL}:?\*\*:?", re.IGNORECASE),
    re.compile(rf"^[ \t]*#{{1,6}}[^\w\n#]{{0,6}}{_LABEL}:?[*_]{{0,3}}:?[ \t]*(?=\r?\n)", re.IGNORECASE | re.MULTILINE),
)
# A line may state several: "The answer is 7. No, the answer is 8."
_SENTENCE = re.compile(
    rf"\b(?:{_SUBJECT}{_TO_WHAT}[ \t]+{_VERB}\b{_ADVERB}|{_LABEL}[ \t]*[:=])[ \t]*:?(?=\s{{0,20}}\S)", re.IGNORECASE
)
_TO_CONTENT = re.compile(r"[ \t*:]*(?:\r?\n\s{0,20}(?:>[ \t]*|[-•][ \t]+(?=[$\\]))?\**)?")
# `#### 3. The sum` is a heading, and so is one of words with text below it.
_HEADING = re.compile(r"\s*\**(?:\d+[.)]\s+[A-Za-z]|[A-Za-z]{2}[^\n]*\n\s*\S)")
_DIGITS = re.compile(r"\d[\d,./]*")
_VALUED = re.compile(r"[\d$\\]")
# What a page does not show, or shows struck out; the signs of a chat's end; a quotation that a denial follows.
_HIDDEN = re.compile(
    r"<!--.*?-->|(?<=~~)(?=\S)[^~\n]{1,2000}~~|<(s|del|strike)>.*?</\1>|^[ \t]*%[^\n]*|(?<=\s)%(?=[ \t]*\\boxed)[^\n]*",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_STRUCK = re.compile(r"\\(?:[hv]?phantom|[bx]?cancel|sout|st)\s*(?=\{)")
_CHAT_END = re.compile(
    r"(?:<[|｜][^<>|｜]{1,40}[|｜]>|</s>|<end_of_turn>|<eos>|\[/?INST\])(?=\s*(?:$|<|\[/?INST))", re.IGNORECASE
)
_FENCE = re.compile(r"```[a-z]*[ \t]*\r?\n([^`]{1,1000}?)\s*```")
# "The answer is 42. I hope it is correct.", "The answer is 42, which is even.", "The answer is 42 because it is."
_SENTENCE_END = re.compile(
    r"\.\s|\.$|。|[,;]\s+(?!(?:and|or)\b)[a-z]{2,}|\s+(?:because|since|which|as)\b|\s+[—–]\s+(?=[A-Za-z]{2})"
    r"|\s+\((?=(?:by|see|since|as|because|in(?!\s+(?:base|hundreds|thousands|millions|billions|percent)))\s)"
)
_AFTER_FORMULA = re.compile(r"[*\s.!]*(?:$|[\r\n]|</?answer>)|\**[.!]+\**\s")
_AFTER_DISPLAY = re.compile(r"[*\s.!]*(?:$|[\r\n]|</?answer>|[A-Z])")
_FORMULA_ENDS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_NOT_BUT = re.compile(r"\*{0,2}not\s+\S{1,40}\s+but\s+(?:rather\s+)?", re.IGNORECASE)
_NEXT_SENTENCE = re.compile(r"[.!?]\s+[A-Z]|\n\s*\n")
# Behind a label: "The number of ways is $42$".
_CLAUSE = re.compile(
    r"(?:(?:so|thus|therefore|hence),?\s+)?(?:the|there|it|we|she|he|they|this)(?:\s.*?)??\s(?:is|are|equals|has|have|pays?|needs?)"
    r"\s+(?:exactly\s+|equal\s+to\s+)?(?=\S)",
    re.IGNORECASE,
)
# Behind a label: "The train travels **42** miles."
_OF_SUBJECT = re.compile(
    r"(?:[A-Z][\w']*|the|there|it|we|she|he|they|this|you)(?:\s+[a-zA-Z'-]+){0,8}?\s+(?:\w+s|\w+ed|has|have|had|got|made|ran|ate|won|took|need|can\s+\w+|will\s+\w+)"
    r"\s+(?:exactly\s+|a\s+total\s+of\s+)?(?=\*{0,2}(?:\\?[$€£])?\d)",
    re.IGNORECASE,
)
_SECOND_CLAUSE = re.compile(r"\b(?:is|are|equals|has|have|if|when|otherwise|rather)\b", re.IGNORECASE)
# Between boxes that are one answer: `x=\boxed{3} or x=\boxed{5}`.
_GAP = r"(?:\s|\\q?quad(?![a-z])|\\[,;:()\[\] ]|\$)*"
_JOINT = re.compile(
    rf"{_GAP}(?:,|;|,?{_GAP}(?:\\text\s*\{{)?\s*(?:and|or)\b\s*\}}?){_GAP}(?:[a-zA-Z](?:_\{{?\w+\}}?)?\s*=\s*)?\$?"
)


class Statement(NamedTuple):
    """An answer, where the text behind it begins, and where its box begins, if it stands in one."""

    answer: str
    end: int
    start: int = -1


def after_thoughts(completion: str) -> str:
    """What follows the thoughts in `<think>`: all without them, and nothing if they are not closed."""
    if "think>" not in completion:
        return completion
    text = completion.rpartition("</think>")[2]
    return "" if "<think>" in text else text


def shown(text: str) -> str:
    """A text without what no reader sees as its answer: comments, invisible and struck-out text, ends of a chat."""
    if "<" in text or "~~" in text or "%" in text or "INST]" in text:
        text = _CHAT_END.sub("", _HIDDEN.sub("", text))
    while (match := _STRUCK.search(text)) and (content := braced(text, match.end())) is not None:
        text = text[: match.start()] + text[match.end() + len(content) + 2 :]
    return text


def final_answer(completion: str) -> str | None:
    r"""The text in the last `\boxed{...}`, else the stated answer, else the formula at the end, or None.

    Where the last box is not closed, the response was cut off: None.
    """
    if has_box(completion):
        boxed = last_box(completion)
        return boxed.answer if boxed else None
    stated = declared_answer(completion)
    return _closing_formula(completion) if stated is None else stated


def last_box(text: str) -> Statement | None:
    """The content of the last box; None if it is not closed, or if there is none."""
    box = next(iter(deque(_BOX.finditer(text), maxlen=1)), None)
    content = braced(text, box.end()) if box else None
    return (
        Statement(content, _end_of_box(text, box.end(), content), box.start()) if box and content is not None else None
    )


def _end_of_box(text: str, start: int, content: str) -> int:
    end = text.find(content, start) + len(content)
    return end + text.startswith("}", end)


def has_box(completion: str) -> bool:
    """Whether a response has a box, closed or not."""
    return _BOX.search(completion) is not None


def joined_boxes(completion: str, *, is_list: bool) -> str | None:
    r"""The contents of the last boxes as a list, if only `,`, `and` or `or` is between them; None for one box.

    is_list: whether the reference is a list. If not, only `or` joins them: `\boxed{41} and \boxed{42}` ends in 42.
    """
    contents: list[str] = []
    end = -1
    for box in _BOX.finditer(completion) if completion.count("box") > 1 else ():
        content = braced(completion, box.end())
        if content is None:
            return None
        joint = completion[end : box.start()][:60]
        if not contents or not _JOINT.fullmatch(joint) or not (is_list or "or" in joint):
            contents = []
        contents.append(content)
        end = _end_of_box(completion, box.end(), content)
    if len(contents) < 2:
        return None
    values = {number(content) for content in contents}
    if not is_list and len(values) == 1 and None not in values:
        return None  # `\boxed{\frac12} or \boxed{0.5}`
    return ", ".join(contents)


def declared_answer(completion: str) -> str | None:
    """What a response without a box states as its answer; None if nothing is called so."""
    statement = last_statement(completion)
    return statement.answer if statement else None


def last_statement(text: str) -> Statement | None:
    """The last answer that a text without a box calls so, in a tag, behind a label or in a sentence."""
    offset = max(0, len(text) - _MAX_SEARCHED)
    text = text[offset:]
    labels = [place for place in map(partial(_last_label, text), _LABELS) if place is not None]
    labels += [match.start(1) for match in _TAG.finditer(text)] if ">" in text else []
    found = sorted((match.span() for match in (*_SENTENCE.finditer(text), *_FOREIGN.finditer(text))), key=itemgetter(1))
    stated = (end for start, end in reversed(found) if not is_unstated(text[max(0, start - 400) : end]))
    sentences = [*islice(stated, 1)]  # the last of them
    if not labels and not sentences:
        is_doubted = bool(found) and not _NEXT_SENTENCE.search(text, found[-1][1])
        return Statement("", len(text) + offset) if is_doubted else None
    answer, end = _content(text, max(labels + sentences))
    if labels and sentences and sentences[-1] > max(labels) and not _VALUED.search(text, sentences[-1], end):
        answer, end = _content(text, max(labels))  # "#### 42\nThe answer is positive."
    return Statement(answer, offset + end)


def _last_label(text: str, pattern: re.Pattern[str]) -> int | None:
    """Where the content of the last label begins."""
    if "#" not in text and "**" not in text:
        return None
    places = [match.end() for match in pattern.finditer(text)]
    if pattern is _LABELS[0]:
        places = [place for place in places if not _HEADING.match(text, place)]
    return places[-1] if places else None


def _content(text: str, place: int) -> tuple[str, int]:
    """The answer behind a label: a formula, a block, or the beginning of a line; and where it ends."""
    if match := _TO_CONTENT.match(text, place):
        place = match.end()
    if match := _FENCE.match(text, place):
        return match[1].strip(), match.end()
    if formula := _formula_at(text, place):
        return formula
    line = re.split(r"\n|</answer>", text[place : place + MAX_ANSWER_CHARACTERS], maxsplit=1)[0]
    if match := _NOT_BUT.match(line):
        place, line = place + match.end(), line[match.end() :]
    answer = _SENTENCE_END.split(line, maxsplit=1)[0]
    if (match := _clause(answer)) and not doubts(answer):
        place, answer = place + match.end(), answer[match.end() :]
    end = place + len(answer)
    answer = _FOREIGN_END.sub("", answer.strip("* \t\r")).rstrip("!").strip("*` \t\r")
    is_open = answer.endswith("]") and "[" not in answer and answer.count("(") == answer.count(")")  # not `(3,4]`
    return answer.removesuffix("]") if is_open else answer, end


def _clause(sentence: str) -> re.Match[str] | None:
    """The words of a sentence before the value that it ends with, if it is the only one and no clause follows."""
    match = _CLAUSE.match(sentence)
    if match is None and len(_DIGITS.findall(sentence)) == 1:
        match = _OF_SUBJECT.match(sentence)
    value = sentence[match.end() :] if match else ""
    return match if _VALUED.search(value) and not _SECOND_CLAUSE.search(value) else None


def _formula_at(text: str, place: int) -> tuple[str, int] | None:
    """The formula that begins at a place, if the sentence may end behind it: "is $42$, as the sum shows"."""
    for begin, end in _FORMULA_ENDS:
        if text.startswith(begin, place):
            start = place + len(begin)
            close = text.find(end, start, start + MAX_ANSWER_CHARACTERS)
            while end == "$" and close > 0 and text[close - 1] == "\\":
                close = text.find(end, close + 1, start + MAX_ANSWER_CHARACTERS)
            rest = text[close + len(end) : close + 80]
            is_end = (_AFTER_DISPLAY if begin in ("$$", "\\[") else _AFTER_FORMULA).match(rest)
            formula = text[start:close].strip() if close > 0 else ""
            if formula and (is_end or _SENTENCE_END.match(rest.lstrip("*"))):
                return formula.rstrip(".").strip(), close + len(end)
            return None
    return None


def _closing_formula(completion: str) -> str | None:
    """The formula at the end of a response, before a full stop; None if there is none."""
    ending = formula_at_end(completion.rstrip(" \t\r\n.!"))
    return ending[0] if ending else None


def formula_at_end(text: str) -> tuple[str, str] | None:
    """The formula that a text ends with, and the 2,000 characters before it; None if it ends otherwise."""
    for begin, end in _FORMULA_ENDS:
        if text.endswith(end) and not text.endswith("\\$"):
            start = text.rfind(begin, max(0, len(text) - 2 * MAX_ANSWER_CHARACTERS), -len(end))
            while begin == "$" and start > 0 and text[start - 1] == "\\":  # a sign of dollars
                start = text.rfind(begin, max(0, len(text) - 2 * MAX_ANSWER_CHARACTERS), start)
            formula = text[start + len(begin) : -len(end)].strip() if start >= 0 else ""
            return (formula, text[max(0, start - 2 * MAX_ANSWER_CHARACTERS) : start]) if formula else None
    return None


def braced(text: str, start: int) -> str | None:
    """The braced group, or the one word, at `start` or after spaces; None if not closed."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    if start >= len(text) or text[start] != "{":
        word = re.match(r"[^\s${}]+", text[start : start + MAX_ANSWER_CHARACTERS])
        return word.group() if word else None
    if match := _SIMPLE_GROUP.match(text, start):
        return match[1]
    depth, position = 0, start
    while position < min(len(text), start + 20 * MAX_ANSWER_CHARACTERS):
        letter = text[position]
        if letter == "\\":
            position += 1  # skip the escaped character: \{ and \} do not nest
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position]
        position += 1
    return None
