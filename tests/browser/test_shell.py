"""The frame of all pages: the width of a large screen, and lists that a phone shows as cards."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.support.marks import in_full

PHONE = {"width": 390, "height": 844}
SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll(".table-scroll:has(.table-cards)")]
    .some((box) => box.scrollWidth > box.clientWidth)"""


@pytest.fixture(scope="module")
def made(context: Any, server: Server) -> None:
    """A run of as many agents as there may be, which is the newest."""
    server.generated_run("--runs=1", "--steps=2", "--agents=8")


@pytest.mark.parametrize("path", ["/runs/", *in_full("/models/", "/groups/", "/benchmarks/")])
def test_phone_shows_a_list_as_cards(page: Page, made: None, runs, hostile_run: str, boards, path: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(path)
    row = page.locator(".table-cards tbody tr").first
    name = row.locator("th a").first.bounding_box()
    assert name["x"] < 40
    cells = [cell for cell in row.locator("td[data-label]").all() if cell.is_visible()]  # an empty one is left out
    assert len(cells) >= 2
    for cell in cells:
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert box["y"] >= name["y"] + name["height"]  # below the name, under a heading of its own
        assert (
            cell.evaluate("(one) => getComputedStyle(one, '::before').content")
            == f'"{cell.get_attribute("data-label")}"'
        )
    assert not page.evaluate(SIDEWAYS)


@pytest.mark.parametrize("path", ["/runs/", *in_full("/models/", "/workers/", "/alerts/", "/docs/", "/account")])
def test_content_takes_the_width_of_a_large_screen(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 2560, "height": 1200})
    page.goto(path)
    assert page.locator("main").bounding_box()["width"] >= 2300


def test_print_has_the_content_alone_and_no_motion_where_it_is_not_wanted(page: Page) -> None:
    page.goto("/runs/")
    duration = "getComputedStyle(document.querySelector('.rail-list a')).transitionDuration.split(',')[0]"
    assert page.evaluate(duration) == "0.2s"
    page.emulate_media(media="print", reduced_motion="reduce")
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    expect(page.locator("header.top")).to_be_hidden()
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    assert page.locator("main").bounding_box()["x"] == 0
    assert page.evaluate(duration) == "0s"
