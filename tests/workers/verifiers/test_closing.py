"""How a response without a box and a stated answer ends: a formula, a list of them, or none that counts."""

from __future__ import annotations

import time

import pytest

from workers.verifiers.mathematics.last_number import last_number
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.mathematics.statements.closing import closing_formula
from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.service import Verifier


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Hence $n = 42$.", "n = 42"),
        ("Hence it is $.42$.", ".42"),
        ("so it is $42$ apples", None),
        ("It is never $42$", ""),
        ("It cannot be equal to $42$", ""),
        ("It is at least $42$", ""),
        ("Consider the case that $n=42$", ""),
        ("The maximum is $7$ when $n=42$.", ""),
        (r"$$\begin{aligned} x & =40+2 \\ & =42 .\end{aligned}$$", "=42"),
        (r"$$\begin{array}{r} 41 \\ 42 \end{array}$$", r"\begin{array}{r} 41 \\ 42 \end{array}"),
        (r"$41 \iff 42$", ""),
        ("the roots are $41$ and $42$.", "41, 42"),
        ("$x_1=5$ or $x_2=6$", "x_2=6"),
        ("$x=5$ or $x=6$", "x=5, x=6"),
        ("So $n=4$, as desired.", "n=4"),
        (r"So $n=4$. $\Box$", "n=4"),
        ("No formula at all.", None),
        *((text, None) for text in ("$", "$$", "$$$", "")),
    ],
)
def test_closing_formula_counts_unless_its_sentence_denies_it(text, answer):
    assert closing_formula(text, is_list=False) == answer


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("Therefore, $x=5$ or $x=-2$.", "x=5, x=-2"),
        ("the pairs are $(3,0)$, $(1,2)$, and $(-3,1)$.", "(3,0), (1,2), (-3,1)"),
        ("Thus, $k-6=2$ or $k-6=-2$, and so $k=8$ or $k=4$.", "k=8, k=4"),
        ("It is between $41$ and $42$.", ""),
    ],
)
def test_formulas_with_only_a_comma_and_or_between_them_are_a_list(text, listed):
    assert closing_formula(text, is_list=True) == listed


DENIALS = [
    "We reject $x=5$ since it is negative.",
    "We reject $x=5$.",
    "It is impossible that $x=5$ because $x$ is even.",
    "It is false that $x=5$ because it is odd.",
    "There is no solution with $x=5$ because it is odd.",
    "We have ruled out $x=5$ because it is odd.",
    "A common error gives $x=5$, because one forgets the sign.",
    "Neither $5$ is the answer.",
    "It is impossible that $5$ is the answer.",
    "I disagree that $5$ is the correct answer.",
    "x is anything but $5$, as required.",
    "All values work except for $5$, as desired.",
    "$x=5$ (note this fails, so $x=6$)",
    "Trying $x=5$ (since this fails, $x=6$)",
    "$x=5$. We can check that this fails, so the value is $6$.",
    "We get $x=5$. We can verify that $x=5$ is extraneous.",
    "One would expect $x=5$ since the pattern suggests it, and yet it is 6.",
    "So $5$ is the largest value that fails.",
    "So $5$ is the smallest number that does not work.",
]


@pytest.mark.parametrize("kind", ["math", "numeric"])
def test_denied_formula_is_rewarded_neither_as_a_formula_nor_as_a_number(kind):
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    with Verifier(kind, extraction="strict") as verifier:
        verdicts = verifier.score(DENIALS, ["5"] * len(DENIALS))
    assert [text for text, verdict in zip(DENIALS, verdicts, strict=True) if verdict.reward] == []


BOLD = [
    ("There are **3** boxes with 4 each, so the total is 12.", "12"),
    ("Each of the **4** workers earns 10, so together they earn 40 dollars.", "40"),
    ("So she pays **$4** per ticket for 5 tickets, which is $20.", "20"),
    ("In **2024** he will be 37 years old.", "37"),
    ("So the total is **12** for 3 boxes.", "12"),
    ("12 + 3 = **15** in 4 weeks.", "15"),
    ("After 4 weeks he has **15** coins.", "15"),
]


@pytest.mark.parametrize(("text", "number"), BOLD)
def test_number_in_bold_is_the_answer_unless_another_follows_it(text, number):
    assert last_number(text) == number


def test_statement_comes_before_formulas_and_a_box_before_everything():
    text = "The answer is 7. (We can check that $x=5$ or $x=6$.)"
    assert answer_in(text, "strict") == "7"
    assert answer_in(text, "flexible", is_list=True) == "7"
    text = r"\boxed{7} so $x=5$ or $x=6$, as desired."
    assert [answer_in(text, "strict"), answer_in(text, "flexible", is_list=True)] == ["7", "7"]


LISTS = [
    ("they are 1, 3 and 42.", "1,3,42", 1.0),
    ("they are 1, 3 and 42.", "3,1,42", 1.0),
    ("they are $1,3$ and $42$ here", "1,3,42", 1.0),
    ("they are -1, 2.5, 3/4.", r"-1,2.5,\frac34", 1.0),
    ("they are 1, 3 and 42.", "1,3", 0.0),
    ("they are 1, 3 and 42, of 9.", "1,3,42", 0.0),
    ("there are $n-1$ of them", "n-1", 1.0),
    ("there are $n-1$ of them", "1", 0.0),
    ("there are 7 for each $n$ here", "7", 1.0),
    ("it costs $5 for n-1 and $7 for n", "7", 1.0),
]


def test_flexible_extraction_reads_lists_and_formulas():
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    with Verifier("math", extraction="flexible") as verifier:
        verdicts = verifier.score([text for text, _, _ in LISTS], [gold for _, gold, _ in LISTS])
    assert [verdict.reward for verdict in verdicts] == [reward for _, _, reward in LISTS]


@pytest.mark.parametrize(
    "piece",
    [
        *("$", "$ since ", "$x$ because ", " (note ", "$5$ or ", "$a$, ", "**5 ", "[note: (", "$ is the only ", "1, "),
        *("1 and ", "$n$ for all a ", "The answer is ", "We can check ", "\\begin{aligned}", "$x$ is the answer of "),
        *(". A", "\\Rightarrow "),
    ],
)
@pytest.mark.parametrize("end", ["", "$", ")", "$x$"])
def test_hostile_endings_are_read_in_no_time(piece, end):
    text = piece * (30_000 // len(piece)) + end
    begin = time.process_time()
    for extraction in ("strict", "flexible"):
        kind_of("math", 1e-4, extraction).quick_verdict(text, "5,6")
    assert time.process_time() - begin < 2  # in the trainer's own process, where nothing could end it
