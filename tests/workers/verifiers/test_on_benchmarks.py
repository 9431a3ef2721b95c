"""The verifier on real benchmarks: reference answers match themselves, reference solutions match their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers.verifiers.scoring.service import Verifier

BENCHMARKS = Path(__file__).resolve().parents[4] / "shared" / "data" / "benchmarks"
MOST_SOLUTIONS = 150  # of each file: math-verify alone takes about 20 ms for one
# Strictly read; the rest of OlympiadBench's end in words or in a proof.
LEAST_SHARES = {"olympiad_bench.jsonl": 0.48}

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.is_dir(), reason="no shared benchmarks beside the checkout (../shared/data)"
)


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (BENCHMARKS / file).read_text().splitlines()]


def files() -> list[str]:
    if not BENCHMARKS.is_dir():
        return []
    return [entry["file"] for entry in json.loads((BENCHMARKS / "MANIFEST.json").read_text()).values()]


def solved(file: str) -> list[dict[str, Any]]:
    """Evenly spread rows that have a solution."""
    found = [row for row in rows(file) if row.get("solution")]
    return found[:: max(1, len(found) // MOST_SOLUTIONS)]


@pytest.mark.parametrize("file", files())
def test_every_reference_answer_matches_itself(file):
    answers = [row["answer"] for row in rows(file)]
    with Verifier("math") as verifier:
        boxed = verifier.score([f"So it is $\\boxed{{{answer}}}$." for answer in answers], answers)
    assert [row for row, verdict in zip(answers, boxed, strict=True) if verdict.reward != 1] == []


@pytest.mark.full
@pytest.mark.parametrize("file", [file for file in files() if file and solved(file)])
def test_reference_solutions_are_right_at_least_as_often_as_by_math_verify_alone(file):
    math_verify = pytest.importorskip("math_verify", reason="math-verify is missing: pip install -e '.[train]'")
    found = solved(file)
    with Verifier("math", processes=2) as verifier:
        verdicts = verifier.score([row["solution"] for row in found], [row["answer"] for row in found])
    ours = sum(verdict.reward == 1 for verdict in verdicts)
    alone = sum(
        math_verify.verify(math_verify.parse(f"${row['answer']}$"), math_verify.parse(row["solution"])) for row in found
    )
    print(f"{file}: {ours} of {len(found)} ours, {alone} math-verify alone")
    assert ours >= alone
    assert ours >= LEAST_SHARES.get(file, 0.99) * len(found)
