r"""The last number of a response, which flexible extraction reads where nothing is stated; without computer algebra.

lm-evaluation-harness calls it flexible-extract: a pattern of digits, commas and points. This one also reads the sign,
fractions, percent and powers of ten that belong to the number, and passes over digits that are a part of something
else, such as `H2O`, `x^2`, `3rd`, `12:30` or `\sqrt{2}`. Every step is linear in the text: the digits of a number are
matched possessively, so that no part of them is tried twice.
"""

from __future__ import annotations

import re
import unicodedata

from workers.verifiers.mathematics.decoration import plain_letters
from workers.verifiers.mathematics.extraction import after_thoughts
from workers.verifiers.mathematics.plain_numbers import regrouped
from workers.verifiers.mathematics.statements.closing import denies_list
from workers.verifiers.mathematics.statements.negation_words import is_unstated
from workers.verifiers.mathematics.statements.retractions import taken_back

MAX_CHARACTERS = 20_000  # of the response's end
_BESIDE = 24  # characters before and after the digits that are looked at

_FIGURES = r"(?:[1-9]\d{0,2}(?:(?:'\d{3})++(?!\d)|(?:\.\d{3}){2}(?:\.\d{3})*+(?!\.?\d))|\d++(?:(?:,|\{,\}|\\,)\d++)*+)"
_NUMBER = re.compile(
    rf"""(?: 10\^(?:\{{\s?(?P<power>[+-]?\d{{1,4}})\s?\}}|(?P<bare_power>[+-]?\d{{1,4}}+))
      | (?:(?P<whole>\d++)\ ?)?\\[dtc]?frac\s?(?:\{{(?P<top>\d++)\}}|(?P<top_digit>\d))
        (?:\{{(?P<bottom>\d++)\}}|(?P<bottom_digit>\d))
      | (?P<mixed>\d++)\ (?P<over>\d++)/(?P<under>\d++)
      | (?=\.?\d)(?P<figures>{_FIGURES})?(?P<decimals>\.\d++)?(?:/(?P<divisor>\d++)
        |[eE](?P<exponent>[+-]?\d{{1,4}}+)
        |\s?(?:\\times|\\cdot|\*|x)\s{{0,3}}10\^(?:\{{\s?(?P<scale>[+-]?\d{{1,4}})\s?\}}|(?P<bare_scale>[+-]?\d{{1,4}}+)))?
    )""",
    re.VERBOSE,
)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")
_SEPARATOR = re.compile(r"\{,\}|\\,")
_ENCLOSED = re.compile("[\u2460-\u24ff\u2776-\u2793]")  # ① is a mark of a list
_CURRENCY = re.compile(r"\\?[$€£¥₹]\s?$")
_HYPHEN = re.compile(r"[A-Za-z\d_)}\]%-]-$")
_MINUS_APART = re.compile(r"[=:(,]\s{0,9}-\s{1,9}$")
_WORD_BEFORE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+$")  # a command such as \\approx is no word
# Before digits: an index or a power, a root, plus-minus, an open part of a fraction, the hour of a time, a date.
_PART_BEFORE = re.compile(
    r"(?:_|\^\(?|\\(?:sqrt|pm|mp|overline)\s?|\\sqrt\[|\d[.:/]?"
    r"|(?:[_^]|\\(?:sqrt(?:\[\d{1,3}\])?|[dtc]?frac|overline)\s?|\})\{[^{}]*)$"
)
# Units that are written without a space; of single letters those that are rarely variables.
_UNITS = "mm|cm|dm|km|m|mg|kg|g|ml|mL|l|L|h|ft|lb|lbs|oz|min|mph|kph|kWh"
# After digits: a word other than a unit, an index, a power other than degrees, a time or a date, `-digit`, a constant.
_PART_AFTER = re.compile(
    rf"(?!(?:{_UNITS})(?![A-Za-z]))[A-Za-z]|_|\^(?!\{{?\s?\\circ)|[.:/]\d|-[A-Za-z]"
    r"|\s?\\(?:pi|sqrt)(?![a-zA-Z])|\.?\\overline"
)
_VALUE_OF_ASIDE = re.compile(r"\b(?:at|when|where)\s+\$?[a-zA-Z]\s*=\s*-?$")
_LIST_MARK = re.compile(r"\n[ \t*#>]*$")
_AFTER_LIST_MARK = re.compile(r"[.)][ \t]+\S")
_PERCENT = re.compile(r"\s?(?:\\?%|per ?cent\b)")
_MULTIPLIER = re.compile(r"\$?\s?(?:\\text\s?\{\s*)?(hundred|thousand|million|billion|trillion)s?\b", re.IGNORECASE)
_MAX_LINE = 2000
_ONE_FONT = re.compile(r"(?<=mathbf)\{(\s*-?\s*\d(?:[\d ,.]{0,60}\d)?\s*)\}")
_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z(])")
_BOLD = re.compile(
    r"\*\*([^*\n]{1,120})\*\*|(?:[=$]|\\(?:approx|equiv|leq?|geq?))\s*\\(?:mathbf|boldsymbol|bm)\s*(\{[^{}]{1,80}\})\s*(?=\$)"
)
_STATES = re.compile(r"(?:=|\bis|\bequals?|\btotal\s+of)\s*[$€£]?\s*$")
_LISTED_NUMBER = r"(?<![\w.\\^{])-?\d{1,20}(?:\.\d{1,20})?(?:/\d{1,20})?(?![\d\w^/%!])"
_LISTED = re.compile(rf"{_LISTED_NUMBER}(?:(?:\s?,\s?(?:(?:and|or)\s)?|\s(?:and|or)\s){_LISTED_NUMBER})+")
_RELATION_OR_WORDS = re.compile(r"[=~,]|\\(?:neq?|in|text|equiv|approx)(?![a-zA-Z])|[a-zA-Z]{2,} [a-zA-Z]{2,}")
# What a number counts, before what its sentence says of it: `5 cm is incorrect`.
_COUNTED_BEHIND = re.compile(
    r"(?:\s(?!(?:and|so|but|or|because|while|which|that|since|if)\b)[a-zA-Z]{1,20}){1,4}?"
    r"(?=[\s*]{1,9}(?:is|are|was|were|isn't|aren't|can(?:not|'t)|would|as)\b)"
)
# The rest of a value outside of dollars, and the name before one: `30^\circ`, `864 \mbox{ inches}^2`, `x=5`.
_REST = re.compile(
    r"(?:\s?\\(?:text|mbox|mathrm|textrm)\s?\{[^{}]{0,40}\}|\s[-+]\s[\w\\{}^]{1,40}|\s?\\?%|[^\s.,;:!?$*\\]|\\(?!text|m))*+"
)
_NAMED = re.compile(r"[a-zA-Z][\w()]{0,9}\s?=\s?[$-]?$")
_ZEROS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}


def last_number(completion: str) -> str | None:
    r"""The last number, written as `-1234.5`, `\frac{1}{2}`, `50\%` or `2\times10^{3}`; None if there is none.

    If a number is set in bold in the last sentence and none follows it, or `=` or `is` stands before it, it is that
    one; if the last number is a part of a formula in dollars that has no value without its letters, it is the formula.
    Of a response with thoughts in `<think>`, only what follows them counts.
    """
    text = after_thoughts(completion)
    text = "\n" + plain_letters(_ENCLOSED.sub(" ", text[-MAX_CHARACTERS:]))
    text = _ONE_FONT.sub(lambda match: match[1].replace(" ", ""), text)
    if bold := _bold_number(text):
        return bold
    for match in reversed(list(_NUMBER.finditer(text))):
        if _VALUE_OF_ASIDE.search(text[max(0, match.start() - _BESIDE) : match.start()]):
            continue  # "The maximum 42 occurs at x = 7."
        if (number := _read(text, match)) is not None:
            start, formula = _formula_around(text, match) or (match.start(), number)
            named = _NAMED.search(text[max(0, match.start() - _BESIDE) : match.start()])
            rest = _behind_value(text, match)
            places = {start, match.start(), match.start() - len(named[0]) if named else start}
            is_denied = any(is_unstated(text[:place], rest) for place in places)
            return None if is_denied or taken_back(number, rest) is not None else formula
    return None


def _behind_value(text: str, match: re.Match[str]) -> str:
    """What a sentence says behind a number: without the rest of its formula or value, and what it counts."""
    behind = text[match.end() :]
    close = behind.find("$", 0, _MAX_LINE)
    line = text.rfind("\n", 0, match.start())
    is_formula = close >= 0 and "\n" not in behind[:close] and text.count("$", line, match.start()) % 2
    rest = behind[close + 1 if is_formula else _REST.match(behind).end() :]  # type: ignore[union-attr]
    unit = _COUNTED_BEHIND.match(rest)
    return rest[unit.end() :] if unit else rest


def _bold_number(text: str) -> str | None:
    """The last number in bold of the last sentence.

    None if there is none, it numbers or names a step, or another number follows it and nothing says that it is the
    result.
    """
    line = text.rstrip().rpartition("\n")[2][-_MAX_LINE:]
    sentence = max((match.end() for match in _SENTENCE_END.finditer(line)), default=0)
    for match in reversed(list(_BOLD.finditer(line, sentence))):
        content = match[1] or match[2]
        is_label = content.endswith((":", ")")) or line[match.end() : match.end() + 1] == ":" or not match.start()
        numbers = list(_NUMBER.finditer("\n" + content))
        if is_label or not numbers or (number := _read("\n" + content, numbers[-1])) is None:
            continue
        is_stated = _STATES.search(line[: match.start()][-20:]) is not None
        return number if is_stated or not re.search(r"\d", line[match.end() :]) else None
    return None


def _formula_around(text: str, match: re.Match[str]) -> tuple[int, str] | None:
    """Where the formula in dollars around a number begins, and the formula, if it has letters and no equality: `$n-1$`
    for the 1."""
    end = text.find("$", match.end(), match.end() + _MAX_LINE)
    start = text.rfind("$", max(0, match.start() - _MAX_LINE), match.start())
    if start < 0 or end < 0 or "\n\n" in text[start:end]:
        return None
    formula = text[start + 1 : end].strip()
    has_letters = re.search(r"(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])", formula)
    return (start, formula) if has_letters and not _RELATION_OR_WORDS.search(formula) else None


def numbers_at_end(text: str) -> str | None:
    """Two numbers or more with only commas, `and` or `or` between them, if they are the last of a text."""
    text = re.sub(r"\\?\$|\*\*", "", plain_letters(after_thoughts(text)[-_MAX_LINE:]))
    lists = list(_LISTED.finditer(text))
    if not lists or re.search(r"\d", text[lists[-1].end() :]):
        return None
    before, behind = text[: lists[-1].start()], text[lists[-1].end() :]
    if denies_list(before) or is_unstated(before, behind) or taken_back(lists[-1][0], behind) is not None:
        return None
    return re.sub(r"\s*,?\s*\b(?:and|or)\b\s*", ", ", lists[-1][0])


def _read(text: str, match: re.Match[str]) -> str | None:
    """The number with its sign, percent and multiplier; None if its digits are a part of something else."""
    head = text[max(0, match.start() - _BESIDE) : match.start()]
    tail = text[match.end() : match.end() + _BESIDE]
    amount = _CURRENCY.sub("", head)
    # US$5 is a number; the m of $5m is no unit.
    is_word = _WORD_BEFORE.search(head) if amount == head else re.match("[A-Za-z]", tail)
    is_negative = _MINUS_APART.search(amount) is not None
    if amount.endswith("-") and not _HYPHEN.search(amount):
        is_negative, amount = True, amount[:-1]
    if is_word or _PART_BEFORE.search(amount) or _PART_AFTER.match(tail):
        return None
    if match.group().isdigit() and _LIST_MARK.search(head) and _AFTER_LIST_MARK.match(tail):
        return None
    return ("-" if is_negative else "") + _written(match) + _suffix(tail, match)


def _suffix(tail: str, match: re.Match[str]) -> str:
    r"""`\%`, or the power of ten of a word such as million."""
    if _PERCENT.match(tail):
        return "\\%"
    word = _MULTIPLIER.match(tail)
    return f"\\times10^{{{_ZEROS[word[1].lower()]}}}" if word and "^" not in _written(match) else ""


def _written(match: re.Match[str]) -> str:
    """The number in one way of writing, in the digits 0 to 9."""
    part = {name: _ascii(value) for name, value in match.groupdict().items() if value is not None}
    if "power" in part or "bare_power" in part:
        return f"10^{{{part.get('power') or part['bare_power']}}}"
    top, bottom = part.get("top") or part.get("top_digit"), part.get("bottom") or part.get("bottom_digit")
    if bottom:
        return f"{part.get('whole', '')}\\frac{{{top}}}{{{bottom}}}"
    if "mixed" in part:
        return f"{part['mixed']}\\frac{{{part['over']}}}{{{part['under']}}}"
    figures = _SEPARATOR.sub(",", part.get("figures", ""))
    # Groups of three are one number; other numbers with commas are a list, which ends with the last of them.
    plain = figures.replace(",", "") if _THOUSANDS.fullmatch(figures) else regrouped(figures)
    figures = plain if plain.isdigit() else figures.rpartition(",")[2]
    number = figures + part.get("decimals", "")
    if "divisor" in part:
        return f"\\frac{{{number}}}{{{part['divisor']}}}"
    scale = part.get("exponent") or part.get("scale") or part.get("bare_scale")
    return f"{number}\\times10^{{{scale}}}" if scale else number


def _ascii(digits: str) -> str:
    """The text with the digits of any script as 0 to 9."""
    if digits.isascii():
        return digits
    return "".join(str(unicodedata.decimal(letter, letter)) for letter in digits)
