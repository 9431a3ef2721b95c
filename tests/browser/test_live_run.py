"""From a form to two models teaching each other, live: the product's main path, clicked through in Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.steps import STEPS, fill_run, first_glance, queue


def points(page: Page) -> int:
    return int(page.locator("#charts").get_attribute("data-points") or 0)


def drawn(page: Page) -> dict[str, float]:
    """Every point that the charts hold: {"chart / line / step": value}."""
    return page.evaluate(
        """async () => {
            const { charts } = await import(document.querySelector("script[src*='js/run/run.js']").src);
            const found = {};
            for (const [chart, lines] of charts.store.lines)
                for (const [line, { steps, last }] of lines)
                    for (const [index, step] of steps.entries())
                        found[`${chart} / ${line} / ${step}`] = last[index];
            return found;
        }"""
    )


def wait_for_points(page: Page, more_than: int) -> None:
    page.wait_for_function(
        "least => Number(document.querySelector('#charts').dataset.points) > least", arg=more_than, timeout=60_000
    )


def test_run_streams_live_and_a_reload_loses_nothing(page: Page, registered) -> None:
    fill_run(page)
    queue(page)
    updates = set()
    page.wait_for_function("() => Number(document.querySelector('#charts').dataset.updates) >= 1", timeout=60_000)
    while len(updates) < 10:  # ten updates came in without a reload
        updates.add(int(page.locator("#charts").get_attribute("data-updates") or 0))
        page.wait_for_function(
            "seen => Number(document.querySelector('#charts').dataset.updates) > seen", arg=max(updates), timeout=60_000
        )
    assert page.locator("#run").get_attribute("data-state") == "running"
    before = drawn(page)
    assert len(before) > 0

    page.reload()  # in mid-run
    wait_for_points(page, len(before))
    after = drawn(page)
    assert {key: after[key] for key in before} == before  # the same points ...
    assert len(after) > len(before)  # ... and new ones
    expect(page.locator("#run")).to_have_attribute("data-state", "completed", timeout=120_000)
    expect(page.locator("[data-show='step']")).to_have_text(str(STEPS))
    stored = page.evaluate("fetch(`/api/v1${location.pathname}`).then(a => a.json()).then(run => run.last_seq)")
    expect(page.locator("#charts")).to_have_attribute("data-last-seq", str(stored))
    streamed = drawn(page)

    page.reload()  # after the end: what was streamed equals what is stored
    wait_for_points(page, len(streamed) - 1)
    assert drawn(page) == streamed
    expect(page.locator("[data-show='step']")).to_have_text(str(STEPS))


@pytest.mark.full
def test_lost_socket_is_shown_and_the_missed_events_are_replayed(page: Page, registered) -> None:
    fill_run(page, name="Cut socket", **{"training.steps": 40})
    queue(page)
    wait_for_points(page, 20)
    page.context.set_offline(True)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    expect(page.locator("[data-link]")).not_to_have_attribute("data-link", "live", timeout=30_000)
    page.context.set_offline(False)
    expect(page.locator("#run")).to_have_attribute("data-state", "completed", timeout=120_000)
    streamed = points(page)
    page.reload()
    page.wait_for_function("n => Number(document.querySelector('#charts').dataset.points) >= n", arg=streamed)
    assert points(page) == streamed


@pytest.mark.full
def test_stop_ends_a_running_run(page: Page, registered) -> None:
    fill_run(page, name="To be stopped", **{"training.steps": 5000})
    queue(page)
    wait_for_points(page, 5)
    page.reload()  # without the message that it was queued
    glance = first_glance(page)
    assert glance["top"] <= 260
    assert glance["strip"] < glance["top"]
    expect(page.locator("#hero[data-step]")).to_be_visible(timeout=30_000)  # the teaching graph follows
    influential = page.locator("#influential")
    expect(influential).to_have_attribute("data-drawn", re.compile(r"\d+"))  # and the rollouts that taught most in it
    first = influential.get_attribute("data-drawn") or ""
    expect(influential).not_to_have_attribute("data-drawn", first, timeout=30_000)
    expect(page).to_have_title(re.compile(r"^\d+/5000 · To be stopped"))
    page.get_by_label("More actions").click()
    page.get_by_text("Stop…").click()
    page.get_by_role("button", name="Stop this run").click()
    expect(page.locator("#run")).to_have_attribute("data-state", "stopped", timeout=60_000)


@pytest.mark.full
def test_delta_above_one_half_is_queued_only_when_confirmed(page: Page, registered) -> None:
    fill_run(page, name="Confirmed", **{"algorithm.delta": 0.8, "training.steps": 2})
    page.get_by_role("button", name="Queue run").click()
    field = page.locator("[data-field='algorithm.delta']")
    expect(field).to_contain_text("A delta of 0.8 means a lower bound of 0.2.")
    assert "/runs/new" in page.url
    field.get_by_role("checkbox").check()
    queue(page)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training.learning_rate", "nan", "finite number"),
        pytest.param("training.learning_rate", "1,5", "number", marks=pytest.mark.full),
        pytest.param("training.steps", "-3", "at least 0", marks=pytest.mark.full),
        ("training.mini_batch_size", "3", "Must divide"),
    ],
)
def test_bad_value_is_explained_beside_its_field(page: Page, registered, field, value, message) -> None:
    before = page.request.get("/api/v1/runs").json()["count"]
    fill_run(page, name="Bad", **{field: value})
    page.get_by_role("button", name="Queue run").click()
    expect(page.locator(f"[data-field='{field}']")).to_contain_text(message)
    assert page.request.get("/api/v1/runs").json()["count"] == before
