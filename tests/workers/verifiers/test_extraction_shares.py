"""`python -m workers.verifiers.extraction_shares`: how many answers each extraction reads and finds correct."""

from __future__ import annotations

import pytest

from workers.questions.columns import texts_read
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.extraction_shares import extraction_shares

PAIRS = [(r"so \boxed{7}", "7"), ("so it is 7", "7"), ("so it is 8", "7"), ("I cannot say", "7"), (r"7 \boxed{7", "7")]


@pytest.mark.parametrize("verifier", ["math", "numeric"])
def test_answers_are_counted_by_what_is_read_and_correct(verifier):
    assert extraction_shares({"verifier": verifier, "tolerance": None, "pairs": PAIRS}) == {
        "num_answers": 5,
        "strict": {"read": 1, "correct": 1},
        "flexible": {"read": 3, "correct": 2},  # the box that is not closed is not read
    }


def test_unknown_verifier_is_refused():
    with pytest.raises((VerifierError, KeyError)):
        extraction_shares({"verifier": "none", "tolerance": None, "pairs": PAIRS})


def test_texts_of_a_file_are_counted_by_column_and_lists_are_sampled_answers():
    words = "because of a long chain of reasons that fills the line"
    rows = [
        {"question": f"{words}: what is 7?", "answer": "7", "solution": rf"{words} \boxed{{7}}", "notes": words,
         "samples": [f"{words} it is 7", f"{words} The answer is 7.", words]},
        {"question": f"{words}: what is 8?", "answer": "8", "solution": f"{words} #### 8", "samples": []},
    ]  # fmt: skip
    assert texts_read(rows, "question") == [
        {"column": "solution", "num_texts": 2, "strict": 2, "flexible": 2},
        {"column": "samples", "num_texts": 3, "strict": 1, "flexible": 2},
    ]  # the answers are short, and no number is in the notes
