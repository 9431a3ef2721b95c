"""Rollouts and What-if in a browser: hostile texts stay texts, keys lead on, mathematics and sliders do their work."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.hostile_run import HOSTILE

VIOLATIONS = "addEventListener('securitypolicyviolation', (e) => (window.violations ??= []).push(e.violatedDirective));"


@pytest.fixture
def watched(page: Page) -> Iterator[Page]:
    """A page whose dialogs, violations of the content policy and requests to other hosts fail the test."""
    dialogs, elsewhere = [], []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: elsewhere.append(request.url) if "elsewhere" in request.url else None)
    page.add_init_script(VIOLATIONS)
    yield page
    assert (dialogs, elsewhere, page.evaluate("window.violations ?? []")) == ([], [], [])


def test_hostile_texts_are_shown_as_text_and_drawn_without_harm(watched: Page, hostile_run: str) -> None:
    page = watched
    page.goto(f"{hostile_run}/rollouts?step=1&maths=1")
    expect(page.locator(".rollout .maths")).to_have_count(len(HOSTILE))
    shown = page.locator(".agent-column pre").all_text_contents()
    assert shown == [_written(text)[:4000] for text in HOSTILE]
    made = "document.querySelectorAll('main script, .group img, .group iframe, .maths a, main [hx-get]').length"
    assert page.evaluate(made) == 0
    assert page.locator(".maths .katex").count() >= 2  # texts of markup, drawn as letters
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("h3 code").first.get_attribute("title") == "<b>p</b>"
    page.locator("[data-whole]").last.click()
    expect(page.get_by_text(re.compile("The first 200.000 of 5.000.000 characters")).first).to_be_visible()


def _written(text: str) -> str:
    for character in "\u202e\u2066\u200b":
        text = text.replace(character, f"⟨U+{ord(character):04X}⟩")
    return text.replace("\x00", "\ufffd").translate({code: 0x2400 + code for code in range(32)})


def test_keys_and_the_switch_of_the_mathematics(watched: Page, hostile_run: str) -> None:
    page = watched
    page.goto(f"{hostile_run}/rollouts?list=rollouts&step=2&agent=A")
    chosen = page.locator("#selected pre")
    expect(chosen).to_contain_text("first 0 of A")
    expect(page.locator(".katex")).to_have_count(0)
    page.get_by_label("Render LaTeX below the text").check()
    expect(page.locator("#selected .katex")).to_have_count(3)  # $x^2 = 4$, \(x = 2\), \boxed{2}; $5 and $6 is money
    for key, text in (("n", "first 1 of A"), ("N", "second 0 of A"), ("p", "first 1 of A"), ("N", "second 0 of A")):
        page.keyboard.press(key)
        expect(chosen).to_contain_text(text)
        expect(page.locator("#selected .katex")).to_have_count(3)  # the switch stays on
        expect(chosen).to_contain_text("$x^2 = 4$")  # and so does the text
    page.keyboard.press("P")
    expect(chosen).to_contain_text("first 0 of A")
    # .875 * 1 * .875 * 1.25 * 2 * 1 * 1 = 1.9140625
    fall = page.locator(".waterfall[data-weight='1.9140625']")
    assert float(fall.get_attribute("data-product") or 0) == pytest.approx(1.9140625)
    expect(fall.locator("tbody tr")).to_have_count(7)
    page.keyboard.press("/")
    expect(page.get_by_label("Filter", exact=True)).to_be_focused()
    page.keyboard.type("n")  # typing is not going on
    expect(chosen).to_contain_text("first 0 of A")


def test_keyboard_alone_filters_sorts_and_opens_an_answer(watched: Page, hostile_run: str) -> None:
    page = watched
    page.goto(f"{hostile_run}/rollouts")
    bar = page.get_by_label("Filter", exact=True)
    page.keyboard.press("/")
    expect(bar).to_be_focused()
    page.keyboard.type("step:2 learner:b")  # the second word is completed too
    assert "step:2 learner:B" in page.locator("#query-words option").evaluate_all("all => all.map(one => one.value)")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"rollouts\?step=2&learner=B$"))
    chips = page.locator("[data-chip] > span:first-child")
    expect(chips).to_have_text(["step:2", "learner:B"])
    page.keyboard.press("/")
    page.keyboard.press("Backspace")
    expect(chips).to_have_text(["step:2"])
    page.get_by_role("link", name="surprise").focus()
    page.keyboard.press("Enter")
    expect(chips).to_have_text(["step:2", "sort:surprise"])
    prompt = page.locator(".prompts a").nth(1)
    prompt.focus()
    page.keyboard.press("Enter")
    expect(prompt).to_have_attribute("aria-current", "true")
    shown = page.locator("#selected").inner_text()
    page.keyboard.press("n")
    expect(page.locator("#selected")).not_to_have_text(shown)
    expect(prompt).to_have_attribute("aria-current", "true")  # the next answer to the same prompt


def test_most_influential_rollout_is_one_click_from_overview_and_collaboration(watched: Page, hostile_run: str) -> None:
    page = watched
    for tab in ("", "/collaboration?step=2"):
        page.goto(f"{hostile_run}{tab}")
        strongest = page.locator("#influential [data-strongest]")
        expect(page.locator("#influential [data-influential-step]")).to_have_text("2")
        expect(strongest).to_contain_text("weight +1.91")
        expect(strongest.locator(".rollout")).to_have_count(2)  # the source's answer and the learner's own
        expect(strongest.locator("mark").first).to_be_visible()
        page.locator("#influential .influential-line").nth(1).focus()
        page.locator("#influential .influential-line").first.click()
        page.wait_for_url(re.compile(r"rollouts\?step=2&learner=\w&source=\w&rollout=\d+&shared=yes&sort=weight"))
        expect(page.locator("#selected")).to_be_visible()
        expect(page.locator(".comparison .rollout")).to_have_count(2)
    # The weight is under a tab, which the keyboard reaches and the address keeps.
    weight = page.locator(".waterfall[data-weight='1.9140625']")
    expect(weight).to_be_hidden()
    page.get_by_role("tab", name="Answers").focus()
    page.keyboard.press("ArrowRight")
    expect(weight).to_be_visible()
    expect(page.locator("#selected")).to_be_hidden()
    page.wait_for_url(re.compile("part=weight"))
    page.keyboard.press("N")
    expect(page.get_by_role("tab", name="How it got its weight")).to_have_attribute("aria-selected", "true")


def test_slider_recomputes_and_the_clone_takes_its_values(watched: Page, hostile_run: str) -> None:
    page = watched
    page.goto(f"{hostile_run}/what-if")
    # Learner B from A: .875 lies inside [.8, 1]; four rollouts of 1.9140625.
    pair = page.locator(".pair", has_text="learns from").filter(has=page.locator("h3 [data-agent='1']:first-child"))
    weight = pair.locator("tr", has_text="mean |weight|").locator("td")
    expect(weight.nth(0)).to_have_text("1.91")
    expect(weight.nth(1)).to_have_text("1.91")
    slider = page.get_by_label("Alpha, slider")
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Alpha", exact=True)).to_have_value("2")
    answer, ribbons = page.locator("#answer"), page.locator("#ribbons")
    expect(answer).to_have_text(
        re.compile(r"^With Alpha 2, peers would supply \d+ % of [AB]'s update instead of \d+ %: ")
    )
    low = [one.bounding_box() for one in (answer, ribbons)]
    assert all(box and box["y"] + box["height"] <= 600 for box in low), low
    expect(ribbons.locator(".ribbon-bar")).to_have_count(4)  # of each learner what was, and what would be
    expect(weight.nth(1)).to_have_text("1.67")  # .875^3 * 1.25 * 2 = 1.6748
    expect(weight.nth(0)).to_have_text("1.91")
    page.get_by_label("Delta", exact=True).fill("0.05")
    expect(weight.nth(1)).to_have_text("0")  # below [.95, 1]
    page.wait_for_url(re.compile(r"delta=0\.05&alpha=2"))
    page.reload()
    expect(weight.nth(1)).to_have_text("0")
    page.get_by_role("link", name="Clone the run with these values").click()
    expect(page.locator("[name='algorithm.alpha']")).to_have_value("2.0")
    expect(page.locator("[name='algorithm.delta']")).to_have_value("0.05")
