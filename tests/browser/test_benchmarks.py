"""Adding a benchmark in Chromium: upload, columns with a live preview, errors beside fields, and trying an answer."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.steps import add_benchmark, make_group, open_cards, register_model

BORDER = "(one) => getComputedStyle(one).borderTopColor"
AS_COMPUTED = """(color) => {
    const one = document.body.appendChild(document.createElement("i"));
    one.style.color = color;
    const computed = getComputedStyle(one).color;
    one.remove();
    return computed;
}"""


def test_csv_is_uploaded_mapped_previewed_and_tried(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "halves.csv"
    rows = "".join(f'"What is $\\frac{{{n}}}{{2}}$?","Half of it: #### {n}/2",{n % 2}\n' for n in range(1, 60))
    path.write_text("problem,solution,level\n" + rows)
    page.goto("/benchmarks/new")
    page.get_by_role("button", name="Read the columns").click()
    expect(page.locator("#id_file-error")).to_contain_text("Choose a file")
    page.locator("[name='file']").set_input_files(path)
    page.get_by_role("button", name="Read the columns").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Map columns")
    preview = page.locator("#preview")
    expect(preview.locator("[data-preview='answer']")).to_have_text("1/2")
    expect(preview.locator(".katex")).to_have_count(1)
    page.get_by_label("Prompt template").fill("Be brief. {question}")
    expect(preview.locator("[data-preview='prompt']")).to_have_text("Be brief. What is $\\frac{1}{2}$?")
    expect(page.get_by_label("Tolerance")).to_be_hidden()  # of the numeric verifier alone
    page.get_by_label("Verifier").select_option("numeric")
    expect(page.get_by_label("Tolerance")).to_be_visible()
    page.get_by_label("Verifier").select_option("math")
    page.get_by_label("Answer format").select_option("boxed")
    page.get_by_role("button", name="Check and add").click()
    expect(page.locator("#id_answer_field-error")).to_contain_text("has no \\boxed{}")
    page.get_by_label("Answer format").select_option("hashes")
    page.get_by_role("button", name="Check and add").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("halves")
    expect(page.locator("#questions tbody tr")).to_have_count(50)
    page.get_by_label("Render LaTeX below the text").check()
    expect(page.locator("#questions tbody .katex").first).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#questions tbody tr")).to_have_count(9)
    expect(page.locator("#questions tbody .katex").first).to_be_visible()
    page.get_by_role("link", name="Try an answer to question 59").click()
    expect(page.get_by_label("Reference answer")).to_have_value("59/2")
    page.get_by_label("Response").fill("It is \\boxed{29.5}.")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("#verdict .state")).to_have_text("correct")
    expect(page.locator("#verdict code")).to_have_text("29.5")


def test_preview_turns_red_with_row_and_reason_until_other_columns_are_chosen(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "red.jsonl"
    good = "".join(f'{{"question": "{n}+1=", "answer": {n + 1}, "note": ["a", "b"]}}\n' for n in range(30))
    path.write_text(good + '{"question": "odd"}\n')
    page.goto("/benchmarks/new")
    page.locator("[name='file']").set_input_files(path)
    page.get_by_role("button", name="Read the columns").click()
    preview, said = page.locator("#preview"), page.locator("[data-preview='said']")
    expect(preview.locator("[data-preview='answer']")).to_have_text("1")
    expect(preview).to_have_attribute("data-state", "read")
    expect(said).to_contain_text("1 of the first 31 rows would be left out: red.jsonl, line 31: no key 'answer'")
    usual = preview.evaluate(BORDER)

    column = page.locator("[name='answer_field']")
    column.select_option("note")
    expect(preview).to_have_attribute("data-state", "refused")
    expect(said.locator(".alert-error")).to_contain_text("red.jsonl, line 1: 'note' is a list")
    expect(column).to_have_attribute("aria-invalid", "")
    red = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--red').trim()")
    assert preview.evaluate(BORDER) == page.evaluate(AS_COMPUTED, red) != usual

    column.select_option("answer")
    expect(preview).to_have_attribute("data-state", "read")
    expect(said.locator(".alert-error")).to_have_count(0)
    assert preview.evaluate(BORDER) == usual
    page.get_by_role("button", name="Check and add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("red")
    expect(page.locator("main")).to_contain_text("line 31")


def test_pages_work_without_scripts(browser, server, context, tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f'{{"question": "{n}+1=", "answer": {n + 1}}}\n' for n in range(20)))
    plain = browser.new_context(java_script_enabled=False, base_url=server.url, storage_state=context.storage_state())
    page = plain.new_page()
    page.goto("/benchmarks/new")
    page.locator("[name='file']").set_input_files(path)
    page.get_by_role("button", name="Read the columns").click()
    page.get_by_label("Name").fill("Without scripts")
    page.get_by_role("button", name="Check and add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Without scripts")
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Benchmarks")
    plain.close()


def test_ready_prompt_fills_in_its_texts_and_the_new_run_form_shows_what_agents_read(
    page: Page, registered: None, tmp_path: Path
) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text("".join(f'{{"question": "{n}+1=", "answer": {n + 1}}}\n' for n in range(20)))
    page.goto("/benchmarks/new")
    page.locator("[name='file']").set_input_files(path)
    page.get_by_role("button", name="Read the columns").click()
    page.get_by_label("Name").fill("Words")
    ready, system = page.get_by_label("Ready prompt"), page.get_by_label("System prompt")
    expect(ready).to_have_value("bare")
    ready.select_option("numeric")
    expect(system).to_have_value(re.compile("then end with 'The answer is N.'"))
    page.get_by_label("Prompt template").fill("({question}")
    expect(ready).to_have_value("")
    system.fill("")
    page.get_by_role("button", name="Check and add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Words")

    page.goto("/runs/new")
    open_cards(page)
    page.get_by_label("Agent group").select_option("")
    page.get_by_role("link", name="Show what each agent reads").click()
    expect(page.locator("#prompts")).to_contain_text("Choose an agent group and a benchmark first.")
    page.get_by_label("Agent group").select_option(label="Two families")
    expect(page.locator("#prompts")).to_be_empty()
    benchmark = page.get_by_label("Benchmark", exact=True)
    benchmark.select_option(value=benchmark.locator("option", has_text="Words").get_attribute("value"))
    page.get_by_role("link", name="Show what each agent reads").click()
    first = page.locator("#prompts .agent-prompt").first
    expect(first).to_contain_text("5 tokens", timeout=60_000)  # a child imports transformers
    expect(first.locator(".tokens span")).to_have_text(["(", "0", "+", "1", "="])


@pytest.mark.full
def test_models_a_group_and_questions_are_registered_by_their_forms(page: Page, registered: Path) -> None:
    shutil.copytree(registered / "qwen", registered / "another")
    register_model(page, "Another", registered / "another")
    make_group(page, "Of both", ["Another", "Llama"])
    add_benchmark(page, "Sums again", registered / "sums.jsonl")
