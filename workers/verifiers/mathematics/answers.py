"""The answer in a response, and its comparison with the gold if plain text decides, without computer algebra.

Finds the last box, cleans the LaTeX, compares numbers exactly; all other answers go to
`workers.verifiers.mathematics.math_equal`. Standard library only; every step is linear in the text, and long texts are
refused.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

MAX_ANSWER_CHARACTERS = 1000
MAX_EXPONENT = 400

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_STATED = (
    re.compile(r"<answer>(.{1,1000}?)</answer>", re.DOTALL | re.IGNORECASE),
    re.compile(r"####[ \t]*([^\n]{1,1000})"),
    re.compile(r"\*\*(?:final )?answer:?\*\*:?[ \t]*([^\n]{1,1000})", re.IGNORECASE),
    re.compile(r"\b(?:the answer is|final answer is|answer:)[ \t]*:?[ \t]*([^\n]{1,1000})", re.IGNORECASE),
)


def final_answer(completion: str) -> str | None:
    r"""The text in the last `\boxed{...}`, else the stated answer, else the formula at the end, or None.

    Where the last box is not closed, the response was cut off: None.
    """
    boxes = list(_BOX.finditer(completion))
    if boxes:
        return _braced(completion, boxes[-1].end())
    for pattern in _STATED:
        matches = pattern.findall(completion[-20_000:])
        if matches:
            # "The answer is 42. I hope it is correct." states 42.
            return re.split(r"\.\s|\.$", matches[-1].strip(), maxsplit=1)[0].strip("* \t")
    return _closing_formula(completion)


def has_box(completion: str) -> bool:
    """Whether a response has a box, closed or not."""
    return _BOX.search(completion) is not None


def _closing_formula(completion: str) -> str | None:
    """The formula at the end of a response, before a full stop; None if there is none."""
    text = completion[-2 * MAX_ANSWER_CHARACTERS :].rstrip(" \t\r\n.!")
    for begin, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if text.endswith(end):
            start = text.rfind(begin, 0, -len(end))
            return text[start + len(begin) : -len(end)].strip() or None if start >= 0 else None
    return None


def _braced(text: str, start: int) -> str | None:
    """The braced group, or the one word, at `start` or after spaces; None if not closed."""
    while start < len(text) and text[start] in " \t":
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


_DROPPED = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|therefore|boxed|fbox)(?![a-zA-Z])"
    r"|\\color\s*\{[^{}]*\}|\\[!,;:>]|\\\(|\\\)|\\\[|\\\]|\\\$|(?<!\\)\$|\\\\\s*$"
)
_SPACES = re.compile(r"(?<!\\)\\(?:quad|qquad|\s)|~|\s+")
_WRAPPER = re.compile(r"\\(?:mathbf|mathrm|mathit|mathsf|bm|underline|textbf|textrm|textit|text|mbox)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_UNIT_TEXT = re.compile(
    r"(?:(?<=[\d}\])])|(?<=\\pi))(?:\s|\\[,;:!>])*"
    r"\\(?:text|mathrm|mbox|textrm)\s*\{\s*[a-zA-Z$/ ]*\}(?:\^\{?\d\}?)?\s*$"
)

_SYMBOLS = {"√": "\\sqrt ", "∞": "\\infty ", "°": "^\\circ", "π": "\\pi ", "×": "\\times ", "·": "\\cdot ", "÷": "/"}
_SYMBOLS |= {"≤": "\\le ", "≥": "\\ge ", "±": "\\pm ", "∪": "\\cup ", "−": "-", "–": "-", "⁄": "/"}
# Normalisation alone would turn 5² into 52 and 1½ into 11/2.
_RAISED, _LOWERED = re.compile("[⁰¹²³⁴-⁹⁻⁺]+"), re.compile("[₀-₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")


def _as_fraction(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match.group()).partition("⁄")
    return f"\\frac{{{top}}}{{{bottom}}}"


def plain_letters(text: str) -> str:
    """Unicode signs as LaTeX, full-width letters as plain ones, without invisible direction marks."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda match: "^{" + unicodedata.normalize("NFKC", match.group()) + "}", text)
    text = _LOWERED.sub(lambda match: "_{" + unicodedata.normalize("NFKC", match.group()) + "}", text)
    text = _VULGAR.sub(_as_fraction, text)
    text = "".join(_SYMBOLS.get(letter, letter) for letter in text if unicodedata.category(letter) != "Cf")
    return "".join(_SYMBOLS.get(letter, letter) for letter in unicodedata.normalize("NFKC", text))


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """The answer without decoration, such as spacing commands, fonts, `$`, `\\left` and a final full stop."""
    text = _FRACTION.sub(lambda _: "\\frac", plain_letters(text).strip())
    text = _UNIT_TEXT.sub("", text)
    text = text.replace("{,}", ",")
    text = _SPACES.sub(" ", _DROPPED.sub("", text)).strip()
    for _ in range(8):  # fonts may be nested
        text, changed = _WRAPPER.subn(r"\1", text)
        if not changed:
            break
    text = text.strip().rstrip(".,;").strip()
    while len(text) > 1 and text[0] == "{" and _braced(text, 0) == text[1:-1]:
        text = text[1:-1].strip()
    return text


_GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+|\d+"
_NUMBER = re.compile(rf"({_GROUPED})?(?:\.(\d*)(?:\\overline\{{?(\d+)\}}?)?)?")
_POWER = re.compile(r"(?:(.*?)(?:\\times|\\cdot|\*)|)10\^(?:\{\s*([+-]?\d{1,4})\s*\}|([+-]?\d{1,4}))")
_EXPONENT = re.compile(r"(.*\d\.?)[eE]([+-]?\d{1,4})")
_RATIO = re.compile(r"(\d*)\\frac(?:\{([^{}]*)\}|(\d))(?:\{([^{}]*)\}|(\d))")
_IN_BASE = re.compile(r"(\d+)_(?:\{(\d{1,2})\}|(\d))")


@lru_cache(maxsize=4096)
def number(text: str) -> Fraction | None:
    """The exact value of a cleaned text that is a plain number: integer, decimal, fraction, power of ten, percent."""
    text = text.replace(" ", "") if not re.search(r"\d \d", text) else text
    if len(text) > 200:
        return None
    sign = 1
    while text[:1] in ("+", "-") and text[1:2] not in ("+", "-"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:]
    scale = Fraction(1)
    if text.endswith("%"):
        scale, text = Fraction(1, 100), text[:-1].rstrip("\\")
    text = re.sub(r"\^\{?\\circ\}?$", "", text)
    value = _unsigned(text)
    return None if value is None else sign * scale * value


def _unsigned(text: str) -> Fraction | None:
    if match := _POWER.fullmatch(text):
        exponent = int(match[2] or match[3])
        factor = Fraction(1) if match[1] is None else _unsigned(match[1])
        return _scaled(factor, exponent)
    if match := _EXPONENT.fullmatch(text):
        return _scaled(_decimal(match[1]), int(match[2]))
    if match := _RATIO.fullmatch(text):
        top, bottom = number(match[2] or match[3] or ""), number(match[4] or match[5] or "")
        return None if not bottom or top is None else Fraction(int(match[1] or 0)) + top / bottom
    if text.count("/") == 1:
        top, bottom = (_decimal(part) for part in text.split("/"))
        return None if not bottom or top is None else top / bottom
    return _decimal(text)


def _scaled(value: Fraction | None, exponent: int) -> Fraction | None:
    return None if value is None or abs(exponent) > MAX_EXPONENT else value * Fraction(10) ** exponent


def _decimal(text: str) -> Fraction | None:
    match = _NUMBER.fullmatch(text)
    if not match or not re.search(r"\d", text):
        return None
    whole, digits, repeating = match[1] or "0", match[2] or "", match[3]
    value = Fraction(int(whole.replace(",", "") + digits), 10 ** len(digits))
    if repeating:  # 0.1(6) is 1/10 + 6/90
        value += Fraction(int(repeating), 10 ** len(digits) * (10 ** len(repeating) - 1))
    return value


_LONG_DECIMAL = re.compile(r"-?(\d*)\.(\d{6,})(?:(?:\\times|\\cdot|\*)10\^\{?(-?\d{1,3})\}?|[eE]([+-]?\d{1,3}))?")


def rounding_unit(text: str) -> Fraction | None:
    """One unit of a decimal's last digit, if it has six decimals and six significant digits; else None.

    Such a decimal may be a rounded number. Significant digits count too: 0.000001 says little about 1/1234567.
    """
    match = _LONG_DECIMAL.fullmatch(text.replace(" ", ""))
    if not match or len((match[1] + match[2]).lstrip("0")) < 6:
        return None
    return Fraction(10) ** (int(match[3] or match[4] or 0) - len(match[2]))


def _is_rounding(rounded: str, exact: Fraction) -> bool:
    """Whether a long decimal is `exact` rounded or cut to its last digit; `exact` has no end as a decimal."""
    unit, bottom = rounding_unit(rounded), exact.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    if unit is None or bottom == 1:
        return False
    value = number(rounded)
    return value is not None and abs(value - exact) < unit


def in_base(text: str) -> tuple[str, int] | None:
    """Digits and base of a cleaned text like `1011_2`."""
    match = _IN_BASE.fullmatch(text.replace(" ", ""))
    return (match[1].lstrip("0") or "0", int(match[2] or match[3])) if match else None


def decide(answer: str, gold: str) -> bool | None:
    """Whether a cleaned answer equals a cleaned gold; None if plain text does not decide."""
    if not answer:
        return False
    if answer.replace(" ", "") == gold.replace(" ", ""):
        return True
    answer_value, gold_value = number(answer), number(gold)
    if answer_value is not None and gold_value is not None:
        return (
            any(value == other for value, other in readings(answer, gold, answer_value, gold_value))
            or _is_rounding(answer, gold_value)
            or _is_rounding(gold, answer_value)
        )
    answer_digits, gold_digits = in_base(answer), in_base(gold)
    if answer_digits or gold_digits:
        return _decide_base(answer, gold, answer_digits, gold_digits)
    if re.search(r"\d \d", answer) and re.fullmatch(r"[\d. ]+", answer):
        return False  # two numbers side by side are not a number
    if re.fullmatch(r"[A-Za-z][A-Za-z ]+", gold) and gold.lower() == answer.lower():
        return True
    return None


def readings(answer: str, gold: str, value: Fraction, gold_value: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The pairs of values of which one must agree.

    50% also answers 50, and 50 also answers 50%, because the question may have asked for a percentage.
    """
    pairs, is_percent = [(value, gold_value)], answer.endswith("%")
    if is_percent != gold.endswith("%"):
        pairs.append((value * 100, gold_value) if is_percent else (value, gold_value * 100))
    return pairs


def _decide_base(
    answer: str, gold: str, answer_digits: tuple[str, int] | None, gold_digits: tuple[str, int] | None
) -> bool | None:
    """Numbers with a base: the same digits in the same base, or the same value."""
    if answer_digits and gold_digits:
        return answer_digits == gold_digits
    digits, plain = (answer_digits or gold_digits), (gold if answer_digits else answer)
    value = number(plain)
    if digits is None or value is None or not 2 <= digits[1] <= 36 or len(digits[0]) > 100:
        return None
    try:
        # The gold's base is known from the question, so its digits alone are accepted too.
        return value == int(*digits) or (gold_digits is not None and plain.replace(" ", "") == digits[0])
    except ValueError:  # a digit too large for its base
        return False
