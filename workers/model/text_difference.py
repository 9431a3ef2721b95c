"""Whether the text of a response is all that was sampled: rewards, pages and peers know the text alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.contract.events import TextDifference
from workers.model.thoughts import sampled_text, thought_marks

BROKEN = "\ufffd"  # what decoding writes for bytes that are no character


def text_difference(tokenizer: Any, token_ids: Sequence[int]) -> TextDifference:
    """Why the text of ids, without their EOS, does not lead back to them; empty if it does.

    Another division of the same text into tokens is no difference, nor is the tokenizer's own normal form.
    """
    thoughts = {token for mark in thought_marks(tokenizer).ids for token in mark}
    ids = [token for token in token_ids if token not in thoughts]
    text = sampled_text(tokenizer, ids)
    again = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
    if list(again) == ids:
        return ""
    if BROKEN in text:
        return "characters"
    added = tokenizer.added_tokens_decoder  # made anew at each look
    if any(added[token].special for token in ids if token in added):
        return "special"
    before = tokenizer("1", add_special_tokens=False).input_ids
    within = sampled_text(tokenizer, [*before, *ids]).removeprefix(sampled_text(tokenizer, before))
    if within != text and within.lstrip() == text.lstrip():
        return "space"
    return "" if sampled_text(tokenizer, again) in (text, _normalized(tokenizer, text)) else "other"


def whole_characters(text: str) -> str:
    """The text up to the first bytes that are no character."""
    return text.partition(BROKEN)[0]


def _normalized(tokenizer: Any, text: str) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return str(backend.normalizer.normalize_str(text)) if backend is not None and backend.normalizer else text
