"""A run that is kept as a draft, edited and queued by keyboard, and the command that launches the same, in Chromium."""

from __future__ import annotations

import re

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.faults.world import World
from tests.support.browser import axe

pytestmark = pytest.mark.full


def press(page: Page, name: str) -> None:
    """As a keyboard does it: focus, then Enter."""
    button = page.get_by_role("button", name=name, exact=True)
    button.focus()
    page.keyboard.press("Enter")


def test_draft_is_saved_edited_and_queued(world: World, world_page: Page) -> None:
    page = world_page
    like = world.launch("complete")
    page.goto(f"/runs/{like}/clone")
    page.locator("#id-name").fill("kept")
    page.locator("#step-how > summary").click()
    page.locator("#id-algorithm-delta").fill("0.7")
    press(page, "Save draft")
    expect(page.locator(".run-header .state")).to_have_attribute("data-state", "draft")
    assert axe.findings(page, axe.source(), "draft") == []
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.locator("h1")).to_have_text("Edit draft")
    page.locator("#id-name").fill("kept and changed")
    press(page, "Save draft")
    expect(page.locator("h1")).to_have_text("kept and changed")
    page.locator("summary", has_text="Queue…").focus()
    page.keyboard.press("Enter")
    page.get_by_label(re.compile("anyway")).check()
    press(page, "Queue this run")
    expect(page.locator("[data-draft]")).to_have_count(0)
    expect(page.locator(".run-header .state")).to_have_attribute("data-state", re.compile("queued|starting|running"))


def test_command_is_copied_without_leaving_the_form(world: World, world_page: Page) -> None:
    page = world_page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=world.url)
    page.goto(f"/runs/{world.launch('complete')}/clone")
    page.locator("#id-name").fill("to be copied")
    page.locator("#form-menu > summary").click()
    press(page, "Copy command")
    expect(page.locator("#command-said")).to_have_text("Copied.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#command-text").input_value()
    first, _, text = copied.partition("\n")
    assert first == "./hacrl launch - <<'EOF'"
    assert yaml.safe_load(text.removesuffix("EOF\n"))["name"] == "to be copied"
    assert page.url.partition("?")[0].endswith("/runs/new")
    assert axe.findings(page, axe.source(), "form with a command") == []
    page.locator("#step-how > summary").click()
    page.locator("#id-training-steps").fill("-1")
    expect(page.locator("#command")).to_be_hidden()
    press(page, "Copy command")
    expect(page.locator("#not-yet")).to_contain_text("Steps: Must be at least 0")
    expect(page.locator("#command")).to_be_hidden()
