"""The leaderboard in a browser: files equal the page, a picture is saved, the address brings the look back, axe."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.axe import findings, source
from tests.support.browser.board_files import check_files, saved, score_columns
from tests.support.browser.steps import visit


def test_files_hold_the_numbers_of_the_page(page: Page, boards: dict[str, str]) -> None:
    page.goto(boards["several"])
    lines = check_files(page)
    assert len(lines) == 4
    names = score_columns(lines)
    assert len(names) == 3  # two benchmarks and their average
    report = saved(page, "Report").read_text()
    assert all(f'title="{line[names[-1]]}"' in report for line in lines)


def test_look_comes_back_with_its_address(page: Page, boards: dict[str, str]) -> None:
    page.goto(boards["several"])
    for label, value, address in (
        ("Baseline", "gspox2", "baseline=gspox2"),
        ("Cells hold", "difference", "baseline=gspox2.*show=difference"),
        ("Cost", "tokens", "baseline=gspox2.*show=difference.*cost=tokens"),
    ):
        page.get_by_label(label, exact=True).select_option(value)  # acts at once
        expect(page).to_have_url(re.compile(address))
    hacpo = page.locator("tbody[data-algorithm='hacpo']")
    expect(hacpo).to_contain_text("+0.1")
    seen = hacpo.inner_text()
    page.reload()
    assert hacpo.inner_text() == seen


def test_sentence_and_picture_stand_in_the_first_600_pixels(page: Page, boards: dict[str, str]) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(boards["several"])
    expect(page.locator(".board-lead [data-figure][data-drawn]")).to_be_visible()
    below = page.evaluate("""() => [".board-headline", ".board-lead [data-figure]"].map(
        (one) => document.querySelector(one).getBoundingClientRect().bottom)""")
    assert max(below) <= 600, below


def test_picture_is_saved_as_png(page: Page, boards: dict[str, str]) -> None:
    page.goto(boards["grid"])
    expect(page.locator("figure")).to_have_count(4)
    for name in ("Score of each seed", "Sensitivity to algorithm.alpha"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"PNG of {name}").click()
        assert download.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.full
@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.full)])
def test_axe_finds_nothing_serious_and_no_board_scrolls_sideways(
    page: Page, boards: dict[str, str], width: int
) -> None:
    axe = source()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(boards["several"])
    row = page.locator(".score").first.get_attribute("href")
    found = []
    for address in visit(page, [*boards.values(), "/leaderboard/", str(row)]):
        found += findings(page, axe, address)
    assert found == []
