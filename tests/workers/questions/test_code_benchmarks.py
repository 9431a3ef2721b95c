"""Benchmarks of code: HumanEval's and MBPP's columns, and tests that would reward an empty solution."""

from __future__ import annotations

import json

import pytest

from tests.workers.verifiers.test_python_references import ADD, HUMANEVAL, MBPP
from workers.questions import import_cli
from workers.questions.columns import QuestionMapping, guess
from workers.questions.files import BenchmarkError, QuestionFileError
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.python.degenerate import reference_check
from workers.verifiers.python.python_tests import passes

MBPP_ROW = MBPP | {"task_id": 2, "code": ADD, "challenge_test_list": []}


def import_rows(folder, rows, mapping):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "out").mkdir()
    request = {"train": [{"path": str(path), "name": path.name}], "mapping": vars(mapping), "verifier": "python"}
    return import_cli.make_canonical(request | {"held_out_fraction": 0, "folder": str(folder / "out")})


@pytest.mark.parametrize(
    ("row", "question", "answer"), [(HUMANEVAL, "prompt", "test"), (MBPP_ROW, "text", "test_list")]
)
def test_humaneval_and_mbpp_are_recognized_and_imported(tmp_path, row, question, answer):
    mapping = guess(list(row), [row]).mapping
    assert mapping == QuestionMapping(question, answer, id="task_id", extraction="tests")
    result = import_rows(tmp_path, [row], mapping)
    assert (result["trials"]["num_tried"], result["trials"]["num_questions"]) == (1, 1)
    assert "Landlock and seccomp" in result["trials"]["sandbox"]


def test_the_question_of_mbpp_shows_the_first_test_alone(tmp_path):
    question = guess(list(MBPP_ROW), [MBPP_ROW]).mapping.question_of(MBPP_ROW | {"task_id": "2"})
    assert question.question.endswith("this test, and others:\nassert add(2, 3) == 5")
    assert passes(question.answer, ADD, seconds=10)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("def check(candidate):\n    assert candidate(2) == 4", "check(candidate) is never called"),
        ("def test_f():\n    assert f(2) == 4\n    yield", "test_f is a generator"),
        ("import unittest\nraise unittest.SkipTest", "its tests skip themselves"),
        ("try:\n    assert f(2) == 4\nexcept NameError:\n    pass", "an empty solution passes its tests"),
        ("print(f(2))", "its tests assert nothing"),
        ("assert f(2 == 4", "no Python: "),
    ],
)
def test_tests_that_reward_an_empty_solution_are_refused(tmp_path, tests, reason):
    rows = [{"question": "a", "answer": "assert f(2) == 4", "id": "a"}, {"question": "b", "answer": tests, "id": "b"}]
    mapping = QuestionMapping(id="id")
    with pytest.raises(BenchmarkError) as caught:
        import_rows(tmp_path, rows, mapping)
    assert str(caught.value).startswith(f"'answer' of question 'b' cannot be verified: {reason}")


def test_a_machine_without_a_sandbox_imports_and_says_so(tmp_path, monkeypatch):
    def score(*args):
        raise VerifierError("no Landlock")

    monkeypatch.setattr(reference_check.Verifier, "score", score)
    result = import_rows(tmp_path, [{"question": "a", "answer": "assert f(2) == 4"}], QuestionMapping())
    assert result["trials"]["unavailable"] == "no Landlock"
    assert (result["trials"]["num_tried"], result["trials"]["num_questions"], result["trials"]["sandbox"]) == (0, 1, "")


def test_an_import_counts_the_tests_that_a_response_could_fake(tmp_path):
    tests = ["assert f(2) == 4", "a = Account(3)\nassert a.balance == 3", "assert apply(lambda n: n, 2) == 2"]
    rows = [{"question": str(n), "answer": one, "id": str(n)} for n, one in enumerate(tests)]
    trials = import_rows(tmp_path, rows, QuestionMapping(id="id"))["trials"]
    assert trials["num_one_process"] == 2
    assert trials["one_process"] == "those of question '1' use objects of the class Account"


def test_an_import_names_the_degenerate_solutions_that_tests_reward(tmp_path):
    tests = [
        "assert f(2) == 4",
        "assert not f(2) > 5 and not f(2) < 3",
        "for one in f(2): assert one == 4\nassert True",
    ]
    tests += ["e = [5]\nassert f(e) == e", "a = Account(3)\nassert a.is_open", "assert f(2).equals(4)"]
    rows = [{"question": str(n), "answer": one, "id": str(n)} for n, one in enumerate(tests)]
    trials = import_rows(tmp_path, rows, QuestionMapping(id="id"))["trials"]
    assert (trials["num_rewarded"], trials["rewarded"]) == (5, "those of question '1' reward code that returns NaN")
    found = [*reference_check.try_references(tests, 60)][-1].rewarded
    names = [
        "NaN",
        "[], (), {}, set(), '', an empty array",
        "its argument, cleared",
        *["an object that equals everything"] * 2,
    ]
    assert found == tuple(enumerate(names, start=1))


def test_a_list_that_is_no_list_of_tests_is_refused():
    with pytest.raises(QuestionFileError, match="tests are text, or a list of texts"):
        guess(list(MBPP_ROW), [MBPP_ROW]).mapping.question_of(MBPP_ROW | {"test_list": [1], "task_id": "2"})
