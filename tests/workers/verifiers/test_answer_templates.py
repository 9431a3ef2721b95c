"""Reference answers of the built-in files, stated as language models state them, are read right; others never count."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.workers.verifiers.answer_templates import DENYING, RETRACTED, STATED, WITHDRAWN, filled
from workers.contract.verifier_kinds import ResponseExtraction
from workers.verifiers.scoring.service import Verifier

BENCHMARKS = Path(__file__).resolve().parents[4] / "shared" / "data" / "benchmarks"
# Plain ones for the tests that need no files: the first three are as in GSM8K, MATH and OlympiadBench.
ANSWERS = (
    "18",
    r"\frac{3}{4}",
    "(1,1), (3,2)",
    r"2\sqrt{3}",
    "x^2-7x+1",
    ".0000672",
    r"5\text{ cm}",
    "-1, 2",
    r"\text{east}",
    "x=5",
    "0",
    "(3,4]",
)
# One answer of the files is a clause with commas, whose end no rule can tell where it stands in prose.
LEAST_SHARE = 0.999


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    with Verifier("math", processes=2) as made:
        yield made


def check(verifier: Verifier, pairs: list[tuple[str, str]], say: Callable[[str], None] = lambda line: None) -> None:
    """Every template with each gold, and with another answer in its place. pairs: golds, each with the other."""
    templates = {**STATED, **RETRACTED, **WITHDRAWN}
    asked = [(filled(template, *pair), pair[0]) for template in templates.values() for pair in pairs]
    asked += [(filled(template, *pair[::-1]), pair[0]) for template in templates.values() for pair in pairs]
    rewards = [verdict.reward for verdict in verifier.score([text for text, _ in asked], [gold for _, gold in asked])]
    missed = []
    for place, name in enumerate(templates):
        start, twin = place * len(pairs), (len(templates) + place) * len(pairs)
        share = rewards[start : start + len(pairs)].count(1.0) / len(pairs)
        cheated = [pair for pair, reward in zip(pairs, rewards[twin : twin + len(pairs)], strict=True) if reward]
        say(f"{share:8.2%} {name}")
        if cheated or (share > 0 if name in WITHDRAWN else share < LEAST_SHARE):
            missed.append((name, share, cheated[:3]))
    assert missed == []


def test_templates_are_read_with_usual_answers_and_reward_no_other(verifier):
    check(verifier, list(zip(ANSWERS, ANSWERS[1:] + ANSWERS[:1], strict=True)))


def sampled(verifier: Verifier, most: int) -> list[tuple[str, str]]:
    """Reference answers of every built-in file, and for each another one that is not equal to it."""
    if not BENCHMARKS.is_dir():
        pytest.skip("no shared benchmarks beside the checkout (../shared/data)")
    chance = random.Random(0)
    golds: list[str] = []
    for entry in json.loads((BENCHMARKS / "MANIFEST.json").read_text()).values():
        rows = (BENCHMARKS / entry["file"]).read_text().splitlines()
        answers = sorted({json.loads(row)["answer"] for row in rows})
        golds += chance.sample(answers, min(most, len(answers)))
    others = chance.sample(golds, len(golds))
    same = verifier.score([f"\\boxed{{{other}}}" for other in others], golds)
    pairs = zip(golds, others, strict=True)
    return [pair for pair, verdict in zip(pairs, same, strict=True) if verdict.reward == 0]


def test_a_reference_answer_of_every_file_is_read_in_every_template(verifier):
    check(verifier, sampled(verifier, 1))


def rewarded_denials(golds: Iterable[str], extraction: ResponseExtraction) -> list[tuple[str, str]]:
    """Denied answers that are rewarded, of those in a box, in dollars and plain."""
    forms = (r"$\boxed{ANSWER}$", r"\boxed{ANSWER}", "$ANSWER$", "ANSWER")
    texts = [filled(template, form, "987654") for template in DENYING.values() for form in forms]  # no gold is 987654
    pairs = [(filled(text, gold), gold) for gold in golds for text in texts]
    with Verifier("math", processes=2, extraction=extraction) as judge:
        verdicts = judge.score([text for text, _ in pairs], [gold for _, gold in pairs])
    return [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.reward]


@pytest.mark.parametrize("extraction", ["strict", "flexible"])
def test_what_is_denied_supposed_quoted_asked_or_hidden_earns_nothing(extraction):
    assert rewarded_denials(ANSWERS, extraction) == []


@pytest.mark.parametrize("extraction", ["strict", "flexible"])
def test_a_reference_answer_of_every_file_earns_nothing_where_it_is_denied(verifier, extraction):
    assert rewarded_denials((gold for gold, _ in sampled(verifier, 2)), extraction) == []


@pytest.mark.full
@pytest.mark.parametrize("extraction", ["strict", "flexible"])
def test_reference_answers_of_every_file_earn_nothing_where_they_are_denied(verifier, extraction):
    assert rewarded_denials((gold for gold, _ in sampled(verifier, 10_000)), extraction) == []


@pytest.mark.full
def test_reference_answers_of_every_file_are_read_in_every_template(verifier, capsys):
    pairs = sampled(verifier, 10_000)
    with capsys.disabled():
        print(f"\n{len(pairs)} reference answers, strict; the share that is read right in each template:")
        check(verifier, pairs, print)
