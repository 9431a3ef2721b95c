"""Reports in a browser: written, previewed, saved, with panels that are drawn; axe on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Server
from tests.support.browser.axe import findings, source
from tests.support.browser.steps import visit


@pytest.fixture
def board(boards: dict[str, str]) -> str:
    return boards["several"]


def test_report_is_written_with_panels_that_are_drawn(page: Page, board: str, server: Server) -> None:
    page.goto(board)
    sweep = str(page.locator("h1 + p a").first.get_attribute("href"))
    page.goto(sweep)
    run = str(page.locator("main a[href^='/runs/']:not([href*='?'])").first.get_attribute("href"))
    page.goto("/reports/")
    page.get_by_role("link", name="New report").first.click()
    page.get_by_label("Title").fill("What sharing brings")
    text = f"## First\n\nSharing **helps**.\n\n{board}\n\n[One run]({run})\n\nEnd."
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview, not saved")).to_be_visible()
    expect(page.get_by_label("Text")).to_have_value(
        f"## First\n\nSharing **helps**.\n\n{board}\n\n[One run]({run})\n\nEnd."
    )
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="What sharing brings", level=1)).to_be_visible()
    expect(page.locator(".report strong").first).to_have_text("helps")
    expect(page.get_by_role("heading", name="One run")).to_be_visible()
    figures = page.locator(".report [data-figure]")
    assert figures.count() >= 2
    for place in range(figures.count()):
        figures.nth(place).scroll_into_view_if_needed()
        expect(figures.nth(place)).to_have_attribute("data-drawn", "true")
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert "Sharing **helps**." in download.value.path().read_text()


@pytest.mark.full
def test_axe_finds_nothing_serious_and_no_report_scrolls_sideways(page: Page, board: str) -> None:
    axe = source()
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/reports/")
    report = str(page.locator("tbody a").first.get_attribute("href"))
    found = []
    for address in visit(page, ["/reports/", "/reports/new", report, f"{report}/edit", f"{report}/delete"]):
        found += findings(page, axe, address)
    assert found == []


def test_panel_that_cannot_be_loaded_says_so_beside_its_link(context: BrowserContext) -> None:
    page = context.new_page()  # its console reports the two failures
    page.goto("/reports/new")
    page.get_by_label("Title").fill("Five panels")
    page.get_by_label("Text").fill("\n\n".join(f"[Panel {n}](/runs/)" for n in range(1, 6)))
    page.route("**/panels/3?*", lambda route: route.fulfill(status=500))
    page.route("**/panels/4?*", lambda route: route.abort())
    page.get_by_role("button", name="Save").click()
    cards = page.locator(".report > section")
    for place, is_loaded in enumerate((True, True, False, False, True)):
        expect(cards.nth(place)).not_to_contain_text("Loading…")
        if is_loaded:
            expect(cards.nth(place)).not_to_contain_text("This panel could not be loaded.")
        else:
            expect(cards.nth(place)).to_contain_text("This panel could not be loaded.")
            expect(cards.nth(place).get_by_role("link", name="Open")).to_be_visible()
    page.close()
