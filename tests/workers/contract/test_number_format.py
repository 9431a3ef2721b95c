"""One rule for each kind of number; `tests/web/test_frontend.py` holds the browser to the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers.contract import number_format

CASES: dict[str, list[list[Any]]] = json.loads((Path(__file__).parents[2] / "data" / "numbers.json").read_text())
PYTHON = {"signedScore": "signed_score", "learningRate": "learning_rate"}


@pytest.mark.parametrize("kind", CASES)
def test_numbers_of_a_kind_are_written_by_one_rule(kind: str) -> None:
    write = getattr(number_format, f"format_{PYTHON.get(kind, kind)}")
    assert [write(value) for value, _ in CASES[kind]] == [text for _, text in CASES[kind]]


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("accuracy", 0.38, "0.380"),
        ("avg@8", 0.4838, "0.484"),
        ("reward/mean", 1, "1.000"),
        ("clip_lower_frac/positive", 0.02, "0.020"),
        ("frac_reward_zero_std", 0, "0.000"),
        ("retok_len_ratio", 1.0942, "1.09"),  # not from 0 to 1
        ("learning_rate", 4e-4, "4e-4"),
        ("completions/mean_length", 1280, "1,280"),
    ],
)
def test_metric_is_written_by_the_rule_of_its_kind(metric: str, value: float, text: str) -> None:
    assert number_format.format_metric(metric, value) == text


def test_difference_of_scores_has_a_sign_and_three_decimals() -> None:
    assert number_format.format_metric_difference("accuracy", 0.005) == "+0.005"
    assert number_format.format_metric_difference("kl", -1.2) == "−1.20"
