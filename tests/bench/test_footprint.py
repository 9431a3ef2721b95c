"""The memory estimate against what a fresh process really took, at three sizes on the CPU."""

from __future__ import annotations

import pytest

from tests.bench.footprint import SIZES, measure


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("size", list(SIZES)[1:])
def test_estimate_is_within_15_percent_of_the_measured_peak(size):
    found = measure(size)
    assert found["measured"] == pytest.approx(found["expected"], rel=0.15)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_recomputed_layers_are_estimated_as_well():
    changes = {"compute": {"gradient_checkpointing": True}}
    found, plain = measure("5M", changes), measure("5M")
    assert found["expected"] < 0.9 * plain["expected"]
    assert found["measured"] == pytest.approx(found["expected"], rel=0.15)
