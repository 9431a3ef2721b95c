"""The kinds of verifier: the rules as documented, their versions, and the same verdict wherever they are asked."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from tests.support.workers.verifier_examples import Example, examples, versions
from workers.contract.spec.data import DataSpec
from workers.contract.verifier_kinds import FILE_KINDS, RULES, VerifierKind, kind_label
from workers.verifiers.mathematics.answers import clean, decide
from workers.verifiers.mathematics.plain_numbers import rounding_unit
from workers.verifiers.scoring.kinds import kind_of
from workers.verifiers.scoring.service import Verifier, read_cases
from workers.verifiers.scoring.verdicts import Verdict
from workers.verifiers.short_answers import numeric
from workers.verifiers.short_answers.multiple_choice import letter

CASES = Path(__file__).resolve().parents[2] / "data" / "verifier_cases.jsonl"
GENERATORS = Path(__file__).resolve().parents[2] / "support" / "workers" / "generators"  # a stand-in of reasoning-gym
# The rules of a function are its own: tests/workers/verifiers/test_functions.py.
KINDS: tuple[VerifierKind, ...] = tuple(kind for kind in get_args(VerifierKind) if kind not in FILE_KINDS)
# By kind and version: what its rules say about the examples of docs/verifiers.md, and math about the copied cases.
DIGESTS = {
    "math/11": "0649d827bc0da9ed",
    "exact/3": "350f59d11c76e1dc",
    "choice/5": "22bcd6429a840920",
    "numeric/9": "78b615f1035a6c38",
    "regex/4": "f395e3cd7d9c7c5a",
    "python/5": "d45ad9e76bbb13b1",
    "python_partial/4": "6b9fd830365d8c1b",
    "countdown/2": "921d09082977048c",
    "words/1": "89c16fe83cabd2d6",
    "rouge/1": "83409d20ae5ad17b",
    "json/1": "5e2a32226725ad0d",
    "instructions/1": "bc28734aaf2b4465",
    "reasoning_gym/1": "92e5fa29123c4a25",
}


@pytest.fixture(scope="module")
def verifiers():
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    made = {kind: Verifier(kind) for kind in KINDS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(GENERATORS))
        yield made
    for verifier in made.values():
        verifier.close()


def name(example: Example) -> str:
    return f"{example.kind}: {example.response[-60:]} for {example.gold}"


@pytest.mark.parametrize("example", examples(), ids=name)
def test_documented_example_has_its_documented_verdict(verifiers, example):
    assert verifiers[example.kind].score([example.response], [example.gold])[0].reward == example.reward


def test_every_kind_is_documented_with_its_version_and_has_many_examples():
    assert versions() == {kind: rules.version for kind, rules in RULES.items()}
    assert list(RULES) == [*KINDS, *FILE_KINDS]
    counts = defaultdict(int)
    for example in examples():
        counts[example.kind] += 1
    assert counts["math"] >= 80
    assert all(counts[kind] >= 3 for kind in KINDS)
    assert kind_label("math") == f"math/{RULES['math'].version}"


@pytest.mark.parametrize(
    ("kind", "gold", "right", "wrong"),
    [
        ("math", "7", r"\boxed{7}", r"\boxed{8}"),
        ("numeric", "7", "The answer is 7.0", "The answer is 8"),
        ("exact", "a b", "a b", "a c"),
        ("choice", "B", "(B)", "(C)"),
        ("regex", "1[0-9]", "17", "27"),
        ("countdown", "3 5 7 = 36", "(7+5)*3", "7*5+3"),
        ("words", "yes", "yes", "no"),
    ],
)
def test_thoughts_do_not_count_and_open_ones_leave_no_answer(kind, gold, right, wrong):
    with Verifier(kind) as verifier:
        texts = [f"<think>{wrong}</think>{right}", f"{wrong}</think>\n{right}", f"<think>{right}</think> {wrong}",
                 f"<think>{right}", f"{right} <think>{right}", f"<think>{right}</think><think>{right}"]  # fmt: skip
        assert [one.reward for one in verifier.score(texts, [gold] * 6)] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_change_only_with_the_version(verifiers, kind):
    """If this fails because rules changed: raise the version. If only examples were added: renew the digest."""
    pairs = [(example.response, example.gold) for example in examples() if example.kind == kind]
    if kind == "math":
        pairs += [(case["response"], case["gold"]) for case in read_cases(CASES)]
    found = verifiers[kind].score([response for response, _ in pairs], [gold for _, gold in pairs])
    lines = [json.dumps([*pair, verdict.reward]) for pair, verdict in zip(pairs, found, strict=True)]
    digest = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]
    assert {kind_label(kind): digest} == {kind_label(kind): DIGESTS[kind_label(kind)]}


def test_spec_offers_the_kinds_and_a_tolerance_within_bounds():
    assert DataSpec(train_path="q", verifier="numeric", tolerance=0.01).tolerance == 0.01
    for wrong in ({"verifier": "maths"}, {"tolerance": -0.1}, {"tolerance": 0.6}, {"tolerance": "nan"}):
        with pytest.raises(ValidationError):
            DataSpec(train_path="q", **wrong)


def test_tolerance_is_relative_and_kept_exactly():
    assert [score("numeric", text, "200", 0.01) for text in ("202", "198", "202.0001", "197.9")] == [1.0, 1.0, 0.0, 0.0]
    assert [score("numeric", text, "-2e-30", 0.5) for text in ("-3e-30", "-3.1e-30", "0")] == [1.0, 0.0, 0.0]
    assert [score("numeric", text, "7", 0) for text in ("7.0", "7.0000001")] == [1.0, 0.0]


def score(kind: VerifierKind, answer: str, gold: str, tolerance: float) -> float | None:
    """What text alone says."""
    verdict = kind_of(kind, tolerance).quick_verdict(f"\\boxed{{{answer}}}", gold)
    assert isinstance(verdict, Verdict)
    return verdict.reward


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(c)", "C"),
        ("$\\mathrm{C}$", "C"),
        ("**C**", "C"),
        ("The correct answer is C", "C"),
        ("[C] 7", "C"),
        ("C) 7", "C"),
        ("C and D", None),
        ("C, D", None),
        ("(C) or (D)", None),
        ("C7", None),
        ("ABC", None),
        ("", None),
        ("A" * 10_000, None),
    ],
)
def test_one_letter_is_read_and_several_are_none(text, found):
    assert letter(text) == found


def test_rounding_counts_significant_digits():
    # 1/1234567 = 8.1000059e-7: one digit of it is no rounding, seven are.
    assert rounding_unit("0.000001") is None
    assert decide("0.000001", "\\frac{1}{1234567}") is not True
    assert decide("8.100006e-7", "\\frac{1}{1234567}") is True
    assert decide("8.1000171e-7", "\\frac{1}{1234567}") is not True


def test_raised_and_lowered_digits_stay_so():
    assert [clean(text) for text in ("5²", "x⁻¹²", "1011₂", "1½", "⅓")] == [
        "5^{2}", "x^{-12}", "1011_{2}", "1\\frac{1}{2}", "\\frac{1}{3}"
    ]  # fmt: skip


PROSE = "It follows by induction on n, as was to be shown."


@pytest.mark.parametrize(
    ("kind", "sound", "unsound", "doubt"),
    [
        ("choice", "(B)", "B or C", "no single letter from A to J"),
        ("numeric", "\\frac{\\pi}{4}", "several", "unscorable: the reference answer is no number"),
        ("regex", "a+", "(a", "unscorable: the reference answer is no regular expression: "
         "missing ), unterminated subpattern at position 0"),
        ("python", "assert f(1) == 2", "print(f(1))", "its tests assert nothing"),
        ("math", "\\frac{x+1}{2}", "\\frac{1}{2", "its braces do not close"),
        ("math", "\\text{even}", PROSE, "prose of 10 words: only the same text would match"),
        ("math", "17", "(" + "x+" * 500 + "1)", "longer than 1000 characters"),
        ("math", "17", "x+9^{(9^{9})}", "unscorable: no verdict in 3 s"),
        ("exact", PROSE, "a}", "its braces do not close"),
    ],
)  # fmt: skip
def test_reference_answer_that_no_response_could_match_is_doubted(verifiers, kind, sound, unsound, doubt):
    assert verifiers[kind].doubts([sound, unsound]) == ["", doubt]


@pytest.mark.parametrize("answer", ["5" + "a" * 60 + "!", "5m" * 400 + "!", "5" + "m^2" * 300 + "!", "5" + "µ/" * 400])
def test_long_answer_that_is_no_unit_after_all_holds_the_trainer_up_for_no_time(answer):
    begin = time.process_time()
    numeric.numeric_verdict(
        f"\\boxed{{{answer}}}", "5", 1e-4
    )  # in the trainer's own process, where nothing could end it
    assert time.process_time() - begin < 1


@pytest.mark.integration
def test_catastrophic_expression_is_unscorable_in_time_and_the_next_answer_is_scored(verifiers):
    found = verifiers["regex"].score(["\\boxed{" + "a" * 40 + "}", "\\boxed{aab}"], ["(a+)+b", "(a+)+b"])
    assert found[0] == Verdict(None, "unscorable: no verdict in 3 s", True)
    assert found[1].reward == 1.0
