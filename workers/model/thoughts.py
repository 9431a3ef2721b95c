"""Thoughts of reasoning models: the marks of a family, and whether a prompt ends within a thought.

In texts that agents exchange, that verifiers and people read, a thought stands between <think> and </think>, whatever
the family's marks are, and also where the chat template opened it. Nothing of it is known to verifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

OPENING, CLOSING = "<think>", "</think>"
# Marks of families, by what opens and what closes a thought. Where several are known, the first one of the tokenizer.
PAIRS = (
    (OPENING, CLOSING),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<thought>", "</thought>"),
    ("<thinking>", "</thinking>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)


@dataclass
class ThoughtMarks:
    """The marks of one tokenizer's family. ids: of both, where decoding would leave them out; else empty.

    is_known: the tokenizer or its template has such marks; else they are those of most.
    """

    tokenizer: Any
    opening: str = OPENING
    closing: str = CLOSING
    ids: tuple[list[int], ...] = ()
    is_known: bool = True

    @classmethod
    def of(cls, tokenizer: Any) -> ThoughtMarks:
        template, added = str(tokenizer.chat_template or ""), tokenizer.added_tokens_encoder
        pair = next((one for one in PAIRS if one[0] in added or one[0] in template), None)
        if pair is None:
            return cls(tokenizer, is_known=False)
        special = {place for place, token in tokenizer.added_tokens_decoder.items() if token.special}
        ids = tuple(list(tokenizer(words, add_special_tokens=False).input_ids) for words in pair)
        return cls(tokenizer, *pair, ids if special & {*ids[0], *ids[1]} else ())

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a response without special tokens, with thoughts between <think> and </think>."""
        if not self.ids:
            text = sampled_text(self.tokenizer, token_ids)
            return text.replace(self.opening, OPENING).replace(self.closing, CLOSING) if self._has_other_words else text
        parts, start, place = [], 0, 0
        while place < len(token_ids):
            for mark, words in zip(self.ids, (OPENING, CLOSING), strict=True):
                if [*token_ids[place : place + len(mark)]] == mark:
                    parts += [sampled_text(self.tokenizer, token_ids[start:place]), words]
                    start = place = place + len(mark)
                    break
            else:
                place += 1
        return "".join([*parts, sampled_text(self.tokenizer, token_ids[start:])])

    @property
    def _has_other_words(self) -> bool:
        return self.opening != OPENING

    def runs(self, text: str) -> list[str | list[int]]:
        """A text of another agent in this family's marks: words to be encoded, and ids of marks."""
        if not self.ids:
            return [text.replace(OPENING, self.opening).replace(CLOSING, self.closing)]
        runs: list[str | list[int]] = []
        for place, part in enumerate(text.split(OPENING)):
            runs += [self.ids[0]] if place else []
            for number, piece in enumerate(part.split(CLOSING)):
                runs += [self.ids[1]] if number else []
                runs += [piece] if piece else []
        return runs

    def opened_at_end(self, prompt: str) -> str:
        """What of a prompt belongs to a thought that it opens and does not close, from <think>; else empty."""
        start = prompt.rfind(self.opening)
        rest = prompt[start + len(self.opening) :]
        return OPENING + rest if start >= 0 and self.closing not in rest else ""


def sampled_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """The text of ids without special tokens."""
    return str(tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


_KNOWN: WeakKeyDictionary[Any, tuple[str, ThoughtMarks]] = WeakKeyDictionary()


def thought_marks(tokenizer: Any) -> ThoughtMarks:
    """The marks of a tokenizer, read once for its chat template."""
    template = str(tokenizer.chat_template or "")
    if tokenizer not in _KNOWN or _KNOWN[tokenizer][0] != template:
        _KNOWN[tokenizer] = (template, ThoughtMarks.of(tokenizer))
    return _KNOWN[tokenizer][1]


def begins_within(text: str) -> bool:
    """Whether a text ends a thought that it does not begin."""
    head, has_closing, _ = text.partition(CLOSING)
    return bool(has_closing) and OPENING not in head


def without_thoughts(text: str) -> str:
    """What follows the thoughts; nothing if they are not closed."""
    if OPENING not in text and CLOSING not in text:
        return text
    answer = text.rpartition(CLOSING)[2]
    return "" if OPENING in answer else answer.lstrip()
