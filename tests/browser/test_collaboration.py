"""The Collaboration tab in a browser: one step drives every picture, the address brings it back, keys do all."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Server
from tests.support.browser.axe import findings, source
from tests.support.marks import in_full

STEPS = 6
PICTURES = {
    "arrows": "#picture",
    "matrix": "#matrix",
    "omega": "#omega",
    "bars": ".histogram",
    "lines": ".panel > div:last-child",
    "ledger": "#ledger",
    "rescued prompts": "#rescued-prompts",
}


@pytest.fixture(scope="module")
def run_path(context, server: Server) -> str:
    """A generated run of three agents, six recorded steps."""
    options = ["--runs=1", f"--steps={STEPS}", "--agents=3", "--algorithms=hacpo", "--deltas=0.2"]
    return f"{server.generated_run(*options)}/collaboration"


def drawn(page: Page, step: int) -> dict[str, str]:
    """What each picture consists of, once it shows a step."""
    expect(page.locator("#collaboration")).to_have_attribute("data-drawn", str(step))
    # Patterns have a new id each time.
    return {
        name: re.sub(r"pattern-\d+", "", page.locator(selector).first.inner_html())
        for name, selector in PICTURES.items()
    }


def test_step_drives_every_picture_and_stands_in_the_address(page: Page, run_path: str) -> None:
    page.goto(run_path)
    last = drawn(page, STEPS)
    expect(page.locator("#findings .trap").first).to_contain_text("lie below")
    page.keyboard.press(",")
    before = drawn(page, STEPS - 1)
    assert [name for name in PICTURES if before[name] == last[name]] == []
    expect(page).to_have_url(re.compile(r"\?step=5$"))
    page.get_by_role("slider", name="Recorded step").press("ArrowLeft")
    drawn(page, STEPS - 2)
    page.get_by_role("spinbutton", name="Step").fill("5")
    page.get_by_role("spinbutton", name="Step").press("Enter")
    drawn(page, STEPS - 1)
    page.get_by_label("Learner").and_(page.locator("#learner")).select_option("1")
    page.get_by_label("Show").and_(page.locator("#measure")).select_option("used")
    expect(page.locator(".panel")).to_have_count(2)
    chosen = drawn(page, STEPS - 1)
    page.reload()
    assert drawn(page, STEPS - 1) == chosen
    expect(page.get_by_label("Show").and_(page.locator("#measure"))).to_have_value("used")
    # Along a row and a column of the matrix by arrow keys, and to the rollouts of the cell.
    page.locator("#matrix a").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    cell = page.locator("[data-cell='1-1']")
    expect(cell).to_be_focused()
    assert re.search(r"/rollouts\?learner=.+&source=.+&sort=weight&step=5$", cell.get_attribute("href") or "")
    page.locator("#omega").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    drawn(page, STEPS - 2)
    expect(page.locator("#omega-readout")).to_contain_text("= clip(")


@pytest.mark.parametrize("key", [",", *in_full(".")])
def test_keys_of_a_step_stop_the_playback(page: Page, run_path: str, key: str) -> None:
    page.goto(f"{run_path}?step=2")
    drawn(page, 2)
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#step-play")).to_have_text("Pause")
    page.keyboard.press(key)
    expect(page.locator("#step-play")).to_have_text("Play", timeout=1_000)  # before it ends by itself
    expect(page.locator("#step-play")).to_have_attribute("aria-pressed", "false")


def test_cursor_of_the_large_chart_and_the_scrubber_move_each_other(page: Page, run_path: str) -> None:
    page.goto(f"{run_path.removesuffix('/collaboration')}?picture=reward")
    hero = page.locator("#hero")
    at = page.locator("[data-chart='reward'] .chart-at")
    expect(hero).to_have_attribute("data-step", re.compile(r"\d+"))
    newest = hero.get_attribute("data-step")
    hero.get_by_label("Recorded step of the pictures").fill("1")  # the second recorded step
    expect(hero).to_have_attribute("data-step", "2")
    expect(at).to_have_text("step 2")
    box = page.locator("[data-chart='reward'] .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 40)
    expect(hero).to_have_attribute("data-step", str(newest))
    page.mouse.move(5, 5)
    expect(hero).to_have_attribute("data-step", "2")  # back to the scrubber's


def test_whole_run_is_more_than_a_step(page: Page, run_path: str) -> None:
    page.goto(f"{run_path}?step=2&ledger=run")
    drawn(page, 2)
    expect(page.locator("#ledger-note")).to_contain_text(f"All {STEPS} recorded steps.")
    first = page.locator("#ledger tbody tr").first.locator("td.number").first
    whole = int((first.text_content() or "").replace(",", ""))
    page.locator("#ledger-scope").select_option("step")
    expect(page).to_have_url(re.compile(r"\?step=2$"))
    assert whole == STEPS * int(first.text_content() or "0")


def test_live_run_is_followed_only_from_its_end(clock_page: Page, run_path: str) -> None:
    known = 4

    def cut(route) -> None:
        answer = route.fetch()
        if "json" in answer.headers["content-type"]:
            body = answer.json()
            return route.fulfill(json=body | {"ended": False, "steps": body["steps"][:known]})
        text = answer.text().replace(
            '"steps": [1, 2, 3, 4, 5, 6], "ended": true', '"steps": [1, 2, 3, 4], "ended": false'
        )
        return route.fulfill(response=answer, body=text)

    clock_page.route(re.compile(r"/collaboration(/steps)?$"), cut)
    clock_page.goto(run_path)
    drawn(clock_page, 4)
    note = clock_page.locator("#step-note")
    expect(note).to_have_text("4 of 4 recorded, live: follows the run")
    known = 5
    clock_page.clock.run_for(6000)
    drawn(clock_page, 5)
    clock_page.keyboard.press(",")
    drawn(clock_page, 4)
    known = 6
    clock_page.clock.run_for(6000)
    expect(note).to_have_text("4 of 6 recorded, live: the run continues")
    drawn(clock_page, 4)


@pytest.mark.full
def test_axe_finds_nothing_serious_and_the_tab_does_not_scroll_sideways(page: Page, run_path: str) -> None:
    axe = source()
    page.goto(run_path)
    drawn(page, STEPS)
    found = []
    for width, scheme in ((1440, "dark"), (390, "light")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        found += findings(page, axe, f"{width} px")
    assert found == []


@pytest.mark.full
def test_step_bar_stays_below_the_header_on_a_phone(page: Page, run_path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(run_path)
    drawn(page, STEPS)
    page.evaluate("scrollTo(0, 1500)")
    header, bar = (page.locator(selector).bounding_box() for selector in (".run-header", ".scrubber"))
    assert header
    assert bar
    assert bar["y"] >= header["y"] + header["height"]
