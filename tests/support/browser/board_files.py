"""What a board lets users save, held against what it shows: the numbers of the page are those of the files."""

from __future__ import annotations

import csv
from pathlib import Path

from playwright.sync_api import Locator, Page


def saved(page: Page, name: str) -> Path:
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).click()
    return download.value.path()


def check_files(page: Page) -> list[dict[str, str]]:
    """CSV and LaTeX of the board that `page` shows: each row's means, whole and rounded. Returns the CSV's lines."""
    shown = {
        body.get_attribute("data-row"): [numbers_of(score) for score in body.locator("tr:first-child .score").all()]
        for body in page.locator("tbody[data-row]").all()
    }
    assert any(shown.values())
    with open(saved(page, "CSV"), newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["agent"] == "mean" and line["row"]]
    assert {line["row"] for line in lines} == set(shown)
    names = score_columns(lines)
    tex = saved(page, "LaTeX").read_text().splitlines()
    for line in lines:
        scores = shown[line["row"]]  # none where no run has completed yet
        assert [whole for whole, _ in scores] == [line[name] for name in names if line[name]], line
        algorithm = line["algorithm"].replace("_", r"\_")
        rows = [text for text in tex if text.startswith(f"{algorithm} ")]
        assert any(all(rounded in text for _, rounded in scores) for text in rows), (line["row"], rows)
    return lines


def numbers_of(score: Locator) -> tuple[str, str]:
    """A score as its hover tells it and as it is shown; one that is not rounded has no hover."""
    shown = score.inner_text()
    rounded = score.locator("span[title]")
    return (rounded.get_attribute("title") or shown) if rounded.count() else shown, shown


def score_columns(lines: list[dict[str, str]]) -> list[str]:
    """The columns of means: each has its interval beside it."""
    return [name for name in lines[0] if f"{name} ±" in lines[0] and " minus " not in name]
