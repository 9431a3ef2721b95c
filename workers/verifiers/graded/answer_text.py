"""The part of a response that graded verifiers compare: without thoughts; the last `<answer>`, box, or all of it."""

from __future__ import annotations

from workers.verifiers.mathematics.extraction import final_answer, has_box

MAX_CHARACTERS = 100_000


def answer_text(response: str) -> str:
    """Empty if its thoughts are not closed, if its last box is not, or if there is nothing else."""
    text = response[-MAX_CHARACTERS:].rpartition("</think>")[2]
    if "<think>" in text:
        return ""
    for piece in reversed(text.split("</answer>")[:-1]):
        _, tag, content = piece.rpartition("<answer>")
        if tag:
            return content.strip()
    if has_box(text):
        return (final_answer(text) or "").strip()
    return text.strip()
