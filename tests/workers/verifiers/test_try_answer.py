"""`workers.verifiers.try_out.try_answer`: one response by each kind of verifier."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support.forked import run

DOUBLE = "Like this:\n```python\ndef double(x):\n    return {}\n```"


def judge(**request: Any) -> dict[str, Any]:
    done = run([sys.executable, "-m", "workers.verifiers.try_out.try_answer"], json.dumps(request))
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("verifier", "gold", "response", "reward", "extracted"),
    [
        ("math", r"\frac{1}{2}", r"so \boxed{1/3}, no, \boxed{0.5}", 1.0, "0.5"),
        ("math", "17", "I do not know", 0.0, None),
        ("exact", "Paris", r"\boxed{paris}", 0.0, "paris"),
        ("choice", "B", "The answer is (b).", 1.0, "B"),
        ("regex", "[ab]+c", r"\boxed{abbc}", 1.0, "abbc"),
        ("python", "assert double(2) == 4", DOUBLE.format("2 * x"), 1.0, None),
        ("python", "assert double(3) == 6", DOUBLE.format("x + 2"), 0.0, None),
    ],
)
def test_each_kind_gives_its_verdict(verifier, gold, response, reward, extracted):
    found = judge(verifier=verifier, tolerance=None, gold=gold, response=response)
    if found.get("error") and verifier == "python":
        pytest.skip(f"no sandbox here: {found['error']}")
    assert (found["reward"], found["extracted"]) == (reward, extracted), found
    assert found["reason"]
    assert found["seconds"] >= 0


@pytest.mark.parametrize(("tolerance", "reward"), [(None, 0.0), (0.01, 1.0)])
def test_tolerance_of_the_benchmark_counts(tolerance, reward):
    found = judge(verifier="numeric", tolerance=tolerance, gold="3.14159", response=r"\boxed{3.16}")
    assert found["reward"] == reward


def test_extraction_of_the_benchmark_counts():
    request = {"verifier": "math", "tolerance": None, "gold": "42", "response": "so she has 42 left"}
    flexible = judge(**request, extraction="flexible")
    assert (flexible["reward"], flexible["extracted"]) == (1.0, "42")
    strict = judge(**request, extraction="strict")
    assert (strict["reward"], strict["extracted"]) == (0.0, None)


def test_unknown_verifier_is_an_error_in_words():
    assert "error" in judge(verifier="none", gold="1", response="1")
