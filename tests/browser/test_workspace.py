"""The workspace of runs as a reader uses it, in Chromium: visible rows, groups, columns, saved views, keyboard."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.support.browser.axe import findings, source
from tests.support.browser.steps import visit
from tests.support.marks import in_full

pytestmark = pytest.mark.slow
LINES = "data-lines"  # of the first panel
SHIFT = """() => new Promise((done) => {
    let sum = 0;
    new PerformanceObserver((list) => { for (const one of list.getEntries()) sum += one.value; })
        .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(sum), 500);
})"""


@pytest.fixture(scope="module")
def made(context: Any, server: Server) -> None:
    """Three generated runs, one of each algorithm."""
    server.generated_run("--runs", "3", "--steps", "6", "--questions", "0")


def test_eyes_groups_and_columns_are_in_the_address_and_in_a_saved_view(page: Page, made: None) -> None:
    page.goto("/runs/?q=generated")  # runs of other tests may have no step yet
    panels = page.locator("#panels")
    eyes = page.locator(".eye")
    count = eyes.count()
    expect(panels).to_have_attribute(LINES, str(min(count, 10)))
    assert page.evaluate(SHIFT) <= 0.02
    eyes.first.press("Enter")  # by keyboard alone
    expect(eyes.first).to_have_attribute("aria-pressed", "false")
    expect(panels).to_have_attribute(LINES, str(min(count, 10) - 1))
    page.reload()
    expect(panels).to_have_attribute(LINES, str(min(count, 10) - 1))

    page.get_by_label("Group by").select_option("algorithm")
    expect(page.locator(".run-group").first).to_be_visible()
    groups = page.locator(".run-group").count()
    expect(panels).to_have_attribute(LINES, str(groups))
    fold = page.locator(".fold").first
    fold.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(page.locator("[data-run]").first).to_be_visible()

    page.get_by_text("Columns", exact=True).first.click()
    page.get_by_role("checkbox", name="Benchmark").check()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("link", name="Benchmark", exact=True)).to_be_visible()
    page.locator(".views-menu summary").click()
    page.get_by_label("Save for the project as").fill("By algorithm")
    page.get_by_role("button", name="Save view").click()
    expect(page.get_by_role("heading", name="By algorithm", level=1)).to_be_visible()
    page.goto("/runs/")
    page.locator(".views-menu summary").click()
    page.get_by_role("link", name="By algorithm").click()
    expect(page).to_have_url(re.compile("by=algorithm"))
    expect(page.get_by_role("link", name="Benchmark", exact=True)).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("path", ["/runs/?by=seed&layout=panels", *in_full("/runs/", "/runs/?tab=compare")])
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1440, "light"), *in_full((1440, "dark"), (390, "light"), (390, "dark"))],
)
def test_workspace_has_no_violation_and_is_no_wider_than_the_screen(
    page: Page, made: None, path: str, width: int, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    [_] = visit(page, [path])
    assert findings(page, source(), path) == []


def test_phone_has_a_way_to_the_panels(page: Page, made: None) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/runs/")
    expect(page.locator("#panels")).to_be_hidden()
    page.get_by_role("navigation", name="Layout").get_by_role("link", name="Panels", exact=True).click()
    expect(page.locator("#panels")).to_have_attribute(LINES, re.compile("[1-9]"))
    expect(page.locator("#chart-accuracy")).to_be_visible()
