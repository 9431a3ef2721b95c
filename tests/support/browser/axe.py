"""What the walks look for on a page in Chromium: serious findings of axe, and a page wider than its window."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

# Colours in the middle of a transition are nobody's choice; what repeats for ever is not waited for.
TRANSITIONS_END = """() => Promise.allSettled(document.getAnimations()
    .filter((one) => one.effect.getComputedTiming().endTime < Infinity).map((one) => one.finished))"""
AXE = Path(__file__).resolve().parents[3] / "frontend/node_modules/axe-core/axe.min.js"


def source() -> str:
    """axe-core's script. Where it is not installed the test is skipped, or fails in CI."""
    if AXE.exists():
        return AXE.read_text()
    message = "axe-core is missing: npm ci in frontend/ installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def findings(page: Page, axe: str, where: str) -> list[tuple[str, str, str]]:
    """What is seriously wrong with the page as it stands: (where, rule, element)."""
    page.evaluate(TRANSITIONS_END)
    page.evaluate(axe)
    violations = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    grave = [one for one in violations if one["impact"] in ("serious", "critical")]
    found = [(where, one["id"], one["nodes"][0]["html"]) for one in grave]
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        found.append((where, "scrolls sideways", ""))
    return found
