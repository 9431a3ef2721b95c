"""The short cuts of reading and of making rows give what the long ways give."""

import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl_web.runs.telemetry.admission import NAMES_PER_RUN, Admission, EventRefused
from hacrl_web.runs.telemetry.tables import EVENTS, PAYLOAD_TEXT, TelemetryTable

RUN = UUID(int=7)
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.floats(), st.text(max_size=3))
NAMES = st.one_of(st.none(), st.text(max_size=100), st.integers(0, 9), st.just("n" * 80), st.just("n" * 81))
RECORDS = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 2**60),
        "attempt": st.integers(-1, 2**33),
        "type": st.sampled_from(["metrics", "log"]),
        PAYLOAD_TEXT: st.just('{"values":{}}'),
    },
    optional={"step": NUMBERS, "agent": NAMES, "source": NAMES, "time": NUMBERS},
)


def outcome(table_row, record):
    try:
        return table_row(RUN, record)
    except (ValueError, TypeError, OverflowError) as error:
        return type(error)


@given(RECORDS)
@settings(max_examples=500)
def test_row_of_usual_metrics_is_that_of_the_columns_one_by_one(record):
    def one_by_one(run_id, record):
        return TelemetryTable.row(EVENTS, run_id, record)

    assert outcome(EVENTS.row, record) == outcome(one_by_one, record)


def admit(admission: Admission, *names: str, number: float = 0.5) -> None:
    text = json.dumps({"values": dict.fromkeys(names, number), "ratios": {}}, separators=(",", ":"))
    admission.check({"seq": 1, "attempt": 1, "type": "metrics", "step": 1, "agent": "A"}, text)


def test_names_are_counted_whatever_came_again_before(monkeypatch):
    """As many names in events of one shape's size, each after that shape came often enough for its pattern."""
    admission = Admission()
    for number in (0.25, -1e-7, 3.0, 0.25):
        admit(admission, "loss", "kl.1", number=number)
    assert len(admission._patterns) == 1
    for part in range((NAMES_PER_RUN - 2) // 2):
        admit(admission, f"a{part}", f"b{part}")
        admit(admission, "loss", "kl.1")
    for names in (("new", "kl.1"), ("loss", "kl-1"), ("loss", "kl.1 "), ("kl.2", "loss")):
        with pytest.raises(EventRefused, match="more than 2,000 metric names"):
            admit(admission, *names)
    admit(admission, "kl.1", "loss")  # known names in another order


@given(st.lists(st.sampled_from(["a", "b", "c.d", "e\\f", 'g"h', "[i]*", "é"]), min_size=1, max_size=4, unique=True))
def test_text_that_matches_a_pattern_has_its_names(names):
    admission = Admission()
    for _ in range(3):
        admit(admission, *names)
    for pattern in admission._patterns.values():
        for other in (["a"], ["b", "c.d"], ["cxd"], ["[i]*"], ["i"], ["a", "b", "x"]):
            text = json.dumps({"values": dict.fromkeys(other, 1.0), "ratios": {}}, separators=(",", ":"))
            assert bool(pattern.fullmatch(text)) == (other == names)
