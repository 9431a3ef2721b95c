"""Why the text of a response may not be what was sampled: by cause, for accounts."""

from __future__ import annotations

from typing import Literal

# By cause what is counted, for people.
CAUSES = {
    "characters": "bytes that are no whole character, as where an answer was cut",
    "special": "special tokens, which have no text",
    "space": "a space at the beginning, which the tokenizer's decoder drops",
    "other": "a text that the tokenizer encodes to another text",
}
TextDifference = Literal["", "characters", "special", "space", "other"]
