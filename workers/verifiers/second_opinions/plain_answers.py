"""The answer of a response for the second verifier, where there is no doubt about which text it is.

It shares no code with `workers.verifiers.graded.answer_text` and `workers.verifiers.mathematics.extraction`.
"""

from __future__ import annotations

_THOUGHT, _END_OF_THOUGHT, _OPEN, _CLOSE = "<think>", "</think>", "<answer>", "</answer>"
_BOXES = ("\\boxed", "\\fbox", "\\bbox")


def plain_answer(response: str) -> str | None:
    """The content of the one `<answer>` or the one plain box, or a response without either; None if that is unclear.

    What is in `<think>` does not count.
    """
    text = response
    if _THOUGHT in text or _END_OF_THOUGHT in text:
        before, mark, text = text.partition(_END_OF_THOUGHT)
        if not mark or before.count(_THOUGHT) != 1 or _THOUGHT in text or _END_OF_THOUGHT in text:
            return None
    num_boxes = sum(text.count(box) for box in _BOXES)
    if _OPEN in text or _CLOSE in text:
        start, end = text.find(_OPEN), text.find(_CLOSE)
        is_one = text.count(_OPEN) == text.count(_CLOSE) == 1 and 0 <= start < end
        return text[start + len(_OPEN) : end].strip() if is_one and not num_boxes else None
    if not num_boxes:
        return text.strip()
    _, box, rest = text.partition("\\boxed{")
    content = _until_closed(rest)
    return content.strip() if box and num_boxes == 1 and content is not None and "\\" not in content else None


def _until_closed(text: str) -> str | None:
    """What comes before the brace that closes one more than are opened; None if there is none."""
    num_open = 1
    for place, letter in enumerate(text):
        num_open += {"{": 1, "}": -1}.get(letter, 0)
        if not num_open:
            return text[:place]
    return None
