"""The form for lm-evaluation-harness finds the names of tasks, in Chromium."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.support.browser import axe

pytestmark = pytest.mark.slow


def test_task_is_found_by_a_part_of_its_name_and_added_once(page: Page, server: Server) -> None:
    python = server.data / "lm_eval" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/sh")
    content = {"python": str(python), "version": "0.4.99", "tasks": ["gsm8k", "gsm8k_cot", "arc_easy"]}
    (server.data / "lm_eval_tasks.json").write_text(json.dumps(content))
    page.goto("/evaluate/harness")
    search, tasks, names = (
        page.get_by_label("Find a task"),
        page.locator("#tasks"),
        page.locator("#task-names").get_by_role("button"),
    )
    tasks.fill("arc_easy")
    search.press_sequentially("gsm")
    expect(names).to_have_count(2)
    expect(page.locator("#task-found")).to_have_text("2 names contain this.")
    search.press("Enter")  # no whole name: nothing is added, nothing is queued
    expect(tasks).to_have_value("arc_easy")
    search.press_sequentially("8k_cot")
    search.press("Enter")
    expect(tasks).to_have_value("arc_easy gsm8k_cot")
    expect(search).to_have_value("")
    search.press_sequentially("gsm8")
    expect(names).to_have_count(2)
    names.filter(has_text="gsm8k_cot").click()
    expect(search).to_have_value("")
    expect(tasks).to_have_value("arc_easy gsm8k_cot")
    assert axe.findings(page, axe.source(), "harness form") == []
