"""A sweep in Chromium, over a product with fake trainers: launched by the form, its rows come, all of it is stopped."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.faults.world import World
from tests.support.browser.board_files import check_files
from tests.support.browser.steps import open_cards

pytestmark = pytest.mark.full
# The page of a sweep is fetched anew when its last run has ended; between the two there is no page at all.
FETCHED_ANEW = """() => document.readyState === "complete" && document.querySelector(".sweep-matrix") !== null
    && document.querySelector("[data-reload-when-done]") === null"""


@pytest.fixture
def page(world_page: Page) -> Page:
    return world_page


def fill(page: Page, **values: object) -> None:
    for name, value in values.items():
        page.locator(f"[name='{name}']").fill(str(value))


def launch_a_sweep(page: Page) -> None:
    """Six variants with two seeds each, through the form, which counts them and says what cannot be queued."""
    page.goto("/runs/new")
    expect(page.get_by_label("Seeds", exact=True)).to_be_hidden()
    page.get_by_label("Sweep", exact=True).check()
    open_cards(page)
    expect(page.get_by_label("Seeds", exact=True)).to_be_visible()
    expect(page.get_by_label("Seed", exact=True)).to_be_hidden()
    page.get_by_label(re.compile("Signed sharing")).uncheck()
    page.get_by_label(re.compile("GSPOx2")).check()
    page.get_by_label(re.compile("No omega on gradients")).check()
    fill(page, name="complete pace=0.05", seeds="0, 1")
    steps = {"training.steps": 30, "training.train_batch_size": 4, "training.mini_batch_size": 4}
    fill(page, **steps, **{"grid.alpha": "1, 3"})
    cost = page.get_by_label("Cost and differences")
    # (hacpo, hacpo no_omega) x 2 alphas, gspo, gspox2: 6 variants x 2 seeds
    expect(cost.locator("[data-show='runs']")).to_have_text("12")
    # 2 agents x 4 prompts x 8 rollouts x 30 steps x 2 seeds x (5 + 2, for GSPOx2 takes twice as many)
    expect(cost.locator("[data-show='rollouts']")).to_have_text(re.compile(r"^26.880$"))
    fill(page, **{"training.mini_batch_size": 3})
    expect(page.locator("#not-yet")).to_contain_text("Prompts per update: Must divide")
    expect(cost.locator("[data-show='runs']")).to_have_text("–")
    fill(page, **{"training.mini_batch_size": 4})
    expect(page.locator("#not-yet")).to_be_hidden()
    page.get_by_role("button", name="Queue sweep").click()
    page.wait_for_url(re.compile(r"/sweeps/\d+$"))


def stop_and_retry(page: Page, matrix: Locator) -> None:
    """Stop what has not ended, queue that anew, and stop it again."""
    page.locator("#stop-all summary").click()
    expect(page.locator("#stop-all")).to_contain_text("Lost:")
    page.get_by_role("button", name="Stop all runs").click()
    expect(page.locator(".sweep-matrix")).not_to_contain_text("queued")
    ended = matrix.locator(".state[data-state='stopped'], .state[data-state='completed']")
    expect(ended).to_have_count(12, timeout=60_000)
    page.wait_for_function(FETCHED_ANEW)
    expect(page.locator("#stop-all")).to_have_count(0)
    expect(matrix.locator(".state[data-state='completed']").first).to_be_visible()
    stopped = matrix.locator(".state[data-state='stopped']").count()
    assert stopped >= 6
    expect(page.locator("#results [data-algorithm]").first).to_be_visible()
    page.get_by_text(f"Retry {stopped} stopped").click()
    page.get_by_role("button", name=f"Retry {stopped} run").press("Enter")
    expect(page.locator("[data-banner]")).to_contain_text(f"Requeued {stopped} runs")
    page.locator("#stop-all summary").click()
    page.get_by_role("button", name="Stop all runs").click()


def test_sweep_is_launched_by_the_form_shows_partial_rows_and_is_stopped(world: World, page: Page) -> None:
    launch_a_sweep(page)
    matrix = page.locator(".sweep-matrix tbody tr")
    expect(matrix).to_have_count(6)
    expect(matrix.locator("td[data-run]")).to_have_count(12)
    world.runs += [UUID(cell.get_attribute("data-run")) for cell in matrix.locator("td[data-run]").all()]
    # A row of results comes by itself with the first run that completes, and stands beside runs that wait.
    rows = page.locator("#results [data-algorithm]")
    expect(rows.first).to_be_visible(timeout=60_000)
    expect(matrix.locator(".state[data-state='completed']").first).to_be_visible()
    expect(page.locator("[data-count='completed'] dd")).not_to_have_text("0")
    expect(matrix.locator(".state[data-state='queued']").first).to_be_visible()
    expect(page.locator("#results")).to_contain_text("so far:")
    page.locator("#results .figures").scroll_into_view_if_needed()  # a picture is drawn when it comes into view
    expect(page.locator("#results [data-drawn]").first).to_be_attached(timeout=20_000)

    stop_and_retry(page, matrix)
    for run_id in world.runs:
        world.until_state(run_id, "completed", "stopped")
        assert world.violations(run_id) == []
    board = page.context.new_page()  # the page of the sweep may be fetched anew at any moment
    board.goto(page.get_by_role("link", name="Open the leaderboard").get_attribute("href") or "")
    assert {line["algorithm"] for line in check_files(board)} <= {"hacpo", "gspo", "gspox2"}
    page = board
    page.goto("/sweeps/")
    expect(page.locator("tbody tr")).to_contain_text("complete pace=0.05")


def test_run_is_ablated_by_its_button(world: World, page: Page) -> None:
    run_id = world.launch("complete", steps=2, seed=4)
    page.goto(f"/runs/{run_id}")
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="New ablation sweep").click()
    expect(page.get_by_label("Sweep", exact=True)).to_be_checked()
    expect(page.locator("[name='ablations']:checked")).to_have_count(6)
    expect(page.get_by_label("Seeds", exact=True)).to_have_value("4, 5, 6")
    expect(page.locator("[data-show='runs']")).to_have_text("21")
    world.end(run_id)
