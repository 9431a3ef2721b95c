r"""Units at the end of an answer, and currency before it. A unit is dropped and remembered; a multiplier multiplies.

The list of units is `unit_names`. Text after a number that is not wholly made of them is no unit: it belongs to the
answer, and `words` compares it. Standard library only; every step is linear in the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.unit_names import (
    COMPOUND,
    DESCRIPTIONS,
    GENERIC,
    MULTIPLIERS,
    PLAIN_SYMBOLS,
    UNIT_NAMES,
)

# The power of each unit, as in {"m": 1, "s": -1}; empty for none or for what a question counts.
Unit = dict[str, int]
_MAX_TAIL = 120

_CURRENCY = re.compile(
    r"^([+-]?)\s*(?:(?:\\text\{\s*)?(?:US|USD)\s?\}?\s*)?(\\\$|[€£¥₹])\s*|^([+-]?)\s*\\(pounds|euro)(?![a-zA-Z])\s*"
)
# A currency's letters before an amount: \\text{USD }5.
_CURRENCY_LETTERS = re.compile(r"^([+-]?)\s*(?:\\text\{\s*(USD|EUR|GBP|JPY|INR)\s*\}|(USD|EUR|GBP))\s*(?=[\d.])")
_CURRENCY_NAMES = {"\\$": "$", "pounds": "£", "euro": "€"}
# Where a unit may begin: a text font, a quotient of them, a sign, after what can be an amount.
_FONT_TAIL = re.compile(
    r"(?<=[\w})\]!%])\s*(?:\\(?:cdot|times)\s*)?"
    r"(?=\\text\{|\\frac\{\s*\\text\{|\\frac\s*\\text\{|\(\s*\\text\{|/\s*\\text\{)"
)
_TEMPERATURE = re.compile(r"\s*\^\s*\{?\\circ\}?\s*(?:\\text\{\s*([CFK])\w*\s*\}|([CF]))$")
_DEGREES = re.compile(r"\^\s*\{?\\circ\}?$")
# A number, a space, and a unit whose letters could be variables: 25 m^2. A unit if the reference is a number.
_SPACED_UNIT = re.compile(r"(-?[\d.,/]*\d) ([mgsLhNJWV](?:\^\{?-?\d\}?)?(?:/[ms](?:\^\{?\d\}?)?)?)")
_PLAIN_TAIL = re.compile(r"(?<=[\d})%])\s*(?<![a-zA-Z\\]{2})(?=[a-zA-Z]{2})")
_CURRENCY_TAIL = re.compile(r"\s*(\\\$|[€£¥₹¢])$")

_LETTER_BEFORE = re.compile(r"(?<!\\pi)(?<=[a-zA-Z])\s*$")
_WORD_TAIL = re.compile(r"\\text\{\s*[a-zA-Z]{2}")

_WRAPPED = re.compile(r"\\text\{([^{}]*)\}")
_QUOTIENT = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_TOKEN = re.compile(r"\s*([^\W\d_]+|[$€£¥₹¢°%]|\^\s*\{?\s*\(?-?\d\)?\s*\}?|[/*()])")
_POWER_WORDS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS_AFTER = {"squared": 2, "cubed": 3}


_COUNTED = re.compile(
    r"((?:\\?[$€£¥₹])?-?\d[\d,.]*(?:\s?\\?%)?)\*{0,2}\s+([a-zA-Z][a-zA-Z'-]*(?:\s+[a-zA-Z][a-zA-Z'-]*){0,7})\*{0,2}[.!]?"
)
# They make another number of it, or another statement.
_NOT_COUNTED = re.compile(
    r"\b(?:n?or|and|but|not?|none|never|than|more|less|fewer|above|below|over|under|plus|minus|times|squared|cubed|factorial|mod\w*"
    r"|remainder|half|halves|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|\w*hundred|\w*thousand|\w+illion)ths?|thirds?|quarters?|if|when|unless|is|are|was|were|be|to|from|at|too|wrong\w*|incorrect\w*|false|percent\w*|cent"
    r"|divided|multiplied|raised|choose|base|doubled|halved|negative|infinity|wait|maybe|perhaps|approximately|about|otherwise"
    r"|pi|root|degrees?|dozens?|hundreds?|thousands?|millions?|billions?|trillions?|twice|thrice|per|each|modulo|inf|nan|either"
    r"|instead|rather|without|except|actually|[b-z])\b",
    re.IGNORECASE,
)


def counted_number(text: str) -> str:
    """The number of a stated answer with words for what it counts, or a unit of it: `20 cups of feed` is `20 cups`.

    The text as it is where a word could make another number of it.
    """
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        return text
    if _read_tail(f"\\text{{{match[2]}}}", False) is not None:
        return f"{match[1]} {match[2]}"
    words = match[2].split()
    if _NOT_COUNTED.search(" ".join(words)):
        return text
    place = next(
        (place for place in range(len(words), 0, -1) if _read_tail(f"\\text{{{' '.join(words[:place])}}}", False)), 0
    )
    return f"{match[1]} \\text{{{' '.join(words[:place])}}}" if place else match[1]


def split_unit(text: str) -> tuple[str, Unit]:
    """An undecorated answer without its unit and currency, and the unit."""
    text, unit = _without_currency(text)
    if match := _TEMPERATURE.search(text):
        return text[: match.start()], {f"°{match[1] or match[2]}".replace("°K", "K"): 1}
    if _DEGREES.search(text):
        return text, {**unit, "deg": 1}
    tails = [match.end() for match in (_FONT_TAIL.search(text), _PLAIN_TAIL.search(text)) if match]
    for place in sorted(tails):
        is_plain = text[place].isalpha()
        if _LETTER_BEFORE.search(text[:place]) and not _WORD_TAIL.match(text[place:]):
            continue  # P(\text{A}) has no unit of ampere
        reading = _read_tail(text[place:], is_plain)
        if reading is not None:
            factor, tail_unit = reading
            return _times(_amount(text[:place]), factor), {**unit, **tail_unit}
    return text, unit


def spaced_unit(text: str) -> tuple[str, Unit] | None:
    """A number and its unit of single letters behind a space: `25 m^2`; None for any other text."""
    match = _SPACED_UNIT.fullmatch(text)
    reading = _read_tail(re.sub(r"[{}]", "", match[2]), False) if match else None
    return (match[1], reading[1]) if match and reading else None


def conflict(unit: Unit, other: Unit) -> bool:
    """Whether two units that are both stated are different ones. `20^\\circ` may be a temperature."""
    if {"deg"} in (unit.keys(), other.keys()) and {*unit, *other} & {"°C", "°F"}:
        return False
    return bool(unit) and bool(other) and unit != other


def _without_currency(text: str) -> tuple[str, Unit]:
    if match := _CURRENCY.match(text):
        name = match[2] or match[4]
        return (match[1] or match[3] or "") + text[match.end() :], {UNIT_NAMES[_CURRENCY_NAMES.get(name, name)]: 1}
    if (match := _CURRENCY_LETTERS.match(text)) and (name := UNIT_NAMES.get(match[2] or match[3])):
        return match[1] + text[match.end() :], {name: 1}
    if match := _CURRENCY_TAIL.search(text):
        return text[: match.start()], {UNIT_NAMES[_CURRENCY_NAMES.get(match[1], match[1])]: 1}
    return text, {}


def _amount(head: str) -> str:
    """What is before a unit, without a sign of multiplication."""
    return re.sub(r"\\(?:cdot|times)\s*$", "", head).strip()


def _times(text: str, factor: str) -> str:
    r"""An amount times a multiplier, which is a number or `\%`."""
    if not factor:
        return text
    if factor == "\\%":
        return text + "\\%"
    value = number(text)
    if value is None:
        return f"({text}) \\cdot {factor}"
    product = value * Fraction(factor)
    return str(product.numerator) if product.denominator == 1 else f"{product.numerator}/{product.denominator}"


def _read_tail(tail: str, is_plain: bool) -> tuple[str, Unit] | None:
    """The multiplier, empty for none, and the unit that a text is wholly made of; None for any other text."""
    if len(tail) > _MAX_TAIL:
        return None
    flat = _QUOTIENT.sub(r"(\1)/(\2)", _WRAPPED.sub(r" \1 ", tail))
    flat = (
        re.sub(r"\\(?:cdot|times)(?![a-zA-Z])|·|-(?=[a-zA-Z])", "*", flat).replace("\\mu", "μ").replace("\\Omega", "Ω")
    )
    flat = flat.replace("\\%", "%").replace("\\$", "$").replace(".", "").strip().rstrip(",;")
    flat = re.sub(r"\^\s*\{?\\circ\}?", "°", flat)
    tokens, place = [], 0
    while place < len(flat):
        match = _TOKEN.match(flat, place)
        if match is None:
            return None
        tokens.append(match[1])
        place = match.end()
    factor = 1
    while tokens and tokens[0].lower() in MULTIPLIERS:
        factor *= MULTIPLIERS[tokens.pop(0).lower()]
    if tokens and (
        tokens[0] == "%" or tokens[0].lower() == "percent" or [t.lower() for t in tokens[:2]] == ["per", "cent"]
    ):
        return (
            ("\\%", {}) if factor == 1 and len(tokens) <= 2 and tokens[-1].lower() in ("%", "percent", "cent") else None
        )
    unit = _unit_of(tokens, is_plain)
    return None if unit is None else (str(factor) if factor > 1 else "", unit)


def _unit_of(tokens: list[str], is_plain: bool) -> Unit | None:
    """The unit that the tokens name: `m / s ^2`, `square feet`, `miles per hour`; None if one of them is none."""
    unit: Unit = {}
    sign, power, last = 1, 1, ""
    is_generic = False
    for piece in tokens:
        word = piece.lower()
        if piece == "*" or piece in "()":
            continue
        if piece == "/" or word in ("per", "an", "a"):
            if word in ("an", "a") and not last:
                return None
            sign = -1
        elif word in _POWER_WORDS:
            power = _POWER_WORDS[word]
        elif piece[0] == "^" or word in _POWERS_AFTER:
            if not last:
                return None
            exponent = _POWERS_AFTER.get(word) or int(re.sub(r"[^\d-]", "", piece))
            if last in unit:
                unit[last] *= exponent
        elif piece in COMPOUND or word in COMPOUND:
            for part, exponent in _unit_of(_TOKEN.findall(COMPOUND[word]), False).items():  # type: ignore[union-attr]
                unit[part] = unit.get(part, 0) + exponent
            last = word
        elif name := _name(piece, is_plain and sign > 0):
            if name in ("°C", "°F"):
                unit.pop("deg", None)
            unit[name] = unit.get(name, 0) + sign * power
            power, last = 1, name
        elif word in GENERIC or (word in DESCRIPTIONS and last):
            is_generic, power, last = is_generic or word in GENERIC, 1, word
        else:
            return None
    if tokens and not last:
        return None
    return {} if is_generic else unit


def _name(token: str, is_plain: bool) -> str:
    """The unit of the list that a word or a symbol names, empty for none."""
    if len(token) <= 2:
        if is_plain and token not in PLAIN_SYMBOLS and token not in ("AM", "PM"):
            return ""
        return UNIT_NAMES.get(token) or UNIT_NAMES.get({"AM": "am", "PM": "pm"}.get(token, ""), "")
    return UNIT_NAMES.get(token) or UNIT_NAMES.get(token.lower(), "")
