"""The words that deny or suppose an answer, and the patterns that are made of them. Standard library only."""

from __future__ import annotations

import re

_NOT = r"not|no|never|neither|nor|cannot|none|nothing"
# It is not so.
_DENIED = (
    r"wrong\w*|incorrect\w*|false|impossible|invalid|extraneous|absurd|mistak\w+|errors?|fail\w*|contradict\w*|refut\w*"
    r"|reject\w*|exclud\w*|except|rul(?:e|ed|es|ing)\s+out|discard\w*|eliminat\w+|disagree\w*|doubt\w*"
)
# It may be so.
_GUESSED = r"guess\w*|might|may|seems?|perhaps|maybe|possibly"
# It is tried, or asked.
_SUPPOSED = r"suppose|assume|try|trying|tried|expect\w*|naive\w*|whether|unless"

_NEGATION = re.compile(rf"\b(?:{_NOT})\b|n't\b", re.IGNORECASE)
_DENIAL = re.compile(rf"\b(?:{_NOT}|{_DENIED}|than|without|(?:anything|everything|all)\s+but)\b|n't\b", re.IGNORECASE)
_SUPPOSITION = re.compile(rf"\b(?:{_GUESSED}|{_SUPPOSED}|mistak\w+|errors?)\b", re.IGNORECASE)
# What is denied before one of these words is another thing: `We have not $41$, hence $42$`.
_CONSEQUENCE = re.compile(r"(?:^|[\s,;])(?:so|hence|thus|therefore|whence|consequently)\b", re.IGNORECASE)

# What governs a stated answer: the words before it, in its sentence, in its clause, or at once before it.
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?][\"'”’)*\]$\\]*\s+|[。！？]|\n\s*\n(?=[^\n]*[^\W\d_]{2})")
_CLAUSE_END = re.compile(
    r"[;,:，；：][\"'“*]*(?=\s)|\s[—–-]\s|\b(?:so|hence|thus|therefore|then|consequently|but|however|because|since|aber|sondern)\b",
    re.IGNORECASE,
)
_TURN = re.compile(r";\s|\b(?:but|so|hence|thus|therefore|however|actually)\b", re.IGNORECASE)
_NOT_ = r"(?:\b(?:not|never|cannot|neither|nor|nobody|none|nothing|no\s+one|no\s+longer)\b|n['’]t\b)"
_OPINION = (
    r"(?:true|(?:the|a)\s+case|correct|right|possible|clear|certain|sure|likely|think|believe|say|claim|mean|know|agree|accept"
    r"|conclude|follow|suggest|expect|argue)"
)
_SAYS = (
    r"(?:says?|said|claim(?:s|ed)?|think|thinks|thought|believe[sd]?|writes?|wrote|answer(?:s|ed)|guess(?:es|ed)|argue[sd]?"
    r"|suggest(?:s|ed)?|insist(?:s|ed)?|propose[sd]?|told)"
)
# To the end of the sentence: somebody else says it, or it is called an error.
_QUOTED = re.compile(
    r"\b(?:friend|student|teacher|colleague|classmate|brother|sister|neighbou?r|tutor|professor|grader|author|someone|somebody|some"
    rf"|people|many|others?|he|she|they|you|book|textbook|internet|forum|solution|claim|model)\b(?:\s+\w+){{0,3}}?\s+{_SAYS}\b"
    rf"|\b(?:was|were|been|is|am)\s+(?:told|claimed|said|alleged)\b|\b(?:supposed|alleged)ly\b|\btempt(?:ed|ing)\b"
    rf"|\b(?:may|might|could|would)\s+(?:\w+\s+)?(?:be\s+tempted|{_SAYS}|guess|expect|answer)\b"
    r"|\b(?:I|we)\s+(?:\w+\s+)?(?:thought|believed|guessed|assumed)\b"
    r"|\b(?:mistaken|wrong|incorrect|erroneous|naive|careless|false)ly\b|\bby\s+mistake\b|(?<!not\s)(?<!n.t\s)\bforget\w*|\bfalsch,\s+dass\b|\bfaux\s+que\b|\bfals\w+\s+(?:que|che)\b|\boverlook\w*|\bneglect\w*"
    r"|\b(?:common|usual|typical|frequent|classic|easy|popular)\s+(?:mistake|error|misconception|trap|pitfall|slip)s?\s+(?:here\s+)?(?:is|was|are|would\s+be)\b"
    r"|(?<!\bof\s)\b(?:wrong|incorrect|false|mistaken|erroneous|naive|invalid)\s+(?:answer|result|value|solution|guess|conclusion"
    r"|claim|choice|option)\s+(?:is|was|would\s+be|could\s+be|here)\b",
    re.IGNORECASE,
)
# To the end of the clause: it is supposed, or an opinion is denied.
_SUPPOSED_CLAUSE = re.compile(
    r"\b(?:suppose|assume|assuming|supposing|imagine|pretend|unless|whether|doubt\w*|den(?:y|ies|ied)|disagree\w*|disput\w+|disprov\w+|refut\w+"
    r"|pas|nicht|kein\w*|falsch|não|нет|не)\b|\bif\b(?!\s+(?:\S+\s+){2,}(?:we|you|one|I|it|this)\s+(?:get|obtain|find|have|is|gives)\b)"
    rf"|{_NOT_}\s+(?:\w+\s+){{0,2}}{_OPINION}\b|\b(?:wrong|false|incorrect|untrue|impossible|unlikely|absurd)\s+(?:that|to\s+\w+)\b"
    r"|不|并非|\b(?:no|non)\s+(?:es|son|puede|è|é)\b|\bcould\s+it\b|\bby\s+no\s+means\b|\bno\s+(?:way|chance)\s+(?:that\s+)?(?:the|it|this)\b",
    re.IGNORECASE,
)
_FINITE = r"(?:is|are|was|were|equals|gives|yields|leaves|becomes|remains|makes|we|it|he|she|they|there|only)\b"
_WORDS = rf"(?:(?!{_FINITE})[^\s,;:=]+\s+){{0,6}}[^\w=]*$"
# At once before it, with no verb of its own between.
_GOVERNED = re.compile(
    rf"(?:{_NOT_}|\b(?:than|without|except|unlike|versus|reject\w*|exclud\w+|discard\w*|eliminat\w+|dismiss\w*|avoid\w*|refus\w+"
    r"|ignored?|disregard\w*|bet\s+against|opposite\s+of)\b"
    r"|\b(?:instead|in\s+place)\s+of\b|\brul(?:e|es|ed|ing)\s+out\b|\bcontrary\s+to\b|\b(?:anything|everything|all)\s+but\b"
    rf"|\b(?:apart|far|aside)\s+from\b|\bas\s+opposed\s+to\b)\W*{_WORDS}",
    re.IGNORECASE,
)
_AT_LAST = re.compile(
    rf"(?:{_NOT_}|\bno(?!\s*[:,])|\b(?:might\s+be|may\s+be|could\s+be|e\.g\.|for\s+(?:example|instance),?|such\s+as|like"
    r"|in\s+the\s+form(?:at)?(?:\s+of)?|formatted\s+as|as\s+in)|\b(?:answer|result|value|it|sum|total)\s+(?:is|are|must\s+be)\s+"
    r"(?:\w+\s+)?(?:at\s+(?:least|most)|near|around|between|twice|double|triple|half(?:\s+of)?)"
    r"|\b(?:answer|result|value|it|sum|total)\s+exceeds|\bbetween\s+\S{1,20}\s+and|\\neq?(?![a-zA-Z])|≠|\\not\s*=|(?<![a-z]{2})[<>])[\s:$*(\\\[{]*$",
    re.IGNORECASE,
)
_ANY_WORD = re.compile(r"[^\W\d_]{2}|[<>≠?]|[不非]")
_TRIGGER = re.compile(
    r"n['’]t\b|[<>≠?不非]|\\n(?:eq?|ot)\b|e\.g\.|\b(?:no|non|pas|nicht|kein\w*|fals\w*|faux|não|не|нет|not|never|cannot|neither|nor|nobody|none|nothing|than|without|except|unlike|versus|of|out|to|but"
    r"|from|if|like|as|suppos\w*|assum\w*|imagine|pretend|unless|whether|doubt\w*|den\w+|dis\w+|re[fj]\w+|excl\w+|elim\w+|avoid\w*"
    r"|might|may|could|would|form\w*|example|instance|at|near|around|between|twice|double|triple|half|exceeds|way|chance|told|\w*ly|by|forget\w*|overlook\w*|negl\w+|wrong|incorrect|false"
    rf"|mistaken?|error|misconception|trap|pitfall|slip|ignored?|erroneous|naive|invalid|tempt\w+|thought|believed|guessed|{_SAYS})\b",
    re.IGNORECASE,
)
# Behind it: the sentence asks, or says in another language that it is not so.
_ASKED = re.compile(
    r"^[\s$)*\]}\\]*(?:[a-z][^.!?\n]{0,60})?[?？](?!\W*(?:yes|indeed|correct|right|exactly)\b)", re.IGNORECASE
)
_DENIED_BEHIND = re.compile(
    r"^[\s$)*\]}\\]*(?:was\s+(?:my|our|his|her|their|an?|the)\s+(?:\w+\s+){0,2}(?:guess|attempt|mistake|error|slip)\b"
    r"|(?:does|did|do)(?:\s+not|n['’]t)\s+(?:survive|hold|stand|work)\b|ist\s+(?:falsch|nicht)|est\s+faux|n'est\s+pas|(?:es|è|é)\s+(?:incorrect|fals|sbagliat|errad)|是错|不对|不是|では(?:な|あり)|이\s*아니)",
    re.IGNORECASE,
)
_FAR = 400  # characters of a sentence


def is_negated(text: str) -> bool:
    """Whether a text says `not` in some way."""
    return _NEGATION.search(text) is not None


def doubts(sentence: str) -> bool:
    """Whether a sentence denies what it ends with, or only tries it.

    A denial holds up to `so`, `hence` or `therefore`; what is tried is tried to the end of the sentence.
    """
    if _SUPPOSITION.search(sentence):
        return True
    start = max((match.end() for match in _CONSEQUENCE.finditer(sentence)), default=0)
    return _DENIAL.search(sentence, start) is not None


def is_unstated(before: str, behind: str = "") -> bool:
    """Whether an answer's own sentence denies, supposes, quotes or asks it. before, behind: the text around it."""
    tail = before[-_FAR:]
    if behind.strip(" $.)\n") and (_ASKED.match(behind) or _DENIED_BEHIND.match(behind)):
        return True
    if not _ANY_WORD.search(tail) or not _TRIGGER.search(tail):
        return False
    sentence = tail[max((match.end() for match in _SENTENCE_END.finditer(tail)), default=0) :]
    turned = sentence[max((match.end() for match in _TURN.finditer(sentence)), default=0) :]
    clause = sentence[max((match.end() for match in _CLAUSE_END.finditer(sentence)), default=0) :]
    return bool(
        _QUOTED.search(turned)
        or _SUPPOSED_CLAUSE.search(clause)
        or _GOVERNED.search(clause)
        or _AT_LAST.search(sentence)
    )
