"""Short forms of names that are listed together: what all of them share is left out, what differs stays.

`distinctNames` of `frontend/static/js/lib/short-names.js` is the same in the browser; `tests/data/short_names.json` has
the cases that both meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORDS = re.compile(r"[^\s,:/_-]+[\s,:/_-]*|[\s,:/_-]+")
MOST_LETTERS = 24


def distinct_names(names: Sequence[str], most: int = MOST_LETTERS) -> list[str]:
    """The names in their order, each with its own words. Shared first words become an ellipsis, as few as
    leave at most `most` letters; if that is not enough, shared last ones too.

    Names that are all at most `most` letters long, and a name alone, stay whole. Unequal names stay unequal.
    """
    different = list(dict.fromkeys(names))
    if len(different) < 2 or all(len(name) <= most for name in different):
        return list(names)
    words = [_WORDS.findall(name) for name in different]
    head = _num_shared(words)
    for dropped in range(1, head + 1):  # as many shared words stay as there is room for
        short = [_joined(own[dropped:], True, False) for own in words]
        if all(len(name) <= most for name in short):
            break
    else:
        rest = [own[head:] for own in words]
        tail = _num_shared([own[::-1] for own in rest])
        short = [_joined(own[: len(own) - tail], head > 0, tail > 0) for own in rest]
    if len(set(short)) < len(different):  # they differ in a mark at an end alone
        return list(names)
    by_name = dict(zip(different, short, strict=True))
    return [by_name[name] for name in names]


def _num_shared(words: Sequence[Sequence[str]]) -> int:
    """How many first words all have, of which each keeps one at least."""
    most = min(map(len, words)) - 1
    return next((at for at in range(most) if len({own[at] for own in words}) > 1), max(most, 0))


def _joined(words: Sequence[str], has_head: bool, has_tail: bool) -> str:
    return f"{'…' if has_head else ''}{''.join(words).strip(' ,:/_-')}{'…' if has_tail else ''}"
