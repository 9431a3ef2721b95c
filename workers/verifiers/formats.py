"""Rewards for the form of a response: a box, tags, its length. They need no reference answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workers.verifiers.mathematics.extraction import final_answer, has_box


def boxed_reward(response: str) -> float:
    """1 if the last box of the response is closed and not empty."""
    return float(has_box(response) and bool((final_answer(response) or "").strip()))


def tags_reward(response: str, tags: Sequence[str]) -> float:
    """1 if the response consists of these tags, each once and in this order, with text in each."""
    rest = response.strip()
    for tag in tags:
        start, end = f"<{tag}>", f"</{tag}>"
        if rest.count(start) != 1 or rest.count(end) != 1 or not rest.startswith(start):
            return 0.0
        content, _, rest = rest[len(start) :].partition(end)
        if not content.strip() or any(re.search(rf"</?{re.escape(other)}>", content) for other in tags):
            return 0.0
        rest = rest.strip()
    return float(not rest)


def length_reward(num_tokens: int, full_length: int, limit: int) -> float:
    """1 up to full_length tokens, then linear to 0 at `limit`."""
    if num_tokens <= full_length:
        return 1.0
    return max(0.0, (limit - num_tokens) / (limit - full_length)) if full_length < limit else 0.0
