"""Questions with options, in the columns of usual data sets."""

from __future__ import annotations

import pytest

from workers.questions.columns import QuestionMapping, guess
from workers.questions.files import QuestionFileError

ARC = {"question": "Which melts?", "choices": {"text": ["ice", "sand"], "label": ["A", "B"]}, "answerKey": "A"}
MMLU = {"question": "2+2?", "choices": ["3", "4", "5", "6"], "answer": "1", "subject": "arithmetic"}
MMLU_PRO = {"question": "Which?", "options": [f"o{k}" for k in range(10)], "answer": "J", "category": "law"}
GPQA = {
    "Question": "How many?",
    "Correct Answer": "four",
    "Incorrect Answer 1": "one",
    "Incorrect Answer 2": "two",
    "Incorrect Answer 3": "three",
}
BBH = {"input": "Who is first?\nOptions:\n(A) Eve\n(B) Amy", "target": "(B)"}
OPTIONS = "options"


def question_of(row, question="question", answer="answer"):
    return QuestionMapping(question=question, answer=answer, extraction=OPTIONS).question_of(row)


@pytest.mark.parametrize(
    ("row", "columns", "text", "letter"),
    [
        (ARC, ("question", "answerKey"), "Which melts?\n\nA. ice\nB. sand", "A"),
        (
            ARC | {"choices": {"text": ["ice", "sand"], "label": ["1", "2"]}, "answerKey": "2"},
            ("question", "answerKey"),
            "Which melts?\n\nA. ice\nB. sand",
            "B",
        ),
        (MMLU, ("question", "answer"), "2+2?\n\nA. 3\nB. 4\nC. 5\nD. 6", "B"),
        (MMLU | {"choices": '["3", "4"]', "answer": "A"}, ("question", "answer"), "2+2?\n\nA. 3\nB. 4", "A"),
        (BBH, ("input", "target"), BBH["input"], "B"),
    ],
)
def test_options_are_lettered_and_the_answer_is_a_letter(row, columns, text, letter):
    question = question_of(row, *columns)
    assert (question.question, question.answer) == (text, letter)


def test_ten_options_reach_to_j():
    assert question_of(MMLU_PRO).answer == "J"


def test_order_of_gpqa_is_fixed_by_the_question_and_puts_the_correct_one_anywhere():
    letters = set()
    for number in range(40):
        row = GPQA | {"Question": f"How many? {number}"}
        question = question_of(row, "Question", "Correct Answer")
        assert question == question_of(row, "Question", "Correct Answer")
        assert f"{question.answer}. four" in question.question
        letters.add(question.answer)
    assert letters == set("ABCD")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"choices": ["one"]}, "has 1 options, 2 to 10"),
        ({"choices": [str(k) for k in range(11)]}, "has 11 options"),
        ({"choices": ["a", ""]}, "an empty option"),
        ({"choices": ["a", {"b": 1}]}, "must be a list of options"),
        ({"choices": {"text": ["a", "b"], "label": ["A"]}}, "not one label for each"),
        ({"choices": "a, b"}, "must be a list of options"),
        ({"answer": "9"}, "names no option: '9'"),
        ({"answer": "E"}, "names no option"),
        ({"answer": ""}, "'answer' must be text"),
        ({"choices": None, "answer": "four"}, "no options"),
        ({"question": "\ud800"}, "lone surrogate"),
    ],
)
def test_odd_rows_are_refused_with_the_column(changes, reason):
    with pytest.raises(QuestionFileError, match=reason):
        question_of(MMLU | changes)


def test_equal_options_of_gpqa_are_refused():
    with pytest.raises(QuestionFileError, match="two of its options are equal"):
        question_of(GPQA | {"Incorrect Answer 1": "four"}, "Question", "Correct Answer")


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [(ARC, "question", "answerKey"), (MMLU, "question", "answer"), (GPQA, "Question", "Correct Answer")],
)
def test_columns_of_such_data_sets_are_recognized(row, question, answer):
    mapping = guess(list(row), [row]).mapping
    assert (mapping.question, mapping.answer, mapping.extraction) == (question, answer, OPTIONS)


def test_countdown_rows_become_a_task():
    row = {"nums": ["44", "19", "35"], "target": "98"}
    mapping = guess(list(row), [row]).mapping
    question = mapping.question_of(row)
    assert question.answer == "44 19 35 = 98"
    assert question.question.startswith("Using the numbers 44, 19, 35, write an expression that equals 98.")


@pytest.mark.parametrize("row", [{"nums": "none", "target": "3"}, {"nums": ["1.5"], "target": "3"}, {"nums": ["1"]}])
def test_countdown_rows_without_numbers_or_target_are_refused(row):
    with pytest.raises(QuestionFileError, match=r"whole numbers|NUMBERS = TARGET"):
        QuestionMapping(question="nums", answer="target", extraction="countdown").question_of(row)
