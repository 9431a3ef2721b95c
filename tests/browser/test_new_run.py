"""The new-run form in Chromium: by keyboard alone, its differences to the defaults, its search, its void settings."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import axe
from tests.support.browser.steps import open_cards
from tests.support.marks import in_full

pytestmark = pytest.mark.slow


def to(page: Page, selector: str, key: str = "Tab") -> None:
    """Press a key until the element has the focus."""
    for _ in range(150):
        if page.evaluate("selector => document.activeElement?.matches(selector)", selector):
            return
        page.keyboard.press(key)
    pytest.fail(f"{selector} is not reached by {key}")


def type_into(page: Page, selector: str, text: str) -> None:
    to(page, selector)
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def opened(page: Page, address: str = "/runs/new") -> None:
    """The form with the pair of these tests chosen, its cards and the panel of all settings opened."""
    page.goto(address)
    open_cards(page)
    page.locator("#id-group").select_option(label="Two families")
    benchmark = page.locator("#id-benchmark option[data-name='Sums']").get_attribute("value")
    page.locator("#id-benchmark").select_option(benchmark)


def in_view(page: Page) -> None:
    """The sentence, the costs, the problems and the buttons are seen without scrolling."""
    page.evaluate("scrollTo(0, 0)")
    for selector in ("#run-summary", "#cost", "#not-yet", "#warnings", "#submit", "#save"):
        hidden, top, bottom, covered = page.evaluate(
            """selector => {
                const one = document.querySelector(selector), box = one.getBoundingClientRect();
                const at = document.elementFromPoint(box.left + box.width / 2, Math.min(box.bottom - 2, box.top + 40));
                return [one.hidden, box.top, box.bottom, !one.contains(at)];
            }""",
            selector,
        )
        if not hidden:
            assert top >= 0, selector
            assert bottom <= page.viewport_size["height"], selector
            assert not covered, selector


def test_pair_of_tiny_models_is_queued_with_three_presses_and_no_field(page: Page, registered) -> None:
    opened(page)
    group, benchmark = (page.locator(f"#id-{name}").input_value() for name in ("group", "benchmark"))
    page.goto(f"/runs/new?group={group}&benchmark={benchmark}")
    in_view(page)
    page.locator("#step-how > summary").click()
    page.locator("[data-preset=demo]").click()
    expect(page.locator("[data-line=how]")).to_have_text("HACPO, 40 steps, 24 × 8")
    expect(page.locator("#warnings")).to_be_hidden()
    in_view(page)
    page.locator("#submit").click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    page.goto(page.url + "/clone")  # the clone says what changed
    box = page.locator("#differences")
    expect(box).to_contain_text("Nothing yet.")
    page.locator("#step-how > summary").click()
    page.locator("#id-training-steps").fill("50")
    expect(box).to_contain_text("Changed from")
    expect(box.get_by_role("listitem")).to_have_text(re.compile(r"Steps 50 \(was 40\)"))
    in_view(page)
    page.locator("#id-training-train_batch_size").fill("7")  # 24 prompts an update do not divide it
    page.locator("#submit").click()
    expect(page.locator("#not-yet a")).to_have_text("Prompts per update")
    in_view(page)


@pytest.mark.parametrize("mode", ["1", "search"])
def test_costs_and_buttons_of_a_sweep_and_a_search_are_in_view(page: Page, registered, mode: str) -> None:
    opened(page, f"/runs/new?compare={mode}")
    if mode == "search":
        rate = page.locator("[name='grid.training.learning_rate']")
        rate.fill("1e-5..1e-2")
        expect(page.locator("#run-summary")).to_contain_text("at learning rate 1e-5..1e-2")
        page.get_by_role("button", name="Use 1e-5..1e-2 log").click()
        expect(rate).to_have_value("1e-5..1e-2 log")
        expect(page.locator("#warnings")).not_to_contain_text("decades")
    in_view(page)


def test_every_setting_is_found_by_its_label(page: Page, registered) -> None:
    opened(page)
    missing = page.evaluate(
        """() => {
            const search = document.querySelector("#id-settings-search");
            const fields = [...document.querySelectorAll("#step-how [data-section]")].filter((one) => !one.hidden);
            return fields.filter((field) => {
                search.value = field.querySelector("label").textContent;
                search.dispatchEvent(new Event("input", { bubbles: true }));
                return field.getBoundingClientRect().height === 0;
            }).map((field) => field.dataset.field);
        }"""
    )
    assert missing == []


def test_run_is_launched_by_keyboard_alone(page: Page, registered) -> None:
    page.goto("/runs/new")
    type_into(page, "#id-name", "By keyboard")
    to(page, "#step-who > summary")
    if page.locator("#step-who[open]").count() == 0:  # a run of before chose the group
        page.keyboard.press("Enter")
    to(page, "#id-group")
    page.keyboard.type("Two")
    to(page, "#step-on > summary")
    if page.locator("#step-on[open]").count() == 0:
        page.keyboard.press("Enter")
    to(page, "#id-benchmark")
    page.keyboard.type("Sums")
    to(page, "#step-how > summary")
    page.keyboard.press("Enter")
    expect(page.locator("#recommended")).to_be_visible()
    to(page, "#recommended button")
    page.keyboard.press("Enter")
    expect(page.locator("#id-training-train_batch_size")).not_to_have_value("128")
    type_into(page, "#id-training-steps", "5")
    type_into(page, "#id-training-train_batch_size", "4")
    to(page, "#all-settings > summary")
    page.keyboard.press("Enter")
    type_into(page, "#id-training-mini_batch_size", "4")
    expect(page.locator("#run-summary")).to_contain_text("learn “Sums” with HACPO: 5 steps of 4 prompts")
    to(page, "#submit")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}"))
    expect(page.locator("h1")).to_have_text("By keyboard")


def test_differences_to_the_defaults_are_listed_and_reset(page: Page, registered) -> None:
    opened(page)
    box = page.locator("#differences")
    expect(box).to_contain_text("Every setting has its default")
    page.locator("#id-training-steps").fill("7")
    expect(box.get_by_role("listitem")).to_have_text(re.compile(r"Steps 7 \(default 58\)"))
    page.locator("#id-training-learning_rate").fill("1e-6")  # the default, written otherwise
    expect(box.get_by_role("listitem")).to_have_count(1)
    box.get_by_role("button", name="Reset Steps to 58").click()
    expect(page.locator("#id-training-steps")).to_have_value("58")
    expect(box).to_contain_text("Every setting has its default")


def test_settings_of_one_agent_are_picked_and_named_in_the_summary_and_the_differences(page: Page, registered) -> None:
    opened(page)
    pencil = page.get_by_role("button", name="Override settings of").first
    name = (pencil.get_attribute("aria-label") or "").removeprefix("Override settings of ")
    pencil.click()
    page.locator("[data-agent-setting=learning_rate]").fill("1e-3")
    page.locator("[data-agent-setting=learning_rate]").press("Tab")
    expect(page.locator("#id-agents")).to_have_value(f"{name}: learning_rate = 1e-3")
    summary = page.locator("#run-summary")
    expect(summary).to_contain_text("learning rates 1e-3 and 1e-6")
    expect(summary).to_contain_text(f"In this run: {name} with learning_rate 1e-3.")
    box = page.locator("#differences")
    expect(box.get_by_role("listitem")).to_have_text(re.compile(f"{re.escape(name)}: learning_rate 1e-3"))
    box.get_by_role("button", name=f"Reset learning_rate of {name}").click()
    expect(page.locator("#id-agents")).to_have_value("")
    expect(summary).not_to_contain_text("In this run")


def test_void_setting_is_inactive_with_its_reason_and_settings_are_found_by_a_word(page: Page, registered) -> None:
    opened(page)
    memory = page.locator("[data-field='rollout.gpu_memory_utilization']")
    expect(memory.locator("input")).to_be_enabled()
    page.locator("#id-rollout-engine").select_option("transformers")
    expect(memory.locator("input")).to_be_disabled()
    expect(memory).to_contain_text("No effect with Rollout engine: transformers.")
    page.locator("#id-algorithm-name").select_option("signed")
    expect(page.locator("[data-field='algorithm.delta_step']")).to_be_hidden()  # a rule without that bound
    page.get_by_label("Search settings").fill("vllm memory")
    expect(page.locator("#settings-count")).to_have_text("2 settings")
    expect(memory).to_be_visible()
    expect(page.locator("[data-field='rollout.top_k']")).to_be_hidden()


def test_proposed_change_is_taken_by_one_press(page: Page, registered) -> None:
    opened(page)
    page.locator("#recommended button").click()
    page.locator("#id-rollout-max_prompt_length").fill("1")
    refusal = page.locator("#not-yet")
    expect(refusal).to_contain_text("Of the training questions of", timeout=60_000)  # a process reads the tokenizers
    refusal.get_by_role("button", name=re.compile(r"^Use max_prompt_length \d+$")).click()
    expect(refusal).to_be_hidden()
    expect(page.locator("#id-rollout-max_prompt_length")).not_to_have_value("1")
    # Settings of agents go into their field, beside what is there.
    page.locator("#id-agents").evaluate("one => { one.value = 'A: seed = 3; lora_rank = 8\\nB: {\"thinking\": true}' }")
    detail = {"label": "LoRA", "request": {"agents": {name: {"lora_rank": 16} for name in ("A", "B", "C")}}}
    page.evaluate(
        "detail => document.querySelector('#run-form').dispatchEvent(new CustomEvent('fix', {detail}))", detail
    )
    expected = 'A: seed = 3; lora_rank = 16\nB: {"thinking":true,"lora_rank":16}\nC: lora_rank = 16'
    expect(page.locator("#id-agents")).to_have_value(expected)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1440, "light"),
        *in_full((1440, "dark"), (390, "light"), (390, "dark")),
    ],
)
def test_form_has_no_violation_of_accessibility(page: Page, registered, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    opened(page)
    page.locator("#id-training-steps").fill("7")
    assert axe.findings(page, axe.source(), f"{width} {scheme}") == []


def test_summary_names_the_learning_rates_that_the_group_gives_its_agents(page: Page, registered) -> None:
    page.goto("/runs/new")
    script = """async () => {
        const form = document.querySelector("script[src*='js/launch/form']").src;
        const { summary } = await import(new URL(form).pathname.replace(/form[^/]*$/, "summary.js"));
        const agent = (name, learning_rate) => ({ name, lora_rank: 0, learning_rate });
        const of = (...agents) => summary({ changes: new Map(), group: { agents }, benchmark: "Sums",
            algorithms: ["HACPO"], variants: 0, seeds: 1, trials: 0, compares: false,
            value: (name) => ({ "training.learning_rate": "1e-6" })[name] ?? "1" });
        return [of(agent("A", null), agent("B", 1e-6)), of(agent("A", null), agent("B", 2e-3))];
    }"""
    [same, own] = page.evaluate(script)
    assert " at learning rate 1e-6," in same
    assert " at learning rates 1e-6 and 2e-3," in own


def test_extra_prompts_count_as_the_most_that_there_can_be(page: Page, registered) -> None:
    opened(page)
    for name, value in {"training-train_batch_size": 4, "training-mini_batch_size": 4, "training-steps": 5}.items():
        page.locator(f"#id-{name}").fill(str(value))
    page.locator("#id-rollout-num_generations").fill("8")
    box = page.get_by_label("Cost and differences")
    expect(box).to_contain_text("agents × 4 prompts × 8 rollouts")
    page.locator("#id-rollout-max_extra_prompts").fill("3")
    expect(box).to_contain_text("agents × (4 + 3 extra) prompts × 8 rollouts")
    agents = int((page.locator("[data-show=formula]").inner_text()).split()[0])
    expect(box.locator("[data-show=per-step]")).to_have_text(f"at most {agents * 7 * 8}")
    expect(box.locator("[data-show=rollouts]")).to_have_text(f"at most {5 * agents * 7 * 8}", timeout=60_000)
    expect(box).to_contain_text("a step samples them only while prompts have no signal")
    expect(page.locator("main")).to_contain_text("4 prompts (at most 3 more in place of those without a signal)")
