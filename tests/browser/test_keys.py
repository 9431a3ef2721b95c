"""Keys of every page: the search, the list of keys, and g then a letter; none of them while somebody types."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.marks import in_full


def test_search_goes_to_what_was_typed(page: Page, server) -> None:
    found = [{"kind": "run", "name": "<b>toy</b> " + "n" * 80, "url": "/runs/"}]
    page.route("**/find?q=*", lambda route: route.fulfill(json={"found": found}))
    page.goto("/")
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    field = dialog.get_by_role("textbox")
    expect(field).to_be_focused()
    expect(dialog.get_by_role("link")).to_have_count(page.locator(".rail-list a").count())  # all pages
    page.keyboard.type("toy")
    expect(dialog.get_by_role("link")).to_have_count(1)
    expect(dialog.get_by_role("link")).to_contain_text("<b>toy</b>")  # text, no markup
    expect(dialog.get_by_role("status")).to_have_text("1 found")
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("link").first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(field).to_be_focused()
    field.fill("leader")
    expect(dialog.get_by_role("link").first).to_contain_text("Leaderboard")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/leaderboard/$"))
    page.get_by_role("button", name="Search pages, runs, models").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Search pages, runs, models")).to_be_focused()


@pytest.mark.full
def test_search_finds_actions_account_pages_and_docs(page: Page, server) -> None:
    page.goto("/")
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    field, links = dialog.get_by_role("textbox"), dialog.get_by_role("link")
    field.fill("new run")
    expect(links.first).to_contain_text("New run")
    expect(links.first).to_contain_text("action")
    field.fill("account")
    expect(links.first).to_contain_text("Account: password")
    field.fill("omega")
    expect(dialog.get_by_role("link", name=re.compile("docs$")).first).to_be_visible()
    field.fill("new run")
    expect(links.first).to_contain_text("New run")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/new$"))


@pytest.mark.parametrize(("key", "path"), [("q", "/workers/#queue"), *in_full(("r", "/runs/"), ("l", "/leaderboard/"))])
def test_g_and_a_letter_go_to_a_page(page: Page, server, key: str, path: str) -> None:
    page.goto("/models/")
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page).to_have_url(server.url + path)


def test_keys_are_listed_and_mean_nothing_while_somebody_types(page: Page, server) -> None:
    page.goto("/models/new")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("Search pages")
    page.keyboard.press("g")  # a dialog is open
    page.keyboard.press("l")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    field = page.locator("main").get_by_role("textbox").first
    field.fill("")
    field.press_sequentially("gl?")
    expect(field).to_have_value("gl?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(server.url + "/models/new")


@pytest.mark.parametrize(("path", "field"), [("/audit", "Name or id"), *in_full(("/docs/", "Search the docs"))])
def test_slash_goes_to_the_field_that_filters_the_page(page: Page, server, path: str, field: str) -> None:
    page.goto(path)
    page.keyboard.press("/")
    filter_field = page.get_by_role("searchbox", name=field)
    expect(filter_field).to_be_focused()
    expect(filter_field).to_have_value("")
    page.keyboard.type("a/b")
    expect(filter_field).to_have_value("a/b")


def test_slash_means_nothing_without_a_filter_and_while_somebody_types(page: Page, server) -> None:
    page.goto("/models/new")
    page.keyboard.press("/")
    expect(page.locator("body")).to_be_focused()
    field = page.locator("main").get_by_role("textbox").first
    field.fill("")
    field.press_sequentially("/x")
    expect(field).to_have_value("/x")


def test_menu_goes_by_escape_and_by_a_press_elsewhere(page: Page, server) -> None:
    page.goto("/runs/new")
    other = '<details class="menu" id="other"><summary>Other</summary></details>'
    page.evaluate("other => document.querySelector('main').insertAdjacentHTML('beforeend', other)", other)
    menu, panel = page.locator(".top details.menu").last, page.locator("details#other")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(menu.get_by_role("link", name="Settings")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    panel.locator("summary").focus()
    page.keyboard.press("Enter")  # another opens
    expect(menu).not_to_have_attribute("open", "")
    expect(panel).to_have_attribute("open", "")
    page.get_by_role("heading", level=1).click()
    expect(panel).not_to_have_attribute("open", "")


def test_phone_has_its_pages_behind_one_button(page: Page, registered) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/runs/")
    rail, button = page.locator("#rail"), page.get_by_role("button", name="Pages", exact=True)
    expect(rail).to_be_hidden()
    assert page.locator("header.top").bounding_box()["height"] <= 56
    button.focus()
    page.keyboard.press("Enter")
    expect(rail).to_be_visible()
    page.keyboard.press("Escape")
    expect(rail).to_be_hidden()
    expect(button).to_be_focused()
    button.click()
    rail.get_by_role("link", name="Benchmarks").click()
    expect(page).to_have_url(re.compile("/benchmarks/$"))
    expect(rail).to_be_hidden()


@pytest.mark.full
def test_rail_stays_folded_from_page_to_page(page: Page, registered) -> None:
    page.goto("/runs/")
    rail = page.locator("#rail")
    page.get_by_role("button", name="Collapse").click()
    assert rail.bounding_box()["width"] == 56
    rail.get_by_role("link", name="Models").click()  # its name is read to those who do not see it
    expect(page).to_have_url(re.compile("/models/$"))
    assert rail.bounding_box()["width"] == 56
    page.get_by_role("button", name="Expand").click()
    assert rail.bounding_box()["width"] > 150


def test_menu_closes_when_its_dialog_opens(page: Page, registered) -> None:
    page.goto("/models/")
    page.locator("details.menu summary").last.click()
    page.get_by_role("button", name="Keys").click()
    expect(page.locator("#keys-dialog")).to_be_visible()
    expect(page.locator("details.menu[open]")).to_have_count(0)
