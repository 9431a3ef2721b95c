"""The Overview tab's charts: nothing is smoothed away, the CSV is what is drawn, the address brings the view back."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.made_runs import LONG, SPIKE, SPIKE_STEP, STEPS
from tests.support.browser.steps import first_glance
from tests.support.marks import in_full

DRAWN = """async (key) => {
    const { charts } = await import(document.querySelector("script[src*='js/run/run.js']").src);
    const chart = charts.charts.find((one) => one.spec.key === key);
    while (charts.buckets.isLoading || charts.isPending || chart.isDirty) await new Promise(requestAnimationFrame);
    const [x, ...values] = chart.plot.data;
    return { steps: chart.table.steps, x, columns: chart.columns.map((column) => column.role + column.line), values,
             scale: [chart.plot.scales.x.min, chart.plot.scales.x.max], picture: chart.plot.ctx.canvas.toDataURL() };
}"""
SHIFT = """() => new Promise((resolve) => {
    let shift = 0;
    const add = (one) => { shift += one.hadRecentInput ? 0 : one.value; };
    new PerformanceObserver((list) => list.getEntries().forEach(add)).observe({ type: "layout-shift", buffered: true });
    setTimeout(() => resolve(shift), 50);
})"""
SEEN = """async ([key, step, value]) => {
    const { charts } = await import(document.querySelector("script[src*='js/run/run.js']").src);
    const { plot } = charts.charts.find((one) => one.spec.key === key);
    const [x, y] = [plot.valToPos(step, "x", true), plot.valToPos(value, "y", true)];
    const { data } = plot.ctx.getImageData(Math.round(x) - 3, Math.round(y), 7, 1);
    return data.some((part, index) => index % 4 === 3 && part > 0);
}"""


def show(page: Page, run: str, query: str = "", key: str = "reward") -> dict[str, Any]:
    """Open a run's page and return what one of its charts draws."""
    page.goto(f"/runs/{run}{query}")
    return drawn(page, key)


def drawn(page: Page, key: str) -> dict[str, Any]:
    if button := {"reward": "Reward", "accuracy": "Accuracy"}.get(key):
        page.get_by_role("button", name=button, exact=True).click()
    page.locator(f"[data-chart='{key}']").scroll_into_view_if_needed()
    page.wait_for_selector(f"[data-chart='{key}'] canvas")
    expect(page.locator("#chart-state")).to_have_text("")
    return dict(page.evaluate(DRAWN, key))


def column(chart: dict[str, Any], name: str) -> list[float | None]:
    return list(chart["values"][chart["columns"].index(name)])


@pytest.mark.full
def test_spike_of_one_point_in_100_000_is_seen_and_two_loads_draw_the_same(page: Page, runs) -> None:
    first = show(page, runs["spike"], key="grad-norm")
    assert len(first["x"]) <= 1500
    assert first["x"][-1] == LONG
    assert column(first, "high0").count(SPIKE) == 1
    assert max(column(first, "low0")) < 1
    assert max(column(first, "raw0")) < 1
    # Half way up to the spike there is colour where it stands, and none a little beside it.
    assert page.evaluate(SEEN, ["grad-norm", SPIKE_STEP, SPIKE / 2])
    assert not page.evaluate(SEEN, ["grad-norm", SPIKE_STEP - 9000, SPIKE / 2])
    assert show(page, runs["spike"], key="grad-norm") == first


def test_zoom_asks_for_the_steps_themselves_and_a_double_click_takes_it_back(page: Page, runs) -> None:
    whole = show(page, runs["spike"], key="grad-norm")
    page.get_by_label("First step shown").fill(str(SPIKE_STEP - 100))
    page.get_by_label("Last step shown").fill(str(SPIKE_STEP + 100))
    page.get_by_label("Last step shown").press("Enter")
    expect(page).to_have_url(re.compile(f"first={SPIKE_STEP - 100}&last={SPIKE_STEP + 100}"))
    zoomed = drawn(page, "grad-norm")
    assert zoomed["x"] == list(range(SPIKE_STEP - 100, SPIKE_STEP + 101))
    assert column(zoomed, "raw0")[100] == SPIKE
    assert zoomed["columns"] == ["raw0", "raw1"]  # no bucket hides a value
    assert zoomed["scale"] == [SPIKE_STEP - 100, SPIKE_STEP + 100]
    page.locator("[data-chart='grad-norm'] .u-over").dblclick()
    expect(page).not_to_have_url(re.compile("first="))
    assert drawn(page, "grad-norm")["values"] == whole["values"]


def test_drag_zooms_all_charts_alike(page: Page, runs) -> None:
    show(page, runs["seeds"][0])
    box = page.locator("[data-chart='reward'] .u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)  # of 60 steps: step 15
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=3)
    page.mouse.up()
    expect(page.get_by_label("Last step shown")).not_to_have_value("")
    first, last = (int(page.get_by_label(f"{end} step shown").input_value()) for end in ("First", "Last"))
    assert (first, last) in [(a, b) for a in (14, 15) for b in (30, 31)]
    for key in ("reward", "capability", "omega"):
        chart = drawn(page, key)
        assert chart["steps"] == list(range(first, last + 1))
        assert chart["scale"] == [first, last]


@pytest.mark.parametrize(
    "query", ["?smooth=0.6&x=rollouts&band=range&first=7&last=52", *in_full("", "?log=grad-norm&band=ci")]
)
def test_csv_is_what_is_drawn(page: Page, runs, query: str) -> None:
    chart = show(page, runs["seeds"][0], query, key="grad-norm")
    with page.expect_download() as started:
        page.get_by_role("button", name="CSV, Gradient norm: ").click()
    with open(started.value.path(), newline="") as file:
        head, *rows = csv.reader(file)
    said = {"raw": "", "smooth": " (smoothed)", "seeds-low": " (seeds, low)", "seeds-high": " (seeds, high)"}
    names = ["AB"[int(name[-1])] + said[name[:-1]] for name in chart["columns"]]
    assert sorted(head[-len(names) :]) == sorted(names)
    found = {name: [float(row[place]) if row[place] else None for row in rows] for place, name in enumerate(head)}
    assert found["step"] == chart["steps"]
    assert found.get("rollouts generated", found["step"]) == chart["x"]
    for name, values in zip(names, chart["values"], strict=True):
        assert found[name] == values, name  # bit for bit: the same 64-bit numbers
    assert ("log" in query) == (None in chart["values"][-1])  # of 60 cosines some are below 0


def test_evaluations_are_not_smoothed_and_the_legend_shows_raw_values(page: Page, runs) -> None:
    run = runs["seeds"][0]  # its last values at step 60 of 60: reward 0.7, accuracy 0.7 / 1.2, capability 0.7 / 1.1
    assert show(page, run, "?smooth=0.9", key="accuracy")["columns"] == ["raw0", "raw1"]
    assert drawn(page, "capability")["columns"] == ["raw0", "raw1"]
    assert len(drawn(page, "reward")["columns"]) == 4
    for key, raw in (("accuracy", "0.583"), ("capability", "0.636"), ("reward", "0.700")):
        entry = page.locator(f"[data-chart='{key}'] .chart-legend li").first
        expect(entry.locator(".chart-value")).to_have_text(raw)
        expect(entry.locator(".chart-smooth")).to_have_text("" if key != "reward" else re.compile(r"0\.\d{3}"))


def test_ended_run_is_not_live(page: Page, runs) -> None:
    for tab in ("", "?tab=logs"):
        page.goto(f"/runs/{runs['seeds'][0]}{tab}")
        page.wait_for_selector("#charts[data-synced]", state="attached")
        expect(page.locator("[data-link]")).to_have_count(1)
        expect(page.locator("[data-link]")).to_be_hidden()


@pytest.mark.parametrize("size", [(1440, 900), *in_full(((2560, 1440),), ((390, 844),))])
def test_overview_answers_without_scrolling(page: Page, runs, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"/runs/{runs['seeds'][0]}")
    glance = first_glance(page)
    assert glance["strip"] < glance["top"]
    assert glance["margin"] <= 0.1
    if size[0] == 390:
        assert glance["top"] + glance["height"] < 844
        return
    assert glance["top"] <= 260
    assert glance["width"] >= 560
    assert glance["height"] >= 300
    assert glance["graphWidth"] >= 560
    assert glance["graphHeight"] >= 300
    page.wait_for_timeout(700)
    assert page.evaluate(SHIFT) < 0.02


def test_alert_is_one_line_of_reserved_height_with_its_fix(page: Page, runs) -> None:
    page.goto(f"/runs/{runs['seeds'][1]}")
    expect(page.locator("#run-alerts")).to_have_text("No alerts.")
    empty = page.locator("#run-alerts").bounding_box()
    page.goto(f"/runs/{runs['seeds'][0]}")
    line = page.locator("#run-alerts")
    expect(line).to_contain_text("Delta trap since step 12: A learns nothing from B.")
    assert line.bounding_box() == empty
    expect(line.get_by_role("link", name="Clone with fix").first).to_have_attribute("href", re.compile("/clone\\?alg"))
    expect(line.get_by_text("Clone the run with the recommended rule")).to_be_hidden()
    line.get_by_role("button", name="What to do").click()
    expect(line.get_by_text("Clone the run with the recommended rule")).to_be_visible()


def test_charts_below_the_fold_are_drawn_without_scrolling(page: Page, runs) -> None:
    page.goto(f"/runs/{runs['seeds'][0]}")
    numbers = ["capability", "omega", "used", "length", "grad-norm", "entropy"]  # what these runs have recorded
    for key in numbers:
        expect(page.locator(f"#chart-{key} canvas")).to_have_count(1)
    expect(page.locator("#charts .chart").filter(visible=True)).to_have_count(len(numbers))
    assert page.evaluate("scrollY") == 0


@pytest.mark.full
def test_legend_of_six_pairs_is_not_cut(page: Page, runs) -> None:
    show(page, runs["three"], key="omega")
    legend = page.locator("[data-chart='omega'] .chart-legend")
    expect(legend.locator("li")).to_have_count(6)
    assert legend.evaluate("one => one.scrollHeight - one.clientHeight") <= 0


def test_clipping_of_all_pairs_is_one_heat_map_with_a_switch_of_the_sign(page: Page, runs) -> None:
    chart = show(page, runs["three"], key="clipping")
    assert len(chart["columns"]) == 12  # six pairs, each above and below the band
    assert [column(chart, f"raw{line}")[0] for line in range(4)] == [None, 0.75, None, 0.75]
    panel = page.locator("#chart-clipping")
    panel.get_by_role("button", name="A < 0").click()
    expect(page).to_have_url(re.compile("sign=negative"))
    assert column(drawn(page, "clipping"), "raw1") == [0.25]
    page.reload()
    expect(panel.get_by_role("button", name="A < 0")).to_have_attribute("aria-pressed", "true")
    panel.get_by_role("button", name="All, Rollouts").click()
    assert column(drawn(page, "clipping"), "raw0") == [0.5]
    expect(page.locator("[data-chart^='lower'], [data-chart^='upper']")).to_have_count(0)


def test_checkpoints_are_marked_on_the_axis_of_the_large_picture(page: Page, runs) -> None:
    show(page, runs["seeds"][0])
    page.wait_for_selector("#charts[data-synced]", state="attached")
    inked = """async (step) => {
        const { charts } = await import(document.querySelector("script[src*='js/run/run.js']").src);
        const { plot } = charts.charts.find((one) => one.spec.key === "reward");
        const { top, height } = plot.bbox;
        const place = Math.round(plot.valToPos(step, "x", true));
        return plot.ctx.getImageData(place, top + height - 3, 1, 1).data[3] > 200;
    }"""
    assert [page.evaluate(inked, step) for step in (30, 34)] == [True, False]


GHOST = """async (metric) => {
    const { charts } = await import(document.querySelector("script[src*='js/run/run.js']").src);
    while (charts.overlays.ghosts.some((ghost) => !ghost.store.points)) await new Promise(requestAnimationFrame);
    return charts.overlays.ghosts.map((ghost) => ghost.store.lines.get(metric).get("A").last.at(-1));
}"""


def test_another_run_is_drawn_behind_and_is_in_the_address_and_the_csv(page: Page, runs) -> None:
    show(page, runs["seeds"][0])
    page.locator("#overlay-add summary").click()
    page.get_by_label("Name of a run to overlay").fill("Seed 1")
    page.locator("#overlay-found").get_by_role("button", name="Seed 1", exact=True).click()
    expect(page.get_by_role("button", name="Remove the overlay Seed 1")).to_be_visible()
    expect(page).to_have_url(re.compile(f"overlay={runs['seeds'][1]}"))
    page.reload()
    expect(page.locator("[data-chart='reward'] .chart-note")).to_have_text("Faint: Seed 1.")
    assert page.evaluate(GHOST, "reward/mean") == [pytest.approx(0.7 + 1 / 70)]
    with page.expect_download() as started:
        page.get_by_role("button", name="CSV, Reward, mean: ").click()
    with open(started.value.path(), newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["step", "A", "B", "A (Seed 1)", "B (Seed 1)"]
    assert float(rows[-1][3]) == pytest.approx(0.7 + 1 / 70)
    page.get_by_role("button", name="Remove the overlay Seed 1").click()
    expect(page).not_to_have_url(re.compile("overlay="))
    expect(page.locator("[data-chart='reward'] .chart-note")).to_have_text("")
    page.goto(f"/runs/{runs['seeds'][0]}?overlay=00000000-0000-0000-0000-000000000000")
    expect(page.locator("#overlay-state")).to_contain_text("does not exist")


def titles(page: Page) -> list[str]:
    """Of the panels that are shown, in order: an ended run has none without a point."""
    expect(page.locator("#chart-zero-variance")).to_be_hidden()
    return page.locator("#charts .chart h3").filter(visible=True).all_text_contents()


def choose(page: Page, panel: str, item: str) -> None:
    page.get_by_label(f"Panel {panel}", exact=True).click()
    page.locator(f".panel-menu[open] .menu-list button:text-is('{item}')").click()


def test_panels_are_found_added_sized_pinned_moved_and_hidden_in_the_address_and_for_the_project(page, runs) -> None:
    page.goto(f"/runs/{runs['seeds'][1]}")
    expect(page.locator("#chart-entropy")).to_be_visible()
    before = titles(page)
    page.keyboard.press("/")
    page.keyboard.type("^(grad|compl).*(norm|tokens)")  # titles or names of metrics
    expect(page.locator("#chart-entropy")).to_be_hidden()
    assert titles(page) == ["Completion length, tokens", "Gradient norm"]
    page.get_by_label("Search panels").fill("")
    page.locator("#panel-add summary").click()
    page.get_by_label("Metric of the panel").fill("los")
    page.locator("#panel-metrics").get_by_role("button", name="loss").click()
    assert column(drawn(page, "+loss"), "raw0")[-1] == pytest.approx(-0.7 - 1 / 70)
    choose(page, "Entropy, nats per token", "Pin to the top")
    choose(page, "Entropy, nats per token", "Large")
    choose(page, "Capability", "Hide")
    choose(page, "Rollouts that taught", "Move earlier")
    after = titles(page)
    assert after[:2] == ["Entropy, nats per token", "loss"]
    assert set(after) == {*before, "loss"} - {"Capability"}
    assert after.index("Rollouts that taught") < after.index("Capability ratio ω")
    wide, grid = (page.locator(one).bounding_box() for one in ("#chart-entropy", "#charts .chart-grid >> nth=0"))
    assert wide["width"] == grid["width"]
    page.reload()  # from the address
    expect(page.locator("#chart-entropy")).to_be_visible()
    assert titles(page) == after
    page.get_by_role("button", name="Save for the project").click()
    expect(page).not_to_have_url(re.compile("panels="))
    page.goto(f"/runs/{runs['seeds'][2]}")
    expect(page.locator("#chart-entropy")).to_be_visible()
    assert titles(page) == after
    choose(page, "loss", "Remove")
    assert "loss" not in titles(page)
    page.get_by_role("button", name="Reset layout").click()
    assert titles(page) == after
    page.goto(f"/runs/{runs['seeds'][2]}?panels=")  # the layout that every project begins with
    expect(page.locator("#chart-capability")).to_be_visible()
    assert titles(page) == before
    page.get_by_role("button", name="Save for the project").click()
    expect(page).not_to_have_url(re.compile("panels="))


def test_header_is_one_line_that_stays_in_view(page: Page, runs) -> None:
    show(page, runs["seeds"][0], key="entropy")  # below the first screen
    box = page.locator(".run-header").bounding_box()
    assert box is not None
    assert (box["y"], box["height"]) == (0, 56)
    expect(page).to_have_title(f"{STEPS}/{STEPS} · Seed 0 · HACRL Web")
    expect(page.locator(".run-facts .facts")).to_be_hidden()
    page.get_by_text("Details", exact=True).click()
    expect(page.locator(".run-facts .facts")).to_contain_text("Attempt")


def test_address_brings_the_view_back(page: Page, runs) -> None:
    show(page, runs["seeds"][1])
    page.get_by_label("Smoothing").fill("0.8")
    page.get_by_label("X axis").select_option("tokens")
    page.get_by_label("Over 3 seeds").select_option("ci")
    page.get_by_label("First step shown").fill("10")
    page.get_by_label("First step shown").press("Enter")
    page.get_by_role("button", name="Log, Reward, mean: Logarithmic y axis").click()
    expect(page.locator("[data-chart='reward'] .chart-note")).to_contain_text("over the seeds 0, 1, 2")
    before = drawn(page, "reward")
    assert before["x"] == [700 * step for step in range(10, STEPS + 1)]
    page.get_by_role("button", name="Full, Capability: Show in full screen", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Capability")).to_be_visible()
    assert "full=capability" in page.url
    page.reload()
    expect(dialog.locator("canvas")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page).not_to_have_url(re.compile("full="))  # the dialog tells of its end in a later task
    assert drawn(page, "reward") == before
    values = {name: page.locator(f"#chart-controls [name={name}]").input_value() for name in ("smooth", "x", "band")}
    assert values == {"smooth": "0.8", "x": "tokens", "band": "ci"}
    assert page.get_by_label("First step shown").input_value() == "10"


def test_line_is_switched_off_by_keyboard_and_missing_from_the_files(page: Page, runs) -> None:
    show(page, runs["seeds"][0])
    line = page.locator("[data-chart='reward'] .chart-legend button").first
    line.focus()
    page.keyboard.press("Space")
    expect(line).to_have_attribute("aria-pressed", "false")
    with page.expect_download() as started:
        page.get_by_role("button", name="CSV, Reward, mean: ").click()
    with open(started.value.path(), newline="") as file:
        assert next(csv.reader(file)) == ["step", "B"]
    with page.expect_download() as started:
        page.get_by_role("button", name="PNG, Reward, mean: ").click()
    assert started.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.full
def test_phone_width_needs_no_sideways_scroll(page: Page, runs) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    show(page, runs["seeds"][0], "?smooth=0.5&x=elapsed&band=ci")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_step_of_the_scrubber_is_in_the_address_and_an_address_typed_by_hand_shows_it(page: Page, server) -> None:
    page.goto(server.generated_run("--runs", "1", "--steps", "20", "--seed", "43", "--questions", "8") + "?step=12")
    expect(page.locator("#hero")).to_have_attribute("data-step", "12")
    expect(page.locator("[data-influential-step]")).to_have_text("12")
    page.locator("#hero-range").press("ArrowRight")
    expect(page).to_have_url(re.compile(r"\?step=\d+$"))
    page.locator("#hero-range").press("End")
    expect(page).not_to_have_url(re.compile("step="))  # the end of the run, which a live run moves on


def test_the_baseline_is_drawn_faint_until_a_reader_takes_it_away(page: Page, server) -> None:
    run = server.generated_run("--runs", "3", "--steps", "8", "--seed", "41", "--questions", "0")
    page.goto(run)
    expect(page.locator("#answer")).to_contain_text(re.compile("with, .* without"))
    note = page.locator("[data-chart='accuracy'] .chart-note")
    expect(note).to_contain_text("gspo")
    page.get_by_role("button", name=re.compile("^Remove the overlay")).click()
    expect(note).to_have_text("")
    expect(page).to_have_url(re.compile("overlay=none"))
    page.reload()
    expect(page.get_by_role("button", name=re.compile(r"^\+ Baseline"))).to_be_visible()
