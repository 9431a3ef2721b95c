r"""Which text of a response is its answer: the last box, else what it states as its answer, else its last formula.

Standard library only; every step is linear in the text.
"""

from __future__ import annotations

import re

MAX_ANSWER_CHARACTERS = 1000
_MAX_SEARCHED = 20_000  # of the response's end, for a stated answer

_BOX = re.compile(r"\\(?:boxed|fbox|bbox\s*(?:\[[^\[\]{}]{0,80}\])?)(?![a-zA-Z])")
_LINE = r"[ \t]*([^\n]{1,1000})"
# What follows a label: its own line, or, where that is empty, the next line with text.
_LINE_OR_NEXT = r"[ \t]*(?:\r?\n\s{0,20})?([^\n]{1,1000})"
_LABEL = r"(?:the[ \t]+)?(?:(?:final|correct)[ \t]+)?answer"
_SUBJECT = r"(?:(?:the|my|our)[ \t]+(?:(?:final|correct)[ \t]+)?|final[ \t]+)answer"
_ADVERB = r"(?:,?[ \t]+(?:therefore|thus|then|hence|simply|just|indeed|now)\b,?)?"
_STATED = (
    re.compile(r"<answer>(.{1,1000}?)</answer>", re.DOTALL | re.IGNORECASE),
    re.compile(rf"####(?!#)(?![ \t]*{_LABEL}\b){_LINE}", re.IGNORECASE),
    re.compile(rf"\*\*{_LABEL}:?\*\*:?{_LINE_OR_NEXT}", re.IGNORECASE),
    re.compile(
        rf"^[ \t]*#{{1,6}}[ \t]*{_LABEL}:?[ \t]*(?:\r?\n\s{{0,20}})([^\n]{{1,1000}})", re.IGNORECASE | re.MULTILINE
    ),
    # Looked ahead, because a line may state several: "The answer is 7. No, the answer is 8."
    re.compile(
        rf"\b(?:{_SUBJECT}[ \t]+is\b{_ADVERB}|{_LABEL}:)[ \t]*:?[ \t]*(?:\r?\n\s{{0,20}})?(?=([^\n]{{1,1000}}))",
        re.IGNORECASE,
    ),
)
# "The answer is 42. I hope it is correct.", "The answer is 42, which is even.", "The answer is 42 because it is."
_SENTENCE_END = re.compile(r"\.\s|\.$|[,;]\s+(?!(?:and|or)\b)[a-z]{2,}|\s+(?:because|since|which|as)\b")
_FORMULA_ENDS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
# Between boxes that are one answer: `x=\boxed{3} or x=\boxed{5}`.
_JOINT = re.compile(r"\$*\s*(?:,|;|,?\s*(?:\\text\s*\{)?\s*(?:and|or)\b\s*\}?)\s*\$*\s*(?:[a-zA-Z]\s*=\s*)?\$*")


def final_answer(completion: str) -> str | None:
    r"""The text in the last `\boxed{...}`, else the stated answer, else the formula at the end, or None.

    Where the last box is not closed, the response was cut off: None.
    """
    boxes = list(_BOX.finditer(completion))
    if boxes:
        return braced(completion, boxes[-1].end())
    stated = declared_answer(completion)
    return _closing_formula(completion) if stated is None else stated


def declared_answer(completion: str) -> str | None:
    """What a response without a box states as its answer; None if nothing is called so."""
    for pattern in _STATED:
        matches = pattern.findall(completion[-_MAX_SEARCHED:])
        if matches:
            line = matches[-1].strip()
            return _closing_formula(completion) if line in ("$$", "\\[") else _stated(line)
    return None


def has_box(completion: str) -> bool:
    """Whether a response has a box, closed or not."""
    return _BOX.search(completion) is not None


def joined_boxes(completion: str) -> str | None:
    r"""The contents of the last boxes as a list, if only `,`, `and` or `or` is between them; None for one box."""
    contents: list[str] = []
    end = -1
    for box in _BOX.finditer(completion):
        content = braced(completion, box.end())
        if content is None:
            return None
        if not contents or not _JOINT.fullmatch(completion[end : box.start()][:60]):
            contents = []
        contents.append(content)
        end = completion.find(content, box.end()) + len(content) + 1
    return ", ".join(contents) if len(contents) > 1 else None


def _stated(line: str) -> str:
    """The answer at the beginning of a line: without the rest of the sentence, emphasis and its full stop."""
    text = line.strip()
    for begin, end in _FORMULA_ENDS:  # "is $42$, as the sum shows": the formula
        if text.startswith(begin) and (close := text.find(end, len(begin))) > 0:
            rest = text[close + len(end) :].lstrip("*")
            if not rest or _SENTENCE_END.match(rest) or rest in ("!", "."):
                return text[len(begin) : close].strip()
    text = _SENTENCE_END.split(text, maxsplit=1)[0].strip("* \t")
    return text.rstrip("!").strip("* \t")


def _closing_formula(completion: str) -> str | None:
    """The formula at the end of a response, before a full stop; None if there is none."""
    ending = formula_at_end(completion.rstrip(" \t\r\n.!"))
    return ending[0] if ending else None


def formula_at_end(text: str) -> tuple[str, str] | None:
    """The formula that a text ends with, and the 2,000 characters before it; None if it ends otherwise."""
    for begin, end in _FORMULA_ENDS:
        if text.endswith(end):
            start = text.rfind(begin, max(0, len(text) - 2 * MAX_ANSWER_CHARACTERS), -len(end))
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
