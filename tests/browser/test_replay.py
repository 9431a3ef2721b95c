"""Replay: the recorded events of a finished run are drawn again by the code that draws a live one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server
from tests.browser.test_overview import drawn, show
from tests.support.browser.axe import findings, source
from tests.support.browser.made_runs import STEPS
from tests.support.marks import in_full


def at(page: Page) -> int:
    return int(page.locator("#replay").get_attribute("data-step") or 0)


def test_replay_plays_the_run_from_its_first_step_to_the_lines_of_its_end(page: Page, runs: dict[str, Any]) -> None:
    run = runs["seeds"][0]
    whole = {key: show(page, run, key=key)["values"] for key in ("reward", "accuracy", "omega")}
    results = page.locator("#results").inner_text()
    page.get_by_role("link", name="Replay", exact=True).click()
    expect(page).to_have_url(re.compile("replay=1$"))
    expect(page.locator("#results")).to_contain_text("not evaluated yet")
    page.get_by_label("Speed").select_option("5")  # 308 events, one a second: a minute
    page.wait_for_function("() => document.querySelector('#replay').dataset.step > 0")
    begun = drawn(page, "reward")
    assert 0 < len(begun["x"]) < STEPS  # what has been played, and no more
    assert begun["scale"][1] < STEPS
    expect(page.locator(".run-header [data-show='step']").first).not_to_have_text(str(STEPS))
    page.get_by_label("Speed").select_option("500")
    expect(page).to_have_url(re.compile("replay=500"))
    expect(page.locator("#replay")).to_have_attribute("data-over", "true")
    expect(page.locator("#replay-play")).to_have_text("Play again")
    assert {key: drawn(page, key)["values"] for key in whole} == whole
    expect(page.locator(".run-header [data-show='step']").first).to_have_text(str(STEPS))
    assert page.locator("#results").inner_text() == results


def test_address_begins_at_its_step_and_zoom_shows_nothing_of_what_comes(page: Page, runs: dict[str, Any]) -> None:
    page.goto(f"/runs/{runs['seeds'][0]}?replay=1&at=30")
    page.wait_for_function("() => document.querySelector('#replay').dataset.step == 30")
    page.get_by_role("button", name="Pause").click()
    page.locator("#replay-step").evaluate("range => { range.value = 41; range.dispatchEvent(new Event('change')); }")
    page.wait_for_function("() => document.querySelector('#replay').dataset.step == 41")
    expect(page).to_have_url(re.compile("at=41"))
    page.get_by_label("First step shown").fill("10")
    page.get_by_label("Last step shown").fill("60")
    page.get_by_label("Last step shown").press("Enter")
    assert drawn(page, "reward")["x"] == list(range(10, 42))
    # Two evaluations by then, at the steps 20 and 40.
    assert drawn(page, "accuracy")["x"] == [20, 40]
    page.get_by_role("link", name="End replay").click()
    expect(page.locator("#replay")).to_have_count(0)
    assert len(drawn(page, "reward")["x"]) == STEPS


@pytest.mark.full
def test_who_wants_less_motion_plays_it_step_by_step(browser: Browser, context, server: Server, runs) -> None:
    calm = browser.new_context(base_url=server.url, reduced_motion="reduce", storage_state=context.storage_state())
    page = calm.new_page()
    page.goto(f"/runs/{runs['seeds'][0]}?replay=500")
    expect(page.locator("#replay-play")).to_have_text("Play")
    for step in (1, 2, 3):
        page.get_by_role("button", name="Next step").click()
        page.wait_for_function(f"() => document.querySelector('#replay').dataset.step == {step}")
    page.wait_for_timeout(300)
    assert at(page) == 3
    calm.close()


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", *in_full("dark")])
def test_replay_is_operable_and_labelled(page: Page, runs: dict[str, Any], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/runs/{runs['seeds'][0]}?replay=1&at=30")
    page.wait_for_function("() => document.querySelector('#replay').dataset.step == 30")
    assert findings(page, source(), scheme) == []
