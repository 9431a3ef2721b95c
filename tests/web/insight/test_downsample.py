"""Buckets of steps: they keep every spike and equal a brute-force count."""

from __future__ import annotations

from math import isnan, nan, sin

from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl_web.insight.downsample import Buckets, downsample, extreme_places, width_for


def test_width_is_the_narrowest_power_of_two_that_keeps_to_the_points():
    # steps 1 to 100,000: of width 64 bucket 0 to bucket 1,562 (1,563 of them), of width 128 bucket 0 to 781
    assert [width_for(1, 100_000, n) for n in (1563, 1562, 1500, 100_001, 1)] == [64, 128, 128, 1, 2**17]
    assert width_for(63, 64, 1) == 128  # a bucket begins at a multiple of its width


def test_worked_by_hand():
    line = downsample([1, 2, 3, 4, 9], [5.0, nan, 1.0, 2.0, 7.0], 4)
    # steps 1 to 3 are bucket 0, 4 to 7 bucket 1, 8 to 11 bucket 2
    assert line == Buckets([3, 4, 9], low=[1.0, 2.0, 7.0], high=[5.0, 2.0, 7.0], last=[1.0, 2.0, 7.0])
    assert not line.is_exact
    assert downsample([1, 2], [0.5, 0.25], 1).is_exact
    assert downsample([1, 2], [nan, nan], 1).steps == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.just(nan) | st.floats(allow_nan=False, allow_infinity=False)),
        max_size=200,
        unique_by=lambda point: point[0],
    ),
    st.integers(1, 40),
)
def test_every_bucket_equals_brute_force(points, at_most):
    points.sort(key=lambda point: point[0])
    steps, values = [step for step, _ in points], [value for _, value in points]
    width = width_for(steps[0], steps[-1], at_most) if steps else 1
    found = downsample(steps, values, width)
    expected = []
    for number in range(3001 // width + 1):
        inside = [(s, v) for s, v in points if number * width <= s < (number + 1) * width and not isnan(v)]
        if inside:
            kept = [v for _, v in inside]
            expected.append((inside[-1][0], min(kept), max(kept), inside[-1][1]))
    assert list(zip(found.steps, found.low, found.high, found.last, strict=True)) == expected
    assert len(found.steps) <= at_most


@given(st.integers(0, 99_999))
@settings(max_examples=20, deadline=None)
def test_spike_of_one_point_in_100_000_is_kept(place):
    values = [0.5] * 100_000
    values[place] = 9.0
    line = downsample(range(1, 100_001), values, width_for(1, 100_000, 1500))
    assert len(line.steps) <= 1500
    assert line.high.count(9.0) == 1
    assert max(line.low) == 0.5


def test_extreme_places_hold_a_spike_of_one_point_in_100_000_twice_the_same():
    steps, values = list(range(100_000)), [sin(step / 1000) for step in range(100_000)]
    values[54_321] = 50.0
    places = extreme_places(steps, values, 1500)
    assert 54_321 in places
    assert places[-1] == steps[-1]
    assert len(places) <= 1500
    assert places == sorted(places)
    assert places == extreme_places(list(steps), list(values), 1500)
    assert extreme_places(steps[:1500], values[:1500], 1500) == steps[:1500]
