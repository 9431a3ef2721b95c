"""What a user does in the browser, step by step: register, group, add questions, fill in a run, queue it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from playwright.sync_api import Page, expect

STEPS = 100
# Counts what a page's scripts ask for; the load of the page waits for all else.
COUNT_REQUESTS = """
    window.openRequests = 0;
    const { fetch: ask } = window;
    window.fetch = (...request) => {
        window.openRequests += 1;
        return ask(...request).finally(() => { window.openRequests -= 1; });
    };
    const { send } = XMLHttpRequest.prototype;
    XMLHttpRequest.prototype.send = function (...body) {
        window.openRequests += 1;
        this.addEventListener("loadend", () => { window.openRequests -= 1; });
        return send.apply(this, body);
    };
"""
NOTHING_IS_OPEN = """() => new Promise((resolve) => {
    let looks = 0;
    const look = () => {
        looks = window.openRequests ? 0 : looks + 1;
        if (looks > 3) resolve(); else setTimeout(look, 30);
    };
    look();
})"""


def visit(page: Page, paths: Iterable[str]) -> Iterator[str]:
    """Open one path after the other, each until its scripts ask for nothing more: `networkidle` takes .5 s longer."""
    page.add_init_script(COUNT_REQUESTS)
    for path in paths:
        page.goto(path)
        page.evaluate(NOTHING_IS_OPEN)
        yield path


def register_model(page: Page, name: str, folder: Path) -> None:
    page.goto("/models/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label(re.compile("location|folder", re.IGNORECASE)).first.fill(str(folder))
    page.get_by_role("button", name="Check and register").click(timeout=60_000)  # a child imports transformers
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def make_group(page: Page, name: str, models: list[str]) -> None:
    page.goto("/groups/new")
    page.get_by_label("Name").first.fill(name)
    for index, model in enumerate(models):
        if not page.locator(f"[name='agents-{index}-model']").is_visible():
            page.get_by_role("button", name="Add an agent").click()
        choice = page.locator(f"[name='agents-{index}-model']")
        choice.select_option(value=choice.locator("option", has_text=model).get_attribute("value"))
    page.get_by_role("button", name="Create group").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def add_benchmark(page: Page, name: str, file: Path) -> None:
    page.goto("/benchmarks/new")
    page.locator("[name='file']").set_input_files(file)
    page.get_by_role("button", name="Read the columns").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Check and add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def open_cards(page: Page) -> None:
    """Open the cards of the new-run form and the panels in them."""
    page.evaluate("for (const one of document.querySelectorAll('#run-form details:not(.menu)')) one.open = true")


def fill_run(page: Page, **fields: object) -> None:
    page.goto("/runs/new")
    open_cards(page)
    page.get_by_label("Agent group").select_option(label="Two families")
    benchmark = page.get_by_label("Benchmark", exact=True)  # by name: other tests make some that cannot be trained on
    benchmark.select_option(value=benchmark.locator("option", has_text="Sums").get_attribute("value"))
    values = {
        "name": "Live run",
        "algorithm.beta": 0,
        "rollout.num_generations": 4,
        "rollout.max_prompt_length": 16,
        "rollout.max_completion_length": 6,
        "training.steps": STEPS,
        "training.train_batch_size": 8,
        "training.mini_batch_size": 8,
        "training.learning_rate": 0.001,
        "evaluation.eval_interval": 20,
        **fields,
    }
    for name, value in values.items():
        page.locator(f"[name='{name}']").fill(str(value))


def queue(page: Page) -> None:
    page.get_by_role("button", name="Queue run").click()
    page.wait_for_load_state()
    refused = page.locator(".field-error, .alert-error:visible").all_text_contents()
    assert not refused, f"the run was refused: {refused}"
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}"))


def first_glance(page: Page) -> dict[str, float]:
    """Pixels of the Overview as it is painted without scrolling: of the large chart, the strip, the widest margin."""
    page.wait_for_selector("#hero-charts .chart:not([hidden]) canvas")
    result = page.evaluate(
        """() => {
            scrollTo(0, 0);
            const box = (selector) => document.querySelector(selector).getBoundingClientRect();
            const plot = box("#hero-charts .chart:not([hidden]) .uplot");
            const [graph, strip, charts] = [".hero-graph", "#results", "#charts"].map(box);
            return { top: plot.top, width: plot.width, height: plot.height, strip: strip.bottom,
                     graphWidth: graph.width, graphHeight: graph.height,
                     margin: (innerWidth - charts.right) / innerWidth };
        }"""
    )
    return dict(result)
