"""The buttons of a run's header and of the queue, by keyboard, in Chromium, over a product with fake trainers."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.faults.world import World
from tests.support.browser.axe import findings, source

pytestmark = pytest.mark.full


@pytest.fixture
def page(world_page: Page) -> Page:
    return world_page


def press(page: Page, name: str | re.Pattern[str]) -> None:
    """As a keyboard does it: focus, then Enter."""
    button = page.get_by_role("button", name=name, exact=isinstance(name, str))
    button.focus()
    page.keyboard.press("Enter")


def state(page: Page, word: str) -> None:
    expect(page.locator(".run-header .state")).to_have_attribute("data-state", word, timeout=30_000)


def test_pause_resume_stop_and_retry_by_keyboard(world: World, page: Page) -> None:
    run_id = world.launch("complete")
    world.until_step(run_id, 5)
    page.goto(f"/runs/{run_id}")
    state(page, "running")
    press(page, "Pause")
    state(page, "paused")
    expect(page.locator("#reason")).to_contain_text("paused by ")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_hidden()
    assert world.processes(run_id) == []
    paused_at = world.step(run_id)
    press(page, "Resume")
    state(page, "running")
    world.until_step(run_id, paused_at + 3)
    assert world.starts(run_id)[2] == paused_at
    for summary in (".run-menu > summary", "#stop summary"):
        page.locator(summary).focus()
        page.keyboard.press("Enter")
    expect(page.locator("#stop")).to_contain_text("Lost:")
    press(page, "Stop this run")
    state(page, "stopped")
    for summary in (".run-menu > summary", "#retry summary"):
        page.locator(summary).focus()
        page.keyboard.press("Enter")
    expect(page.locator("#retry")).to_contain_text("It starts at step 0")
    press(page, "Retry as a new run")
    page.wait_for_url(lambda url: "/runs/" in url and str(run_id) not in url)
    expect(page.locator("body")).to_contain_text("Retry of")
    state(page, "running")
    again = UUID(page.url.rstrip("/").rpartition("/")[2])
    world.runs.append(again)
    for one in (run_id, again):
        world.end(one)
        assert world.violations(one) == []


def test_run_whose_verifier_fails_says_so_in_its_header(world: World, page: Page) -> None:
    run_id = world.launch("verifier", steps=20)
    page.goto(f"/runs/{run_id}")
    state(page, "paused")
    expect(page.locator("#reason")).to_have_text("the verifier fails: it did not start; 6 tries")
    press(page, "Resume")
    state(page, "completed")


def test_killed_run_says_so_in_a_card_and_in_the_log_of_each_attempt(world: World, page: Page) -> None:
    run_id = world.launch("killed")
    page.goto(f"/runs/{run_id}")
    state(page, "failed")
    card = page.locator("#ending")
    expect(card.get_by_role("heading")).to_contain_text("The trainer was killed 4 times (SIGKILL), most recently")
    expect(card).to_contain_text("ran out of memory")
    expect(card.get_by_role("link", name="Edit and rerun")).to_be_visible()
    expect(page.locator("#reason")).to_be_hidden()
    for reload in (False, True):  # as it came in live, and as a later reader finds it
        if reload:
            page.reload()
        page.locator(".tabs").get_by_role("link", name="Logs").click()
        expect(page.locator(".log-attempt")).to_have_text([f"Attempt {number}" for number in (1, 2, 3, 4)])
        expect(page.locator(".log-line", has_text="SIGKILL")).to_have_count(4)
        expect(page.locator(".log-line").last).to_contain_text("run failed: interrupted 4 times")


def test_queue_is_reordered_by_keyboard(world: World, page: Page) -> None:
    busy = world.launch("complete")
    world.until_state(busy, "running")
    first, second = world.launch("complete first"), world.launch("complete second")
    page.goto("/workers/")
    rows = page.locator("#queue tbody tr")
    expect(rows.first).to_contain_text("complete first")
    press(page, "Move complete first down")
    expect(rows.first).to_contain_text("complete second")
    press(page, "Pause complete second: hold it out of the queue")
    expect(page.locator("#paused-runs")).to_contain_text("complete second")
    expect(rows).to_have_count(1)
    page.goto(f"/runs/{first}")
    expect(page.locator("#place")).to_contain_text("place 1")
    for run_id in (first, second, busy):
        world.end(run_id)


def drag(page: Page, name: str, onto: str, *, low: bool) -> None:
    """By its handle, to the upper or lower half of another run's row; the button stays down."""
    handle = page.locator("#queue tr", has_text=name).locator(".queue-handle").bounding_box()
    row = page.locator("#queue tr", has_text=onto).bounding_box()
    assert handle
    assert row
    page.mouse.move(handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2)
    page.mouse.down()
    page.mouse.move(handle["x"] + 8, row["y"] + row["height"] * (0.8 if low else 0.2), steps=6)


def order(page: Page, *names: str) -> None:
    expect(page.locator("#queue tbody th")).to_have_text([f"complete {name}" for name in names])


def test_queue_is_reordered_by_dragging(world: World, page: Page) -> None:
    busy = world.launch("complete")
    world.until_state(busy, "running")
    runs = {name: world.launch(f"complete {name}") for name in ("one", "two", "three")}
    page.goto("/workers/")
    page.locator("#queue").scroll_into_view_if_needed()
    order(page, "one", "two", "three")
    assert findings(page, source(), "queue") == []
    drag(page, "complete three", "complete one", low=False)
    expect(page.locator(".drop-before")).to_contain_text("complete one")
    page.mouse.up()
    expect(page.locator("#queue-said")).to_have_text("complete three was moved to place 1.")
    order(page, "three", "one", "two")
    page.reload()
    order(page, "three", "one", "two")
    drag(page, "complete three", "complete two", low=True)
    page.keyboard.press("Escape")  # thought better of
    page.mouse.up()
    order(page, "three", "one", "two")
    expect(page.locator("[data-dragged], .drop-after")).to_have_count(0)
    drag(page, "complete three", "complete two", low=True)
    assert world.ask(f"/api/v1/runs/{runs['one']}/pause", {}).status == 200
    page.wait_for_timeout(6000)  # the page looks again in the middle of the drag
    order(page, "three", "one", "two")  # and lets it be
    page.mouse.up()
    expect(page.locator("#queue-said")).to_have_text("complete three was moved to place 2.")
    order(page, "two", "three")
    drag(page, "complete three", "complete two", low=False)
    assert world.ask(f"/api/v1/runs/{runs['three']}/stop", {}).status == 200  # while it is dragged
    page.mouse.up()
    expect(page.locator("#queue-said")).to_have_text("Only a run that waits in the queue has a place in it.")
    order(page, "two")
    assert world.ask(f"/api/v1/runs/{runs['one']}/resume", {}).status == 200
    expect(page.locator("#queue tbody tr")).to_have_count(2, timeout=15_000)  # without a reload
    for run_id in (*runs.values(), busy):
        world.end(run_id)


def test_slash_goes_to_the_filters_of_lists(world: World, page: Page) -> None:
    run_id = world.launch("complete", steps=2)
    world.until_state(run_id, "completed")
    page.goto("/runs/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search runs by name")).to_be_focused()
    page.goto(f"/runs/{run_id}/events")  # links filter it, no field
    page.keyboard.press("/")
    expect(page.locator("main a.filter").first).to_be_focused()
