"""A link in a browser without a session, and the file with the network cut: pictures there, nothing else asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MS, Server
from tests.support.browser.axe import findings, source
from tests.support.marks import in_full

SIZES = [(1440, "light"), (390, "light"), (1440, "dark")]


@pytest.fixture
def visitor(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody without a session."""
    context = browser.new_context(base_url=server.url)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def pictures(page: Page) -> list[float]:
    """The widths of the pictures that have a line or a mark."""
    return page.locator("svg.chart-picture:has(polyline, circle, path)").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width)"
    )


def look(page: Page, name: str) -> None:
    """Neither the page nor a picture is wider than the window, in three forms."""
    for width, scheme in SIZES:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        assert all(200 < one <= width for one in pictures(page)), (name, width)


@pytest.fixture
def address(request: pytest.FixtureRequest, page: Page, server: Server) -> str:
    """A page of the kind that the test names."""
    kind = request.param
    if kind == "run":
        return server.generated_run("--runs", "2", "--steps", "40", "--agents", "2", "--questions", "20")
    board = str(request.getfixturevalue("boards")["several"])
    if kind == "board":
        return board
    if kind == "sweep":
        return f"/sweeps/{board.partition('sweep=')[2].partition('&')[0]}"
    page.goto("/reports/new")
    page.get_by_label("Title").fill("Shared findings")
    page.get_by_label("Text").fill(f"Sharing **helps**.\n\n{board}\n\nEnd.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Shared findings")).to_be_visible()
    return page.url


@pytest.mark.parametrize("address", ["run", *in_full("sweep", "board", "report")], indirect=True)
def test_link_and_file_show_pictures_and_ask_for_nothing_else(
    page: Page, visitor: Page, browser: Browser, server: Server, address: str, tmp_path: Path
) -> None:
    page.goto(address)
    if "/runs/" in address:
        page.get_by_label("More actions").click()
    page.get_by_role("link", name="Share…").click()
    page.get_by_label("For whom").fill("a reader")
    page.get_by_role("button", name="Make a link").click()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    asked: list[str] = []
    visitor.on("request", lambda request: asked.append(request.url))
    visitor.goto(page.locator("#new-link").inner_text())
    assert len(pictures(visitor)) >= 1
    assert visitor.locator("a, form, button, input, script").count() == 0
    assert findings(visitor, source(), address) == []
    look(visitor, "link")
    assert not [url for url in asked if not url.startswith((f"{server.url}/shared/", f"{server.url}/static/", "data:"))]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download HTML").click()
    file = tmp_path / "result.html"
    download.value.save_as(file)
    cut_off = browser.new_context(offline=True)
    opened = cut_off.new_page()
    fetched: list[str] = []
    opened.on("request", lambda request: fetched.append(request.url))
    opened.goto(file.as_uri())
    assert len(pictures(opened)) == len(pictures(visitor))
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []
    look(opened, "file")
    cut_off.close()
    page.get_by_role("button", name="Revoke").first.click()
    expect(page.get_by_text("The link is revoked.")).to_be_visible()
    gone = visitor.goto(visitor.url)
    assert gone is not None
    assert gone.status == 410
    expect(visitor.get_by_text("This link has ended")).to_be_visible()
