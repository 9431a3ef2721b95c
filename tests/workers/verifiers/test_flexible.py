"""Flexible extraction: the last number where strict extraction reads nothing, and strict extraction everywhere else."""

from __future__ import annotations

import hashlib
import json
import random
import time

import pytest
from pydantic import ValidationError

from tests.support.workers.verifier_examples import examples, flexible_examples
from tests.workers.verifiers.test_kinds import CASES
from workers.contract.spec.data import DataSpec
from workers.contract.verifier_kinds import FLEXIBLE_KINDS, kind_label
from workers.verifiers.mathematics.last_number import last_number
from workers.verifiers.mathematics.reading import answer_in
from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.service import Verifier, main, read_cases
from workers.verifiers.scoring.verdicts import CORRECT, NO_ANSWER, NO_NUMBER, TOO_LONG
from workers.verifiers.scoring.voting import Vote, stated_answer, vote

# By kind and version: what it says about the examples of docs/verifiers.md. New rules raise the kind's version.
DIGESTS = {"math/11 flexible": "903e5bf26c06e9ef", "numeric/9 flexible": "903e5bf26c06e9ef"}
SENTENCES = ("so she has {} apples left", "The total is {}.", "7 - 2 = {}", "**{}**", "Then there are {}!", "so ({})")


@pytest.fixture(scope="module")
def verifiers():
    made = {kind: Verifier(kind, extraction="flexible") for kind in FLEXIBLE_KINDS}
    yield made
    for verifier in made.values():
        verifier.close()


@pytest.mark.parametrize("kind", FLEXIBLE_KINDS)
def test_documented_examples_have_their_documented_verdicts(verifiers, kind):
    own = [example for example in flexible_examples() if example.kind == kind]
    found = verifiers[kind].score([example.response for example in own], [example.gold for example in own])
    wrong = [example for example, verdict in zip(own, found, strict=True) if verdict.reward != example.reward]
    assert wrong == []
    assert len(own) >= 50
    lines = sorted(json.dumps([one.response, one.gold, one.reward]) for one in own)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    label = kind_label(kind, "flexible")
    assert {label: digest} == {label: DIGESTS[label]}


@pytest.mark.parametrize("kind", FLEXIBLE_KINDS)
def test_what_strict_extraction_reads_flexible_extraction_reads_as_well(kind):
    strict, flexible = (kind_of(kind, 1e-4, extraction).quick_verdict for extraction in ("strict", "flexible"))
    pairs = [(example.response, example.gold) for example in (*examples(), *flexible_examples())]
    pairs += [(case["response"], case["gold"]) for case in read_cases(CASES)]
    read = [pair for pair in pairs if strict(*pair) != NO_ANSWER]
    assert len(read) > 200
    assert [pair for pair in read if strict(*pair) != flexible(*pair)] == []


def test_number_in_a_sentence_is_read_with_its_value():
    draw = random.Random(0)
    for _ in range(300):
        value = draw.choice((draw.randrange(-99, 100), draw.randrange(10**6), draw.randrange(10**5) / 100))
        text = draw.choice(SENTENCES).format(draw.choice(("{}", "{:,}")).format(value))
        assert last_number(text) == str(value), text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The answer is\n\n42", "42"),
        ("1. Buy 5\n2. Sell", "5"),
        ("so:\n42.", "42"),
        ("1. Buy\n2. Sell", None),
        ("① of 2, ② of 3", "3"),
        ("4\u200b2", "42"),
        ("𝟒𝟐", "42"),
        ("1\u06602", "102"),
        ("US$5", "5"),
        ("$5m", None),
        ("5m long", "5"),
        ("5k", None),
        (r"\$1\,000\,000", "1000000"),
        ("12,345,67", "67"),
        ("0,123", "123"),
        ("from 1.2.3", None),
        (r"\frac{x+1}{2}", None),
        (r"\frac{10}{-2}", None),
        ("2^{n-1}", None),
        (r"\sqrt[3]{8}", None),
        (r"0.\overline{3}", None),
        (r"\approx42", "42"),
        (r"3\times4", "4"),
        (r"-\frac12", r"-\frac{1}{2}"),
        ("$2.5 million", r"2.5\times10^{6}"),
        ("GPT4 and 1_000", None),
        ("是-5", "-5"),
        ("5e", None),
        ("", None),
    ],
)
def test_last_number_has_one_way_of_writing(text, found):
    assert last_number(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "9" * 200_000,
            "9" * 20_000 + "x",
            "1," + "000," * 5000 + "0000x",
            "1." * 10_000,
            "1/" * 10_000,
            "1 " * 10_000,
        ),
        *("\\frac{" + "1" * 19_000, "\\frac{1" * 3000, "-" * 20_000 + "5", "1" + " " * 19_000 + "%", "٤" * 20_000),
        *("½²①" * 7000, "10^{" * 5000, "1 x 10^" * 3000, "\n" * 19_990 + "2. x", "<think>" * 30_000, "a1" * 10_000),
    ],
    ids=range(17),
)
def test_hostile_text_holds_the_trainer_up_for_no_time(text):
    begin = time.process_time()
    for kind in FLEXIBLE_KINDS:
        kind_of(kind, 1e-4, "flexible").quick_verdict(text, "5")
    assert time.process_time() - begin < 2  # in the trainer's own process, where nothing could end it


def test_number_of_many_digits_is_too_long_and_is_still_compared_where_it_fits():
    verdict = kind_of("math", 1e-4, "flexible").quick_verdict
    assert verdict("so " + "9" * 2000, "9") == TOO_LONG
    assert verdict("so " + "9" * 150, "9" * 150) == CORRECT
    assert verdict("nothing", "9") == NO_NUMBER
    assert verdict("42 then" + " and" * 10_000, "42") == NO_NUMBER  # before the last 20,000 characters


def test_box_that_is_not_closed_has_no_answer():
    for text in (r"42 \boxed{42", r"42 \fbox{", r"\boxed{} 42"):
        assert not (answer_in(text, "flexible") or "").strip()


def test_votes_are_on_the_answers_that_were_judged():
    texts = ["so 7", "so 7.0", "so 8", r"\boxed{7}", "none"]
    assert vote("math", texts, [0.0] * 5, "flexible") == ([Vote(3, False), Vote(1, False)], "7")
    assert vote("math", texts, [0.0] * 5) == ([Vote(1, False)], "7")
    assert stated_answer("choice", "so 7", "flexible") == "so 7"


def test_only_kinds_that_compare_numbers_are_flexible():
    assert DataSpec(train_path="q").extraction == "strict"
    for kind in FLEXIBLE_KINDS:
        assert DataSpec(train_path="q", verifier=kind, extraction="flexible").extraction == "flexible"
    with pytest.raises(ValidationError, match="for the verifiers math and numeric: choose strict for choice"):
        DataSpec(train_path="q", verifier="choice", extraction="flexible")


def test_command_line_scores_with_an_extraction(tmp_path, capsys):
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"id": "a", "gold": "42", "response": "so she has 42 left"}))
    for options, reward in (([], 0.0), (["--extraction", "flexible"], 1.0)):
        assert main([str(path), *options]) == 0
        assert json.loads(capsys.readouterr().out)["reward"] == reward


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        *(
            (text, None)
            for text in (
                "It isn't $x^2-7x+1$.",
                r"5\text{ cm} is incorrect.",
                "42 kg is not the answer.",
                "42 red apples are wrong.",
                "It lies between 41 and 42.",
                "42 must be discarded.",
                r"Is it 8 \%?",
                "It isn't x=5.",
            )
        ),
        ("It isn't 41, so it is 42.", "42"),
        ("The total is 42 cm, which is not too long.", "42"),
        ("Then there are $n-1$ of them", "n-1"),
    ],
)
def test_denial_before_a_formula_or_behind_a_unit_is_one_of_the_number(response, answer):
    assert answer_in(response, "flexible") == answer
