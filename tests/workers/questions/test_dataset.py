"""Questions: what is read, what is refused with its line, and what is held out."""

import json
from pathlib import Path

import pytest

from workers.contract.spec.data import DataSpec
from workers.questions.dataset import BenchmarkError, split_questions


def write(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def numbered(count: int) -> list[dict]:
    return [{"question": f"What is {n}+1?", "answer": n + 1} for n in range(count)]


def error_of(path: Path, *lines: object) -> str:
    with pytest.raises(BenchmarkError) as caught:
        split_questions(DataSpec(train_path=write(path, *lines)))
    return str(caught.value)


def test_numbers_become_text_as_they_are_written(tmp_path):
    path = write(tmp_path / "q.jsonl", '{"question": "a", "answer": 2.50}', '{"question": 7, "answer": 1e400}')
    train = split_questions(DataSpec(train_path=path, held_out_fraction=0)).train
    assert [(question.question, question.answer) for question in train] == [("a", "2.50"), ("7", "1e400")]


def test_id_and_subject_are_kept_and_a_missing_id_depends_on_the_question_only(tmp_path):
    first = write(tmp_path / "a.jsonl", {"question": "x", "answer": "1", "id": "k/1", "subject": "M"}, *numbered(1))
    second = write(tmp_path / "b.jsonl", *numbered(1))
    train = split_questions(DataSpec(train_path=first, held_out_fraction=0)).train
    other = split_questions(DataSpec(train_path=second, held_out_fraction=0)).train
    assert (train[0].id, train[0].subject) == ("k/1", "M")
    assert train[1].id == other[0].id


def test_difficulty_is_kept_and_the_template_stands_around_the_question(tmp_path):
    path = write(tmp_path / "q.jsonl", {"question": "1+{x}=", "answer": "2", "difficulty": 3})
    data = DataSpec(train_path=path, held_out_fraction=0, prompt_template="Solve {question} now")
    [question] = split_questions(data).train
    assert (question.difficulty, question.question) == ("3", "1+{x}=")
    assert question.prompt == "Solve 1+{x}= now"
    [plain] = split_questions(DataSpec(train_path=path, held_out_fraction=0)).train
    assert (plain.prompt, plain.id) == (plain.question, question.id)


def test_broken_line_is_named_with_its_column(tmp_path):
    message = error_of(tmp_path / "q.jsonl", *numbered(4), '{"question": "x"; "answer": 1}')
    assert message == "q.jsonl, line 5: not JSON (column 17: expecting ',' delimiter)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"question": "x"}, "line 3: no key 'answer' (keys here: question)"),
        ({"question": "x", "answer": " "}, "line 3: 'answer' is empty"),
        ({"question": "x", "answer": {"a": 1}}, "line 3: 'answer' must be text or a number, not an object"),
        ({"question": "x", "answer": True}, "line 3: 'answer' must be text or a number, not true or false"),
        ({"question": ["x"], "answer": "1"}, "line 3: 'question' must be text or a number, not a list"),
        ({"id": "k" * 201, "question": "x", "answer": "1"}, "line 3: 'id' has 201 characters, 200 at most"),
        ("[1]", "line 3: must be a JSON object, not a list"),
        ("null", "line 3: must be a JSON object"),
        ({"question": "x", "answer": None}, "line 3: 'answer'"),
        ({"question": "  ", "answer": "1"}, "line 3: 'question' is empty"),
        ("NaN", "line 3: NaN is not a JSON number"),
        ('{"question": "x", "question": "y", "answer": "1"}', "line 3: key 'question' appears twice"),
        ('{"question": "x", "answer": "\\ud800"}', "line 3: 'answer' contains half a character"),
        ("[" * 100_000, "line 3: nested too deeply"),
        ({"question": "What is 0+1?", "answer": "2"}, "line 3: repeats the question of line 1 with another answer"),
        ('{"question": "x", "answer": "' + "1" * 1_000_000 + '"}', "line 3: longer than 1000000 bytes"),
    ],
)
def test_bad_line_is_refused_with_its_number_and_reason(tmp_path, line, said):
    assert said in error_of(tmp_path / "q.jsonl", *numbered(2), line)


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"question": "x", "answer": "1"}\n\xff\n')
    with pytest.raises(BenchmarkError, match=r"line 2: not UTF-8 \(byte 1\)"):
        split_questions(DataSpec(train_path=str(path)))


def test_blank_lines_and_a_byte_order_mark_are_allowed(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question": "x", "answer": "1"}\r\n\r\n')
    train = split_questions(DataSpec(train_path=str(path))).train
    assert [question.question for question in train] == ["x"]


def test_empty_and_missing_files_are_refused(tmp_path):
    assert "no questions in it" in error_of(tmp_path / "q.jsonl", "")
    with pytest.raises(BenchmarkError, match="no such file"):
        split_questions(DataSpec(train_path=str(tmp_path / "absent.jsonl")))


def test_repeated_question_is_kept_once(tmp_path):
    lines = [*numbered(3), {"question": "What  is 0+1?", "answer": 1}]
    split = split_questions(DataSpec(train_path=write(tmp_path / "q.jsonl", *lines), held_out_fraction=0))
    assert (len(split.train), split.num_repeated) == (3, 1)


def test_held_out_questions_leave_the_training_set(tmp_path):
    data = DataSpec(
        train_path=write(tmp_path / "train.jsonl", *numbered(5)),
        eval_path=write(tmp_path / "eval.jsonl", *numbered(2)),
    )
    split = split_questions(data)
    assert [question.answer for question in split.train] == ["3", "4", "5"]
    assert [question.answer for question in split.held_out] == ["1", "2"]
    assert split.num_overlapping == 2


def test_training_set_wholly_held_out_is_refused(tmp_path):
    path = write(tmp_path / "train.jsonl", *numbered(2))
    with pytest.raises(BenchmarkError, match="nothing left to train on"):
        split_questions(DataSpec(train_path=path, eval_path=path))


def test_hash_split_does_not_depend_on_order_and_takes_about_the_fraction(tmp_path):
    lines = numbered(2000)
    split = split_questions(DataSpec(train_path=write(tmp_path / "a.jsonl", *lines)))
    turned = split_questions(DataSpec(train_path=write(tmp_path / "b.jsonl", *lines[::-1])))
    assert {question.id for question in split.held_out} == {question.id for question in turned.held_out}
    assert len(split.train) + len(split.held_out) == 2000
    assert 150 <= len(split.held_out) <= 250  # binomial, 2000 at .1: mean 200, sd 13.4


@pytest.mark.parametrize("fraction", [0.001, 0.9])
def test_hash_split_leaves_neither_side_empty(tmp_path, fraction):
    path = write(tmp_path / "q.jsonl", *numbered(2))
    split = split_questions(DataSpec(train_path=path, held_out_fraction=fraction))
    assert (len(split.train), len(split.held_out)) == (1, 1)
