"""Whole responses with a label: what is stated counts, what is taken back, doubted or only supposed does not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.mathematics.statements.retractions import taken_back
from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.service import Verifier

CASES = Path(__file__).resolve().parents[2] / "data" / "verifier_responses.jsonl"


def test_labelled_responses_are_judged_as_labelled():
    """Written against the rules and mended by rule: at first 22 of 166 wrong ones counted, 19 of 82 right ones not."""
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    assert len(cases) > 220
    with Verifier("math") as verifier:
        found = verifier.score([case["response"] for case in cases], [case["gold"] for case in cases])
    pairs = zip(cases, found, strict=True)
    assert [case for case, verdict in pairs if verdict.reward != float(case["expected"])] == []


@pytest.mark.parametrize(
    ("answer", "rest", "begins"),
    [
        ("42", ". Wait, it is 43.", "Wait"),
        ("42", " is wrong", " is wrong"),
        ("42", ", no wait, 43", "no wait"),
        ("42", "$. I made a mistake.", "I made"),
        ("42", ". Wait, 6 times 7 is 42.", None),
        ("42", ". Wait, let me check. Yes.", None),
        ("42", ". Wait.", "Wait"),
        ("42", ". The correct answer is 42.", None),
        ("42", ". The correct answer is 43.", "correct answer"),
        ("no", ". No, it is not possible.", None),
        ("42", ". No other works.", None),
        ("42", "", None),
        ("", ". Wait, it is 43.", "Wait"),
    ],
)
def test_text_behind_an_answer_takes_it_back_or_not(answer, rest, begins):
    place = taken_back(answer, rest)
    assert (place is None) == (begins is None)
    assert begins is None or rest[place:].strip().startswith(begins.strip())


def test_what_is_stated_behind_a_retraction_is_the_answer():
    assert answer_in(r"\boxed{42}. Wait, that is wrong: $43$.", "strict") == "43"
    assert answer_in(r"\boxed{42}. Wait, it is 43.", "strict") is None
    assert answer_in(r"\boxed{42}. Wait, it is 43.", "flexible") == "43"
    text = "The answer is 1. " + "".join(f"No, the answer is {n}. " for n in range(2, 30))
    assert answer_in(text, "strict") == "29"
    assert answer_in("The answer is 41. Oops, 1. " * 30, "strict") is None


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "Wait, ",
            "No, ",
            "The answer is 5. ",
            "<answer>5</answer> no ",
            "it is 5, ",
            "\\boxed{5} is wrong ",
            "sorry ",
        ),
        *("5 is right ", "<think>", "</think>", "#### 5\n", "**Answer:** ", "Answer:\n", "```\n", "The is ", "$\\$"),
        *("(by ", "- ", "not 5 but "),
    ],
)
def test_hostile_response_is_read_in_no_time(piece):
    begin = time.process_time()
    for head in ("", "The answer is 5. ", r"\boxed{5} "):
        for extraction in ("strict", "flexible"):
            kind_of("math", 1e-4, extraction).quick_verdict(head + piece * (30_000 // len(piece)), "5,6")
    assert time.process_time() - begin < 2  # in the trainer's own process, where nothing could end it


@pytest.mark.parametrize(
    ("answer", "rest", "is_back"),
    [
        # What is said of another value takes no answer back.
        ("42", ". If we try x = 41, it does not work.", False),
        ("42", " is the least: for $n=41$ this fails.", False),
        ("42", ". (For $n=43$ the sum is 44, which is too large.)", False),
        ("42", " (we reject $x=-3$, as it is not valid)", False),
        ("42", ". If it were 43, the sum would be 44, which is not correct.", False),
        ("42", ". Could it be larger? No, because the bound is attained.", False),
        ("42", ". Is there another solution? No, that would contradict parity.", False),
        ("42", ", which is not so surprising.", False),
        ("42", ". My apologies if the notation was confusing.", False),
        ("42", ". Wait, let me verify: the left side is 10, the right side is 10. Yes, it works.", False),
        ("42", ". Let me redo the computation to be safe: 6*7 = 42.", False),
        ("42", ". It is $42.00$.", False),
        ("42", " dollars. It is $42.00.", False),
        # Nor does another way to say the answer.
        ("0", ". It is impossible.", False),
        ("0", ", because it is not possible to tile the board.", False),
        (r"\emptyset", ". This is impossible.", False),
        (r"\frac{1}{2}", ". That is 0.5.", False),
        (r"25\%", ". It is 0.25.", False),
        (r"2\sqrt{3}", ". That is $3.46$.", False),
        ("2^{10}", ", that is 1024.", False),
        # What is said of the answer itself does.
        ("42", ". If we plug in 42, we get 43, so this is wrong.", True),
        ("42", ". Hmm, for x=42 it does not work.", True),
        ("42", ". Is that right? No, it is 43.", True),
        ("42", ". However, this is not so.", True),
        ("42", ". Let me redo the computation: 6*7 = 43.", True),
        ("42", ". Wait, let me check: 6 times 7 is 43. That is not quite right.", True),
        ("42", ". Wait, let me check: it is 43. Yes, 43 is correct.", True),
    ],
)
def test_only_what_is_said_of_the_answer_takes_it_back(answer, rest, is_back):
    assert (taken_back(answer, rest) is not None) == is_back
