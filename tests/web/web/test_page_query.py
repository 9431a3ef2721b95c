"""page_query: what it reads, what it ignores, and what it writes."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import pytest
from django.http import QueryDict
from pydantic import Field

from hacrl_web.web.page_query import MAX_ID, PageQuery, RowId, Text, Whole, whole_number


class ExampleQuery(PageQuery):
    search: Text = Field("", alias="q")
    step: Whole | None = None
    sweep: tuple[RowId, ...] = ()
    against: UUID | None = None
    show: Literal["all", "correct"] = "all"


def read(text: str) -> ExampleQuery:
    return ExampleQuery.read(QueryDict(text))


def test_each_value_has_its_type():
    query = read("q=+two+words%00+&step=012&sweep=3&sweep=4&show=correct&other=1")
    assert (query.search, query.step, query.sweep, query.show) == ("two words", 12, (3, 4), "correct")
    assert query.ignored == ()


@pytest.mark.parametrize(
    "text", ["step=-1", "step=1.0", "step=1_0", "step=%D9%A3", "step=", "step=" + "9" * 5000, "step=2147483648"]
)
def test_unreadable_number_counts_as_absent(text):
    query = read(text + "&q=kept")
    assert query.step is None
    assert query.search == "kept"
    assert query.ignored == ("step",)


def test_one_unreadable_value_of_several_leaves_the_whole_list_out():
    assert read("sweep=3&sweep=x").sweep == ()
    assert read("sweep=3&sweep=x").ignored == ("sweep",)


def test_query_string_has_what_differs_from_the_defaults():
    query = read("q=a%26b&sweep=3&sweep=4&show=all&against=00000000-0000-0000-0000-000000000001")
    assert query.encode() == "q=a%26b&sweep=3&sweep=4&against=00000000-0000-0000-0000-000000000001"
    assert query.encode(q=None, sweep=[5], step=0) == ("sweep=5&against=00000000-0000-0000-0000-000000000001&step=0")


def test_text_is_cut():
    assert len(read("q=" + "x" * 999).search) == 200


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), (7, 7), (str(MAX_ID), MAX_ID), (str(MAX_ID + 1), None), ("٣", None), (True, None)]
)
def test_whole_number_of_a_form_field(text, number):
    assert whole_number(text, MAX_ID) == number
