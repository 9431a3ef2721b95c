"""Untrusted text made safe to read: invisible, reordering and control characters are written out."""

from __future__ import annotations

import unicodedata


def _written(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)  # ␛ for escape
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def _table() -> dict[int, str]:
    hidden = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    # Bidirectional controls, zero-width characters, tags and other invisible format characters.
    hidden += [code for code in (*range(0x80, 0x3000), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0080))
            if unicodedata.category(chr(code)) == "Cf"]  # fmt: skip
    joiners = {0x200C, 0x200D}  # part of ordinary words and emoji
    return {code: _written(code) for code in hidden if code not in joiners}


_TABLE = _table()


def visible(text: str) -> str:
    """The text with its control and format characters written out."""
    return text.replace("\r\n", "\n").translate(_TABLE)
