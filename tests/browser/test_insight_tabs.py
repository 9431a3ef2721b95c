"""Tabs of a run and the workspace of runs as a reader uses them, in Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.steps import fill_run, queue


@pytest.mark.full
def test_tab_stays_live_agents_answer_and_runs_are_compared_by_their_address(page: Page, registered) -> None:
    fill_run(page, name="Tabs", **{"training.steps": 8, "evaluation.eval_interval": 2})
    queue(page)
    run = page.url.partition("?")[0]

    page.goto(f"{run}/config")  # a page of its own, drawn once: its header follows the run
    expect(page.locator(".run-header .state")).to_have_attribute("data-state", "completed", timeout=120_000)
    expect(page.locator("#continue")).to_have_text("Continue training…")
    expect(page.locator(".run-header [data-show='step']")).to_have_text("8")
    page.locator("#continue").click()
    expect(page.locator("#continue-training").get_by_label("Additional steps")).to_be_visible()
    page.goto(f"{run}/events?kind=trainer")
    expect(page.locator("#events [data-kind]").first).to_contain_text("trainer completed")
    assert page.locator("#events [data-kind='evaluation']").count() == 0

    page.goto(f"{run}/evaluations")
    page.locator(".answers tbody a").first.click()
    opened = page.locator("#opened h3")
    first = opened.inner_text()
    expect(page.locator("#opened .answer-card")).to_have_count(2)
    page.keyboard.press("n")
    expect(opened).not_to_have_text(first)
    page.wait_for_load_state()  # a key before the page's script would be nobody's
    page.keyboard.press("p")
    expect(opened).to_have_text(first)

    page.goto(f"{run}/checkpoints")
    page.get_by_label("Question").fill("3+7=")
    page.get_by_label("Expected answer").fill("1")
    page.get_by_role("button", name="Ask", exact=True).click()
    answers = page.locator("#answers .rollout")
    expect(answers).to_have_count(2, timeout=90_000)
    expect(answers.first).to_contain_text(re.compile("tokens"))
    page.get_by_label("Temperature").fill("-1")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers [role='alert']")).to_contain_text("A number from 0 to 5 is needed")

    page.goto("/runs/")
    page.get_by_label("Choose Tabs").first.check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.get_by_role("heading", name="Settings that differ")).to_be_visible()
    page.get_by_role("link", name="Panels", exact=True).last.click()
    expect(page.locator("#panels")).to_have_attribute("data-lines", "1")
    chart = page.locator("#chart-accuracy")
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.45 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"first=\d+&last=\d+"))
    page.locator("select[name=agents]").select_option("each")
    expect(page.locator("#panels")).to_have_attribute("data-lines", "2")  # one of each agent
    page.reload()
    expect(page.locator("#panels")).to_have_attribute("data-lines", "2")
    page.get_by_role("button", name="Whole axis").click()
    expect(page).not_to_have_url(re.compile("first="))
    page.get_by_role("button", name="Show Tabs in the panels").click()
    expect(page.get_by_text("No run is visible")).to_be_visible()
    expect(page).to_have_url(re.compile("hide=[0-9a-f]{8}"))
