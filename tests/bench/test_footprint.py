"""The memory estimate against what a fresh process really took, on the CPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.bench.footprint import CASES, WITH_VLLM, measure


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", list(CASES)[1:])
def test_estimate_is_within_15_percent_of_the_measured_peak(case):
    if case in WITH_VLLM and find_spec("vllm") is None:
        pytest.skip("needs vLLM: python -m workers.rollouts.install_vllm")
    found = measure(case)
    assert found["measured"] == pytest.approx(found["expected"], rel=0.15)
