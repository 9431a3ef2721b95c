r"""The first rule: what only decorates an answer is dropped. Fonts, colours, sizes, spacing, signs of `$` and Markdown.

The content of a text font with a word in it stays in `\text{...}`, for the rules of units and words. Standard library
only; every step is linear in the text.
"""

from __future__ import annotations

import re
import unicodedata

from workers.verifiers.mathematics.extraction import braced

# Unicode signs, as LaTeX.
_SYMBOLS = {"√": "\\sqrt ", "∞": "\\infty ", "°": "^\\circ", "π": "\\pi ", "×": "\\times ", "·": "\\cdot ", "÷": "/"}
_SYMBOLS |= {
    "≤": "\\le ",
    "≥": "\\ge ",
    "±": "\\pm ",
    "∪": "\\cup ",
    "−": "-",
    "–": "-",
    "‐": "-",
    "‑": "-",
    "‒": "-",
    "⁄": "/",
}
_SYMBOLS |= {"∅": "\\emptyset ", "≈": "\\approx ", "∈": "\\in ", "∩": "\\cap ", "≠": "\\ne ", "∠": "\\angle "}
_SYMBOLS |= {"⟨": "(", "⟩": ")"}
_SYMBOLS |= {"ℝ": "\\mathbb{R}", "“": '"', "”": '"', "‘": "'", "’": "'", "✓": "", "✔": "", "✅": "", "\ufe0f": ""}
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


_DROPPED = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|scriptstyle|limits|therefore|boxed|fbox|checkmark|rm|bf|it|sf"
    r"|tt|cal|bfseries|itshape|normalfont|tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge"
    r"|noindent|centering|phantom\s*\{[^{}]*\})(?![a-zA-Z])"
    r"|\\color\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}|\\\(|\\\)|\\\[|\\\]|\\\\\s*$"
)
# A colour and what it colours: only the second group stays.
_COLOURED = re.compile(r"\\(?:textcolor|colorbox|fcolorbox\s*\{[^{}]*\})\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}(?=\s*\{)")
_ANGLED = re.compile(r"\\(l|r)angle(?![a-zA-Z])")  # a vector in angle brackets is a tuple
_DOLLAR = re.compile(r"(?<!\\)\$")
_NARROW = re.compile(r"\\!\s*")
# Three digits after a narrow space or a tie are thousands; other spaces separate numbers.
_THOUSANDS = re.compile(r"(?<![\d.,])(?<!\d )([1-9]\d{0,2})((?:(?:\\[,;:> ]|~| )\s?\d{3})+)(?!\s?\d)")
_SPACES = re.compile(
    r"(?<!\\)\\(?:(?:quad|qquad|enspace|thinspace|hfill)(?![a-zA-Z])|hspace\*?\s*\{[^{}]*\}|[,;:>\s])|~|\s+"
)
_MARKDOWN = re.compile(r"^(\*\*|\*|__|`|\"|'|``)(?=\S)(.*\S)\1$", re.DOTALL)
_FRACTION = re.compile(r"\\(?:[dtcsx]|nice)frac(?![a-zA-Z])")
_CHOOSE = re.compile(r"\{\s*(\w+)\s*\\choose\s*(\w+)\s*\}")
_CROSS = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_HALF_OF_DAY = re.compile(r"(?<=[\d\s{])([apAP])\.\s?([mM])\b\.?")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d)\s+(\d)")

_MATH_FONT = re.compile(
    r"\\(?:mathbf|mathit|mathsf|mathtt|mathnormal|boldsymbol|bm|pmb|underline|uline)\s*\{([^{}]*)\}"
)
# With braces in it: \mathbf{\frac{1}{2}}.
_NESTED_FONT = re.compile(
    r"\\(?:mathbf|mathit|mathsf|boldsymbol|bm|pmb|underline|uline|textbf|mathrm|emph)\s*"
    r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_TEXT_FONT = re.compile(r"\\(?:text(?:bf|rm|it|sf|tt|sl|sc|normal|up|md)?|mathrm|mbox|hbox|emph)\s*\{([^{}]*)\}")
_WORD = re.compile(r"[a-zA-Z][.\s/·*-]{0,3}[a-zA-Z]")
# After a number these letters in a text font are units, not symbols: 5\mathrm{m}.
_LETTER_UNIT = re.compile(r"\s*[mgsKJNWVACFTLhHlt]\s*")
_QUOTIENT_UNIT = re.compile(r"\s*[a-zA-Z]\^?\d?\s*[/·*]\s*[a-zA-Z](?:\^?-?\d)?\s*")
_DIGITS_APART = re.compile(r"(?<=\d) (?=\d)")
_DOUBLE = re.compile(r"\{\{([^{}]*)\}\}")
_PASSES = 8  # fonts may be nested


def _math_font(match: re.Match[str]) -> str:
    r"""A font of formulas: its digits are one number, as in `\mathbf{1 0}`, but not with those of the next font."""
    return f" {_DIGITS_APART.sub('', match[1])} "


def _text_font(match: re.Match[str]) -> str:
    """A text font: words and possible units stay in it; a lone space separates."""
    content = match[1]
    if _WORD.search(content) or _LETTER_UNIT.fullmatch(content) or _QUOTIENT_UNIT.fullmatch(content):
        return f"\\text{{{content}}}"
    return f" {content} "


def undecorated(text: str) -> str:
    r"""The answer without decoration. Words stay in `\text{...}`; every space left is one blank."""
    text = _FRACTION.sub(lambda _: "\\frac", plain_letters(text)).replace("{,}", ",") + " "
    if "\\" in text or "$" in text:
        text = _COLOURED.sub("", text)
        text = _DOLLAR.sub("", _DROPPED.sub("", _NARROW.sub("", text)))
        text = _CHOOSE.sub(r"\\binom{\1}{\2}", text).replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
        text = _ANGLED.sub(lambda match: "(" if match[1] == "l" else ")", text.replace("\\colon", ":"))
        text = _THOUSANDS.sub(lambda match: match[1] + re.sub(r"\D", "", match[2]), text)
    elif "~" in text or " " in text.strip():
        text = _THOUSANDS.sub(lambda match: match[1] + re.sub(r"\D", "", match[2]), text)
    text = _HALF_OF_DAY.sub(r"\1\2", _CROSS.sub(r"\\times ", _SPACES.sub(" ", text).strip()))
    for _ in range(_PASSES if "\\" in text else 0):
        changed = _TEXT_FONT.sub(_text_font, _MATH_FONT.sub(_math_font, _DOUBLE.sub(r"{\1}", text)))
        if changed == text:
            changed = _NESTED_FONT.sub(r" \1 ", text)
        if changed == text:
            break
        text = changed
    text = _SPACES.sub(" ", _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)).strip()
    for _ in range(_PASSES):
        inner = _MARKDOWN.sub(r"\2", text).rstrip(".,;").strip()
        if inner[:1] == "{" and len(inner) > 1 and braced(inner, 0) == inner[1:-1]:
            inner = inner[1:-1].strip()
        if inner == text:
            break
        text = inner
    return text
