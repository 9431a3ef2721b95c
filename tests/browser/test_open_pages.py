"""Pages as they stand in a browser: nothing goes stale, wide tables can be reached, axe finds nothing serious."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.axe import findings, source
from tests.support.browser.steps import fill_run, open_cards, queue, visit

DEMO_PRESET = "The demo's settings (small models on a CPU)"


@pytest.fixture(scope="module")
def run_url(context, registered) -> Iterator[str]:
    """A run of two steps that has completed."""
    page = context.new_page()
    fill_run(page, name="Short", **{"training.steps": 2, "telemetry.alignment_interval": 1})
    queue(page)
    expect(page.locator("#run")).to_have_attribute("data-state", "completed", timeout=120_000)
    yield page.url
    page.close()


def test_text_is_set_in_the_font_that_is_installed_with_the_product(page: Page, registered) -> None:
    page.goto("/runs/")
    page.reload()  # from the cache, in time for `font-display: optional`
    families = "[...document.fonts].filter(one => one.status === 'loaded').map(one => one.family)"
    assert "Inter" in page.evaluate(f"document.fonts.ready.then(() => {families})")
    assert page.evaluate("getComputedStyle(document.body).fontFamily").startswith("Inter")


def test_preset_brings_its_confirmation_and_typing_over_it_takes_it_back(page: Page, registered) -> None:
    page.goto("/runs/new")
    open_cards(page)
    page.locator("[data-preset=demo]").click()  # delta .8
    field = page.locator("[data-field='algorithm.delta']")
    expect(field.locator("input.input")).to_have_value("0.8")
    expect(field).to_contain_text("0.8 is unusual; this preset needs it.")
    expect(page.locator("#warnings")).not_to_contain_text("lower bound")
    field.locator("input.input").fill(".80")
    expect(field).to_contain_text("0.8 is unusual; this preset needs it.")
    field.locator("input.input").fill("0.9")
    expect(field).not_to_contain_text("this preset needs it")
    expect(page.locator("#warnings")).to_contain_text("the lower bound becomes 0.1")
    page.get_by_role("button", name="Use 0.9 anyway").click()
    expect(field).to_contain_text("0.9 is confirmed.")
    expect(page.locator("#warnings")).not_to_contain_text("lower bound")
    page.get_by_label("Further presets").select_option(label="Paper: Qwen3-4B-Base + Llama3.2-3B-Instruct")  # delta .2
    expect(field.locator("[name=confirm]")).to_have_count(0)


def test_side_card_warns_of_a_context_as_soon_as_the_group_is_chosen(page: Page, registered) -> None:
    page.goto("/runs/new")
    open_cards(page)
    page.get_by_label("Agent group").select_option(label="Two families")  # 64 tokens; the paper's default is 5120
    warnings = page.locator("#warnings")
    expect(warnings).to_contain_text("has room for 64.")
    warnings.get_by_role("button", name=f"Use the preset “{DEMO_PRESET}”").click()
    expect(page.locator("[data-preset=demo]")).to_have_attribute("aria-pressed", "true")
    expect(warnings).not_to_contain_text("has room for")


def test_count_and_times_go_on_without_a_reload(clock_page: Page, run_url: str) -> None:
    answers = iter([{"running": 0, "demo": ""}, {"running": 3, "demo": ""}])
    clock_page.route("**/pulse", lambda route: route.fulfill(json=next(answers, {"running": 3, "demo": ""})))
    clock_page.goto(run_url)
    expect(clock_page.locator("[data-pulse]")).to_have_text("0")
    for pause_ms in (10_000, 11_000):
        # The next pause begins with the answer: time that passes before it counts for nothing.
        with clock_page.expect_event("requestfinished", lambda request: request.url.endswith("/pulse")):
            clock_page.clock.run_for(pause_ms)
        clock_page.wait_for_timeout(300)
    expect(clock_page.locator("[data-pulse]")).to_have_text("3")
    clock_page.clock.run_for(3_600_000)
    expect(clock_page.locator(".run-facts time")).to_have_text(re.compile("^1 h 0"))


@pytest.mark.full
def test_banner_of_the_last_deed_goes_with_the_next_step(page: Page, registered) -> None:
    fill_run(page, name="Banner", **{"training.steps": 500})
    queue(page)
    banner = page.locator("[data-banner]")
    page.wait_for_function("() => document.querySelector('#charts').dataset.points > 0", timeout=60_000)
    expect(banner).to_have_count(0)  # it runs: "is in the queue" is no longer true
    page.get_by_label("More actions").click()
    page.get_by_text("Stop…").click()
    page.get_by_role("button", name="Stop this run").click()
    expect(banner).to_contain_text("Stopping")
    page.get_by_role("link", name="Config").click()
    expect(banner).to_have_count(0)


def test_alignment_has_its_chart_and_an_ended_run_awaits_no_points(page: Page, run_url: str) -> None:
    page.goto(run_url)
    chart = page.locator("[data-chart='alignment']")
    expect(chart).to_contain_text("Theorem 4.3 says positive")
    # Untrained models may answer all wrong, which leaves no gradient to compare; then nothing is still to come.
    expect(chart.locator(".chart-empty")).not_to_have_text("no points yet", timeout=30_000)


def test_page_whose_run_is_taken_from_its_reader_is_called_live_no_more(page: Page, run_url: str) -> None:
    sockets = []
    page.route_web_socket("**/ws", lambda socket: (sockets.append(socket), socket.connect_to_server()))
    page.goto(run_url)
    link = page.locator("[data-link]")
    expect(link).to_have_text("live")
    expect(page.locator("#charts")).to_have_attribute("data-synced", re.compile(r"\d+"))
    frame = {"op": "error", "code": "not_found", "message": "gone", "run": run_url.rpartition("/")[2]}
    sockets[0].send(json.dumps(frame))
    expect(link).to_have_text("not live: it is deleted, or no longer yours to see")


def test_history_that_is_refused_is_a_line_of_the_log_and_the_page_is_live(page: Page, run_url: str) -> None:
    page.route("**/history?*", lambda route: route.fulfill(status=403, json={}))
    page.goto(run_url)
    expect(page.locator("#log-lines")).to_contain_text("the history cannot be read: the server answered 403")
    expect(page.locator("#charts")).to_have_attribute("data-synced", re.compile(r"\d+"))


def test_wide_table_is_reached_by_keyboard_and_scrolls(page: Page, run_url: str) -> None:
    page.set_viewport_size({"width": 800, "height": 800})
    page.goto("/groups/1")
    table = page.locator(".table-scroll").first
    expect(table).to_have_attribute("tabindex", "0")
    expect(table).to_have_attribute("aria-label", re.compile(r"\w \(scrollable\)$"))
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.table-scroll').scrollLeft > 0")
    page.set_viewport_size({"width": 2400, "height": 800})
    expect(table).not_to_have_attribute("tabindex", "0")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{run_url}?tab=logs")
    current = page.locator(".tabs [aria-current='page']")
    expect(current).to_have_text("Logs")
    expect(current).to_be_in_viewport(ratio=1)


LISTS = ("/groups/1", "/benchmarks/1", "/benchmarks/new", "/alerts/rules", "/people/", "/audit")
LISTS_OF_RUN = ("/events", "/evaluations", "/system", "/collaboration", "/checkpoints")


@pytest.mark.full
def test_no_list_scrolls_sideways_on_a_phone(page: Page, run_url: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    scrolling = {}
    for path in visit(page, [*LISTS, *(f"{run_url}{end}" for end in LISTS_OF_RUN)]):
        wide = (
            "tables => tables.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim())"
        )
        scrolling[path] = page.locator(".table-scroll:visible").evaluate_all(wide)
    assert {path: tables for path, tables in scrolling.items() if tables} == {}


@pytest.mark.full  # sixty pages
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_no_page_scrolls_sideways(
    page: Page, run_url: str, registered: Path, width: int, scheme: str
) -> None:
    axe = source()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    names = ["/", "/models/", "/models/new", "/groups/", "/groups/new", "/groups/1", "/benchmarks/", "/benchmarks/new"]
    page.goto("/benchmarks/new")
    page.locator("[name='file']").set_input_files(registered / "sums.jsonl")
    page.get_by_role("button", name="Read the columns").click()
    page.wait_for_url("**/benchmarks/new/*")
    names += [page.url, "/benchmarks/1", "/benchmarks/1?maths=1&try=0", "/benchmarks/1/delete"]
    names += ["/runs/", "/runs/new", "/leaderboard/", "/workers/", run_url, f"{run_url}/rollouts", f"{run_url}/what-if"]
    names += ["/sweeps/", "/runs/new?compare=1", f"/runs/new?clone={run_url.rpartition('/')[2]}&ablate=1"]
    names += [f"{run_url}{end}" for end in ("/config", "/events", "/system", "/checkpoints", "?tab=logs")]
    names += ["/evaluate", f"{run_url}/evaluations", f"{run_url}/evaluations?question=0"]
    names += ["/no/such/page", "/compare", f"/compare?runs={run_url.rpartition('/')[2]}"]
    run_id = run_url.rpartition("/")[2]
    names += ["/account", "/account/hub-token", "/account/tokens", "/projects/", "/people/", "/audit"]
    names += ["/alerts/", "/alerts/rules", "/notifications", "/prompts", "/reward-functions/", "/reward-functions/new"]
    names += [f"/runs/delete?runs={run_id}", f"/runs/archive?runs={run_id}", f"{run_url}/labels"]
    names += [f"{run_url}/export", "/models/1", "/groups/1/delete", "/models/1/delete"]
    names += ["/docs/", "/docs/mathematics", "/docs/settings", "/docs/tutorial", "/docs/search?q=delta"]
    found = []
    for name in visit(page, names):
        found += findings(page, axe, name)
    assert found == []
