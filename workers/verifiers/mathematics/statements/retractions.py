r"""Whether a response takes its answer back: `The answer is 42. Wait, it is 43.`, `\boxed{42} is wrong`.

A denial takes it back. A second thought, such as `wait`, does where another value follows it, and not where it ends in
the same one. Standard library only; every pattern is linear in the text, of which a bounded part is looked at.
"""

from __future__ import annotations

import re

from workers.verifiers.mathematics.plain_numbers import number
from workers.verifiers.mathematics.statements.negation_words import doubts, is_negated

_MOST = 20_000  # characters behind an answer
_NEAR = 300  # here, `this` and `it` are the answer

_START = r"(?:^|(?<=[.!?;:,\n(>$*)}\]—–-]))[\s*\"']{0,9}(?:(?:oh|well|but|and|so|ah|um+)\b[,.!…]*\s{1,3})?"
_VALUE = r"(?:\\?\$\s?[^$\n]{1,80}\$|\\\([^\n]{1,80}?\\\)|\*{0,2}\\?\$?-?\.?\d[\d,./]{0,30}%?)"
_MADE_AN_ERROR = r"(?:a|an|some)\s+(?:\w+\s+){0,2}(?:mistakes?|errors?|slip|oversight)"
_SORRY = re.compile(
    rf"{_START}(?:oops|(?:I'm\s+|I\s+am\s+)?sorry(?!\s+(?:for|about|if)\b)|(?:my\s+)?apologies(?!\s+if\b)|my\s+(?:mistake|bad)|correction\b|scratch\s+that|strike\s+that|just\s+kidding"
    r"|never\s?mind|on\s+second\s+thoughts?|I\s+(?:was|am|stand)\s+(?:wrong|mistaken|corrected)|I\s+apologi[sz]e"
    r"|I\s+take\s+(?:that|it)\s+back|ignore\s+(?:that|this|the\s+above)|let\s+me\s+(?:correct|revise|fix|redo|reconsider|rethink))\b"
    r"|^[\s\"”'’.,]{1,4}(?:said|says|claim(?:s|ed)|wrote|writes|replied)\s+\w"
    rf"|~~|\b(?:I|we)(?:\s+(?:do\s+not|don't|cannot|can't)\s+(?:agree|believe\s+(?:that|this|it|them|him|her))|\s+disagree|\s+doubt\s+(?:that|this|it))\b"
    rf"|\b(?:I|we)(?:'ve|\s+have)?\s+(?:made|overlooked|missed)\s+{_MADE_AN_ERROR}\b"
    rf"|\bthere(?:'s|\s+is|\s+was|\s+must\s+be)\s+{_MADE_AN_ERROR}\b",
    re.IGNORECASE,
)
_NEGATIVE = re.compile(r"\b(?:no|not|none|never|false|impossible|incorrect|wrong|invalid|cannot)\b", re.IGNORECASE)
_NO = re.compile(rf"{_START}(?:no(?=\s*[,.:;!—–-]|\s+(?:wait|it|that|this|the|I)\b)|nope)\b", re.IGNORECASE)
_ADVERB = r"(?:(?:\w+ly|just|simply|also|indeed|quite|still|so)\s+){0,2}"
_WRONG = (
    r"(?:wrong|incorrect|false|mistaken|invalid|impossible|extraneous|nonsense|rejected|refuted|disproved|a\s+(?:mistake|trap|guess|typo|misprint)|an\s+error"
    r"|inconsistent|inaccurate|untrue|bogus|flawed|unacceptable|absurd|ruled\s+out|excluded|discarded|eliminated|dismissed|far\s+from|nowhere\s+near"
    r"|(?:\w+\s+)?(?:(?:more|less|fewer|greater|smaller|larger)\s+than|twice|double|half)\s+(?:the|our|my)\s+(?:\w+\s+)?(?:answer|result)"
    r"|(?:my|our)\s+(?:old|first|previous|initial|original|earlier)\s+(?:answer|guess|result)"
    r"|(?:way\s+|a\s+(?:bit|little)\s+)?off(?:\s+by|(?=\s*(?:[.!,;]|$)))"
    r"|(?:marked|graded|flagged|counted)\s+(?:as\s+)?(?:wrong|incorrect|false)"
    r"|(?:(?:one|two|\d+)\s+)?too\s+(?:large|small|big|high|low|much|many|few)"
    r"|not\s+(?:\w+ly\s+|quite\s+|even\s+)?(?:acceptable|allowed|right|correct|possible|valid|true|it|so(?!\s+\w)|what\s+(?:we|was|is)|accurate|(?:the|my|an?|our)\s+(?:\w+\s+){0,2}(?:answer|solution|result|value)))\b"
)
_IS_WRONG = (
    rf"(?:(?:\s+(?:is|was|are|were|seems|looks|(?:must|would|may|might|could|will|can\s+only)\s+be|has\s+been)|'s)\s+{_ADVERB}{_WRONG}"
    r"|(?:\s+(?:is|was|are)n't|\s+can't\s+be|\s+cannot\s+be)\s+(?:\w+ly\s+)?(?:right|correct|true|valid|possible|it|so(?!\s+\w)|the\s+(?:\w+\s+)?answer)\b"
    r"|\s+(?:does\s+not|doesn't|do\s+not|don't|cannot|can't|fails\s+to)\s+(?:\w+ly\s+)?(?:work|make\s+sense|satisfy|hold|fit)\b"
    r"|\s+as\s+(?:wrong|incorrect|false|invalid)\b"
    r"|\s+(?:contradicts|violates|fails|leads?\s+to\s+(?:a\s+)?contradiction)\b"
    r"|\s+(?:\w+\s+){1,3}(?:marked|graded|flagged|rejected|refuted|dismissed|counted)\s+(?:(?:it|this|that)\s+)?as\s+(?:wrong|incorrect|false|invalid)\b)"
)
# What stands right behind an answer, or behind `this` near it.
_AT_ONCE = re.compile(
    rf"^[\s$*.)\]}}>'\",;!?\\`]{{0,12}}(?:\\?text\s*\{{)?(?:</answer>\s*)?(?:(?:but\s+)?(?:which|that|this|it|though)\b)?"
    rf"{_IS_WRONG}",
    re.IGNORECASE,
)
_NEAR_DENIAL = re.compile(
    rf"\b(?:(?:this|that|the)\s+(?:\w+\s+)?(?:solution|claim|argument|reasoning|value|guess|conjecture|statement|number|one)|this|that"
    rf"|it|which|they|he|she)(?=\s|'){_IS_WRONG}",
    re.IGNORECASE,
)
_FAR_DENIAL = re.compile(
    r"\b(?:the|my|our|this|that)\s+(?:(?:above|previous|first|final|stated|boxed|last)\s+)?(?:answer|result)"
    rf"(?:\s+above)?{_IS_WRONG}",
    re.IGNORECASE,
)
_SECOND_THOUGHT = re.compile(rf"{_START}(?:wait|hmm+|hold\s+on|hang\s+on)\b", re.IGNORECASE)
_ANOTHER = re.compile(
    rf"{_START}(?:actually|rather|I\s+mean|(?:or\s+)?(?:maybe|perhaps|possibly)|or\s+rather)\b", re.IGNORECASE
)
# Another value, said of the same thing.
_RIVAL = re.compile(
    r"\b(?:(?:it|that|this)(?:\s+(?:should|must|ought\s+to|would|will)\s+(?:be|have\s+been|read)|\s+is\s+(?:actually|really|rather|in\s+fact))"
    r"|(?:true|correct|right|real|actual)\s+(?:final\s+)?(?:answer|value|result|solution|number|one)\s*(?:is|was|should\s+be|must\s+be|:)"
    r"|re-?(?:check|calculat|comput|count)ing\s+(?:it\s+)?(?:gives|yields|shows)"
    rf"|should\s+(?:be|have\s+been|read))\s*:?\s*(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_IT_IS = re.compile(
    rf"^[\s\W]{{0,9}}(?:</answer>)?\s*(?:no\W+)?(?:it|that)(?:\s+is|'s|\s+was|\s+equals)\s+"
    rf"(?P<value>{_VALUE})\s*(?:[.!,;]|$)",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    rf"(?P<value>{_VALUE})\s+(?:is|was)\s+(?:(?:the|actually|indeed)\s+)*(?:right|correct|true)\b", re.IGNORECASE
)
# What else a denial may be of: `For 43, it fails`, `the other root $x=-3$ is extraneous: it is not positive`.
_OF_ANOTHER = re.compile(
    r"\b(?:if|for|with|when|were|suppos\w+|try\w*|reject\w*|exclud\w*|discard\w*|options?|other|larger|smaller|mistakes?)\b",
    re.IGNORECASE,
)
_SENTENCE_START = re.compile(r"[.!?][\s)]+|\n|^[\s.!?$)*\]}]+")
# `Could it be larger? No, because` denies something else.
_QUESTION = re.compile(
    r"\b(?:other|others|another|any|more|better|larger|smaller|greater|less|bigger|fewer|higher|lower)\b[^.!?\n]{0,80}\?\s*$",
    re.IGNORECASE,
)
_CHECK = re.compile(
    r"^[\s,.…:—–-]*(?:but\s+|so\s+)?(?:let\s+me|let's|let\s+us|I\s+should|we\s+should|I\s+need\s+to)\s+(?:just\s+|also\s+|quickly\s+)?"
    r"(?:double[\s-]?|re-?)?(?:check|verify|confirm|test)",
    re.IGNORECASE,
)
_ZERO = ("0", "emptyset", "varnothing", "∅")
# An answer that another number evaluates: `$2\sqrt{3}$. That is 3.46.`
_EXPRESSION = re.compile(r"\\(?:sqrt|pi|binom|log|ln|sin|cos|tan|exp)(?![a-zA-Z])|\^|!|:")
# "Actually it is m": a value in a letter or a word.
_IT_IS_ANOTHER = re.compile(
    r"^,?\s*(?:it|that)(?:\s+is|'s|\s+was)\s(?!(?:an?|the|well|also|easy|clear|clearly|correct|right|true|fine)\b)",
    re.IGNORECASE,
)
_AFFIRMATION = re.compile(
    r"(?<![\\\w])(?<!\bnot\s)(?<!n't\s)(?:yes|yep|correct|right|confirm(?:s|ed)|verified|checks?\s+out"
    r"|holds?|stands|matches|consistent|good|fine|works)\b|[✓✔✅]",
    re.IGNORECASE,
)
# Not a number within a formula: `it is (2,3)` ends in no value.
_ANY_VALUE = re.compile(rf"(?<![\w{{}}(\[,^/\\.+-]){_VALUE}(?![\w{{}})\]^/\\+])")
_CLOSING_SIGNS = " \t\r\n$.!*)}]\\"
_AROUND = re.compile(r"^(?:\\?\$|\\\(|[\s*])+|(?:\\?\$|\\\)|[\s*.,])+$")
_NOISE = re.compile(r"\\(?:text|mathrm|mathbf|left|right|boxed|[,;!()\[\]])|[\s$*{}\\,]|\.$")


def taken_back(answer: str, rest: str) -> int | None:
    """Where the text behind an answer begins to take it back; None if the answer stands.

    rest: what follows the answer, up to the end of the response.
    """
    rest = rest[:_MOST]
    if not rest.strip(_CLOSING_SIGNS):
        return None
    own = _bare(answer)
    # "The answer is no. It is not possible." confirms itself.
    far, near = ((_SORRY,), ()) if _NEGATIVE.search(answer) else ((_AT_ONCE, _SORRY, _FAR_DENIAL), (_NO, _NEAR_DENIAL))
    places = [match.start() for pattern in far if (match := _denial(pattern, rest, own))]
    places += [match.start() for pattern in near if (match := _denial(pattern, rest[:_NEAR], own))]
    for pattern in (_RIVAL, _IS_RIGHT) if _EXPRESSION.search(answer) else (_RIVAL, _IT_IS, _IS_RIGHT):
        places += [match.start() for match in pattern.finditer(rest[:_NEAR]) if not _is_same(match["value"], own)]
    second = _SECOND_THOUGHT.search(rest) or _ANOTHER.search(rest[:_NEAR])
    if second is not None and not _is_confirmed(rest[second.end() :], own, is_doubt=second.re is _SECOND_THOUGHT):
        places.append(second.start())
    return min(places, default=None)


def _denial(pattern: re.Pattern[str], rest: str, own: str) -> re.Match[str] | None:
    """The first match that denies the answer, and not another value."""
    for match in pattern.finditer(rest):
        if pattern in (_AT_ONCE, _NEAR_DENIAL) and own in _ZERO and "possible" in match[0].lower():
            continue  # "The answer is 0: it is impossible."
        if pattern is _NEAR_DENIAL and _is_of_another(rest[: match.start()], own):
            continue
        is_again = pattern is _SORRY and "let me" in match[0].lower()
        if is_again and _is_confirmed(rest[match.end() :], own, is_doubt=True):
            continue  # "Let me redo the sum: it is 42."
        if pattern is _NO and _QUESTION.search(rest[: match.start()]):
            continue
        return match
    return None


def _is_of_another(before: str, own: str) -> bool:
    """Whether the sentence before a denial supposes another value, and does not name the answer."""
    start = max((match.end() for match in _SENTENCE_START.finditer(before)), default=0)
    values = [match[0] for match in re.finditer(_VALUE, before[start:])]
    return bool(values) and not any(_is_same(one, own) for one in values) and bool(_OF_ANOTHER.search(before, start))


def _is_confirmed(thought: str, own: str, *, is_doubt: bool) -> bool:
    """Whether a second thought ends in the same answer. Without any value, a doubt needs an affirmation."""
    matches = list(_ANY_VALUE.finditer(thought))
    values = [match[0] for match in matches]
    end = thought[matches[-1].end() :] if matches else ""
    if is_doubt and _CHECK.match(thought) and _AFFIRMATION.search(end) and not (is_negated(end) or doubts(end)):
        return True  # "Wait, let me check: both sides are 10. Yes, it works."
    if not values:
        if not is_doubt:
            return not _IT_IS_ANOTHER.match(thought)
        return _AFFIRMATION.search(thought) is not None and not _IT_IS_ANOTHER.match(thought)
    if _is_same(values[-1], own):
        return True
    return any(_is_same(value, own) for value in values) and _AFFIRMATION.search(thought) is not None


def _is_same(value: str, own: str) -> bool:
    """Whether a value is written as the answer is, perhaps with a name before it."""
    bare = _bare(value)
    return bool(bare) and (bare == own or bare.rpartition("=")[2] == own.rpartition("=")[2])


def _bare(text: str) -> str:
    r"""Without decoration, and a plain number as its value: 0.5 is `\frac{1}{2}`."""
    name, equals, side = text.rpartition("=")
    plain = side.replace("{,}", ",").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    value = number(_AROUND.sub("", plain))
    if value is not None:
        return f"{_NOISE.sub('', name)}{equals}{value}"
    return _NOISE.sub("", _NOISE.sub("", text).rstrip("."))
