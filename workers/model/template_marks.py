"""The marks of a tokenizer, such as <|im_end|>, and text of data beside them, which stays text whatever it looks like.

Text without the words of a mark is encoded as the tokenizer does it. Else the words in data are split by a character
that no data holds, so that a template writes its own marks alone, and the whole is encoded by a twin of the tokenizer
whose marks have names that nobody writes: merges, spaces and normal forms are those of the tokenizer.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

PRIVATE = range(0xE000, 0xF8FF)  # characters of no meaning, one of which splits words
# What families write as a mark, also where it is a plain added token: <|im_end|>, <think>, </tool_call>, [INST].
_CONTROL = re.compile(r"<[|｜].*[|｜]>|\[/?[A-Z][A-Z_]+\]|</?(seed:)?(think|thought|tool|function)\w*>", re.DOTALL)
# Those of them that an agent's own answer has.
_OF_ANSWERS = re.compile(r"</?(seed:)?(think|thought|tool|function)\w*>|\[/?(THINK|TOOL_CALLS)\]")


class MarkInText(ValueError):
    """A text holds the words of a mark, which the tokenizer cannot write as text."""


@dataclass(frozen=True)
class GuardedTexts:
    """Texts of data as a template gets them. splitter: the character that splits the words of marks in them, if any."""

    marks: TemplateMarks
    texts: tuple[str, ...]
    splitter: str = ""
    words: str = ""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """The ids of what a template has made of the texts: its own marks alone are marks. Error: MarkInText."""
        if not self.splitter:
            return self.marks.encode_template(text, add_special_tokens=add_special_tokens)
        return self.marks.encode_guarded(text, self.splitter, self.words, add_special_tokens=add_special_tokens)


class TemplateMarks:
    """The marks of one tokenizer: its special pieces, and plain ones that its template writes or that look like marks.

    ids: by the words of each.  bos: what the tokenizer itself puts before every text, if anything.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._template = str(tokenizer.chat_template or "")
        added = {token.content: (place, token) for place, token in tokenizer.added_tokens_decoder.items()}
        known = {*tokenizer.all_special_ids}
        self.ids: dict[str, int] = {
            words: place
            for words, (place, token) in added.items()
            if words.strip()
            and (token.special or place in known or words in self._template or _CONTROL.fullmatch(words))
        }
        plain = {words for words in self.ids if not added[words][1].special}
        self._of_answers = {words for words in plain if _OF_ANSWERS.fullmatch(words)}
        self._pattern = re.compile("|".join(map(re.escape, sorted(self.ids, key=len, reverse=True))) or "(?!)")
        is_normalized = any(added[words][1].normalized for words in self.ids)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        normalizer = backend.normalizer if backend is not None and is_normalized else None
        self._normalized: Callable[[str], str] | None = normalizer.normalize_str if normalizer else None

    def fits(self, tokenizer: Any) -> bool:
        """Whether these are still the marks: a template may have been set since."""
        return str(tokenizer.chat_template or "") == self._template

    @cached_property
    def bos(self) -> int | None:
        first = list(self._tokenizer("1").input_ids)[:1]
        return self._tokenizer.bos_token_id if first == [self._tokenizer.bos_token_id] else None

    def holds_mark(self, *texts: str) -> bool:
        """Whether texts of data hold the words of a mark."""
        return any(
            self._pattern.search(text) or (self._normalized and self._pattern.search(self._normalized(text)))
            for text in texts
        )

    def guard(self, *data: str) -> GuardedTexts:
        """Texts of data, as they may be put into a template."""
        if not self.holds_mark(*data):
            return GuardedTexts(self, data)
        splitter = next(one for one in map(chr, PRIVATE) if not any(one in text for text in data))
        return GuardedTexts(self, tuple(self._split(text, splitter) for text in data), splitter, self._words(data))

    def _words(self, data: Sequence[str]) -> str:
        """The first mark in the texts, for messages."""
        plain = [*data, *map(self._normalized, data)] if self._normalized else data
        return next(match[0] for text in plain if (match := self._pattern.search(text)))

    def encode_template(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text in which what looks like a mark is one."""
        return list(self._tokenizer(text, add_special_tokens=add_special_tokens).input_ids)

    def encode_guarded(self, text: str, splitter: str, words: str, *, add_special_tokens: bool) -> list[int]:
        """As GuardedTexts.encode. words: the first mark in data. Error: MarkInText."""
        marks = self._pattern.findall(text)
        pieces = [piece.replace(splitter, "") for piece in self._pattern.split(text)]
        ids = self._join(pieces, marks, add_special_tokens=add_special_tokens)
        own = {*self.ids.values()}
        around = [token for token in self._tokenizer("").input_ids if token in own] if add_special_tokens else []
        if len([token for token in ids if token in own]) > len(marks) + len(around):
            raise MarkInText(f"it holds {words!r}, which this tokenizer reads as a mark and cannot write as text")
        return ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of data alone, between two marks of a template; what the tokenizer cannot write becomes unknown."""
        if self.holds_mark(text):
            return self._join([text], [], add_special_tokens=False)
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids)

    def encode_answer(self, text: str) -> list[int]:
        """The ids of an answer: plain marks of thoughts and tool calls are marks, and those of turns are text."""
        if not self.holds_mark(text):
            return self.encode_text(text)
        own = [match for match in self._pattern.finditer(text) if match[0] in self._of_answers]
        starts, ends = [0, *(match.end() for match in own)], [*(match.start() for match in own), len(text)]
        pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return self._join(pieces, [match[0] for match in own], add_special_tokens=False)

    def _split(self, text: str, splitter: str) -> str:
        while self._pattern.search(text):  # within one mark may be another
            text = self._pattern.sub(lambda match: match[0][0] + splitter + match[0][1:], text)
        return text

    def _join(self, pieces: Sequence[str], marks: Sequence[str], *, add_special_tokens: bool) -> list[int]:
        """The ids of pieces of text with a mark between each two."""
        if self._twin is not None:
            names = [self._twin[1][mark] for mark in marks]
            text = pieces[0] + "".join(name + piece for name, piece in zip(names, pieces[1:], strict=True))
            return list(self._twin[0].encode(text, add_special_tokens=add_special_tokens).ids)
        ids: list[int] = []
        for place, piece in enumerate(pieces):
            ids += [self.ids[marks[place - 1]]] if place else []
            ids += self._tokenizer(piece, add_special_tokens=False, split_special_tokens=True).input_ids
        return list(self._tokenizer.build_inputs_with_special_tokens(ids)) if add_special_tokens else ids

    @cached_property
    def _twin(self) -> tuple[Tokenizer, dict[str, str]] | None:
        return twin_of(self._tokenizer, self.ids)


def twin_of(tokenizer: Any, marks: Iterable[str]) -> tuple[Tokenizer, dict[str, str]] | None:
    """A tokenizer with other names of marks, which nobody can guess, and these names; None where it cannot be made."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    names = {mark: f"\uf8fe{secrets.token_hex(8)}\uf8ff" for mark in marks}
    if not names:
        return None
    twin = Tokenizer.from_str(with_names(backend.to_str(), names))
    twin.no_truncation()
    twin.no_padding()
    is_same = all(twin.token_to_id(name) == backend.token_to_id(mark) for mark, name in names.items())
    return (twin, names) if is_same else None


def with_names(text: str, names: dict[str, str]) -> str:
    """A tokenizer.json whose added tokens, and their entries in the vocabulary, have other names; the ids stay."""
    quoted = {json.dumps(mark, ensure_ascii=False): json.dumps(name) for mark, name in names.items()}
    return re.sub("|".join(map(re.escape, quoted)), lambda match: quoted[match[0]], text)


_MARKS: WeakKeyDictionary[Any, TemplateMarks] = WeakKeyDictionary()


def marks_of(tokenizer: Any) -> TemplateMarks:
    """The marks of a tokenizer, read once."""
    if tokenizer not in _MARKS or not _MARKS[tokenizer].fits(tokenizer):
        _MARKS[tokenizer] = TemplateMarks(tokenizer)
    return _MARKS[tokenizer]
