"""Built-in benchmarks beyond mathematics, from files in the data sets' formats that the tests make."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from hacrl_web.registry.benchmarks.built_in import BUILT_IN, BY_KEY
from hacrl_web.registry.models import Benchmark
from tests.support.marks import in_full
from tests.support.web.page_text import text_of

pytestmark = pytest.mark.django_db
CHOICES = {"text": ["ice", "sand", "iron"], "label": ["A", "B", "C"]}
ROWS: dict[str, list[dict[str, Any]]] = {
    "arc-challenge": [{"id": "a1", "question": "Which melts first?", "choices": CHOICES, "answerKey": "A"}],
    "commonsense-qa": [
        {"id": "c1", "question": "Where?", "question_concept": "place", "choices": CHOICES, "answerKey": "C"}
    ],
    "mmlu": [{"question": "2+2?", "subject": "algebra", "choices": ["3", "4", "5", "6"], "answer": 1}],
    "mmlu-pro": [
        {"question_id": 1, "question": "Which?", "options": ["u", "v", "w"], "answer": "C", "answer_index": 2,
         "cot_content": "", "category": "law", "src": "x"}
    ],
    "gpqa-diamond": [
        {"Question": "How many?", "Correct Answer": "four", "Incorrect Answer 1": "one", "Incorrect Answer 2": "two",
         "Incorrect Answer 3": "three", "High-level domain": "Physics", "Explanation": "so, and so"}
    ],
    "bbh-logic": [{"input": "Who is first?\nOptions:\n(A) Eve\n(B) Amy", "target": "(B)"}],
    "countdown": [{"nums": [44, 19, 35], "target": 98}],
    "ifeval": [
        {"key": 1000, "prompt": "Say hello without a comma.", "instruction_id_list": ["punctuation:no_comma"],
         "kwargs": [{"num_words": None}]}
    ],
}  # fmt: skip
IN_EVERY_BUILD = ("mmlu-pro", "gpqa-diamond", "countdown")  # choices, CSV, numbers
# The reference answer, and a response with its verdict.
ANSWERS = {
    "arc-challenge": ("A", "The answer is A."),
    "commonsense-qa": ("C", "The answer is (C)."),
    "mmlu": ("B", "\\boxed{B}"),
    "mmlu-pro": ("C", "The answer is C."),
    "bbh-logic": ("B", "The answer is (B)."),
    "countdown": ("44 19 35 = 98", "\\boxed{44+19+35}"),
    "ifeval": ('[["punctuation:no_comma", {}]]', "Hello"),
}


def text_of_rows(key: str) -> tuple[str, str]:
    """The name and the text of a file with the rows: CSV as GPQA has it, else JSONL."""
    rows = ROWS[key]
    if key != "gpqa-diamond":
        return "test.jsonl", "\n".join(map(json.dumps, rows))
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return "gpqa_diamond.csv", out.getvalue()


@pytest.fixture
def load(web, user, settings, tmp_path):
    settings.MODEL_ROOTS, settings.BENCHMARKS_DIR = [tmp_path / "copies"], tmp_path / "benchmarks"
    (tmp_path / "copies").mkdir()

    def load(key: str) -> Benchmark:
        name, text = text_of_rows(key)
        place = tmp_path / "copies" / name
        place.write_text(text)
        body = {"built_in": key, "location": str(place)}
        answer = web.post("/api/v1/benchmarks/built-in", body, content_type="application/json")
        assert answer.status_code == 201, answer.json()
        return Benchmark.objects.get(pk=answer.json()["id"])

    return load


@pytest.mark.parametrize("key", [*IN_EVERY_BUILD, *in_full(*(key for key in ROWS if key not in IN_EVERY_BUILD))])
def test_built_in_benchmark_is_read_in_its_own_format(load, web, key):
    benchmark, entry = load(key), BY_KEY[key]
    assert (benchmark.verifier, benchmark.prompt_template) == (entry.verifier, entry.prompt_template)
    [question] = benchmark.sample
    if key == "gpqa-diamond":
        assert f"{question['answer']}. four" in question["question"]
        assert question["subject"] == "Physics"
    else:
        gold, _ = ANSWERS[key]
        assert question["answer"] == gold
    page = text_of(web.get(benchmark.get_absolute_url()))
    assert entry.licence in page


def test_each_has_a_source_a_licence_a_verifier_and_a_prompt_for_it(web, user):
    page = text_of(web.get("/benchmarks/new"))
    listed = {entry["key"]: entry for entry in web.get("/api/v1/benchmarks/built-in").json()}
    for entry in BUILT_IN:
        assert entry.dataset in page
        assert entry.licence in page
        assert entry.prompt_template.count("{question}") == 1
        assert (listed[entry.key]["licence"], listed[entry.key]["verifier"]) == (entry.licence, entry.verifier)
    assert {"arc-challenge", "mmlu", "gpqa-diamond", "humaneval", "mbpp", "countdown"} <= listed.keys()


def test_answer_format_and_verifier_belong_together(web, user):
    from django.core.files.uploadedfile import SimpleUploadedFile

    file = SimpleUploadedFile("q.jsonl", json.dumps(ROWS["countdown"][0]).encode())
    fields = {"name": "games", "question_field": "nums", "answer_field": "target", "answer_extraction": "countdown"}
    answer = web.post("/api/v1/benchmarks", {**fields, "verifier": "math", "file": file})
    assert answer.status_code == 422
    assert "for the verifier countdown" in answer.content.decode()
