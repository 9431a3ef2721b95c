"""Benchmarks of code on the pages: what is suggested, what is refused, and which sandbox the page names."""

from __future__ import annotations

import html

import pytest

from hacrl_web.client.generated import import_lines
from hacrl_web.registry.models import Benchmark
from tests.support.web.registry_help import field_error, jsonl
from tests.web.registry.test_benchmark_pages import upload
from tests.workers.questions.test_code_benchmarks import MBPP_ROW

pytestmark = pytest.mark.django_db
MAPPED = {
    "name": "MBPP",
    "question_field": "text",
    "answer_field": "test_list",
    "answer_extraction": "tests",
    "id_field": "task_id",
    "verifier": "python",
    "prompt_template": "{question}",
    "held_out_fraction": "0",
}


def rows(*tests):
    return jsonl([MBPP_ROW | {"task_id": n, "text": f"Add {n}.", "test_list": test} for n, test in enumerate(tests)])


def test_mbpps_columns_and_prompt_are_suggested_and_the_page_names_the_sandbox(client, owner):
    address = upload(client, rows(MBPP_ROW["test_list"]))
    form = client.get(address).context["form"]
    names = ("question_field", "answer_field", "answer_extraction", "id_field", "verifier", "ready_prompt")
    assert [form[name].value() for name in names] == ["text", "test_list", "tests", "task_id", "python", "code"]
    assert client.post(address, MAPPED).status_code == 302
    benchmark = Benchmark.objects.get()
    assert benchmark.facts["trials"]["num_tried"] == 1
    page = html.unescape(client.get(f"/benchmarks/{benchmark.pk}").content.decode())
    assert "an empty solution was tried against 1 of 1" in page
    assert f"Code ran in {benchmark.facts['trials']['sandbox']}" in page


def test_tests_that_reward_an_empty_solution_are_refused_beside_their_column(client, owner):
    address = upload(
        client, rows(["assert add(1, 2) == 3"], ["try:\n    assert add(1, 2) == 3\nexcept NameError: pass"])
    )
    response = client.post(address, MAPPED)
    message = html.unescape(field_error(response, "answer_field"))
    assert "'test_list' of question '1' cannot be verified: an empty solution passes its tests." in message
    response = client.post(address, MAPPED | {"verifier": "math"})
    assert "Tests are for the verifier python or python_partial" in field_error(response, "answer_extraction")
    assert not Benchmark.objects.exists()


def test_command_line_says_what_the_page_says_of_tests_that_reward_degenerate_code(client, owner):
    address = upload(
        client,
        rows(["assert not add(1, 2) > 5", "assert not add(1, 2) < 3"], ["a = Account(3)", "assert a.balance == 3"]),
    )
    assert client.post(address, MAPPED).status_code == 302
    facts = client.get("/api/v1/benchmarks").json()["items"][0]["facts"]
    said = [
        "The tests of 1 question reward degenerate code, which a model may learn: "
        "those of question '0' reward code that returns NaN",
        "The tests of 1 question run in the process of the response, which could fake their result: "
        "those of question '1' use objects of the class Account",
    ]
    assert [line for line in import_lines(facts) if line in said] == said
    nothing_runs = facts | {"trials": {"unavailable": "the kernel has no Landlock"}}
    assert "no code runs there: the kernel has no Landlock" in "\n".join(import_lines(nothing_runs))
