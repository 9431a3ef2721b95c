"""Symbols keep their case, and names of several letters stay one symbol, though algebra folds and multiplies them.

The parser of math-verify reads R as r, drops a prime and multiplies the letters of SRMC. Before it reads a pair of
answers, each symbol that it would confuse with another one is replaced in both by a letter that neither uses.
"""

from __future__ import annotations

import re
import string

# Commands, environments and the words in text fonts are no symbols.
_TOKEN = re.compile(
    r"\\(?:begin|end|operatorname\*?|math[a-z]+|text)\s*\{[^{}]*\}|\\[a-zA-Z]+|[A-Z]{4,}|[a-zA-Z](?:'+|\^\{?\\prime\}?)|[a-zA-Z]"
)
_KEPT = frozenset("deifghEIO")  # letters with a meaning of their own


def distinct_symbols(*texts: str) -> tuple[str, ...] | None:
    """The texts with symbols that algebra keeps apart; None if there are not enough letters."""
    names = {name for text in texts for name in _TOKEN.findall(text) if name[0] != "\\"}
    folded = {name.lower() for name in names if len(name) == 1}
    to_replace = [name for name in sorted(names) if len(name) > 1 or (name.isupper() and name.lower() in names)]
    if not to_replace:
        return texts
    free = [letter for letter in string.ascii_lowercase if letter not in folded and letter not in _KEPT]
    if len(free) < len(to_replace):
        return None
    letters = dict(zip(to_replace, free, strict=False))
    return tuple(_TOKEN.sub(lambda match: letters.get(match[0], match[0]), text) for text in texts)
