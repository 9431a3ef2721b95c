"""From rows to canonical questions: the mapping, each question once, the counts, and near-duplicates."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import resource
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from workers.contract.spec.data import DataSpec
from workers.questions import import_cli, overlap
from workers.questions.columns import QuestionMapping, extracted, guess
from workers.questions.dataset import split_questions
from workers.questions.files import QuestionFileError

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = ROOT.parent / "shared" / "data" / "benchmarks"


def write(path: Path, records: list[dict[str, Any]]) -> dict[str, str]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return {"path": str(path), "name": path.name}


def ask(verb: str, **request: Any) -> dict[str, Any]:
    """The child's answer, without its process."""
    given, printed = io.StringIO(json.dumps({"verb": verb, **request})), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "stdin", given)
        import_cli.main()
    return json.loads(printed.getvalue())


def import_into(folder: Path, train: list[dict], held_out: list[dict] | None = None, **request: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    files = {"train": [write(folder.parent / "train.jsonl", train)]}
    if held_out is not None:
        files["held_out"] = [write(folder.parent / "test.jsonl", held_out)]
    given = {"mapping": {}, "held_out_fraction": 0.2, "folder": str(folder), **files, **request}
    return ask("import", **given)


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {n}+1?", "answer": n + 1, "subject": "P" if n % 2 else "M"} for n in range(count)]


def test_mapped_columns_become_canonical_questions(tmp_path):
    rows = [{"problem": " a ", "solution": "so\n#### 1,234", "type": "Sums\n", "level": 3, "uid": "k/1", "more": [1]}]
    mapping = {"question": "problem", "answer": "solution", "subject": "type", "difficulty": "level", "id": "uid"}
    import_into(tmp_path / "out", rows, mapping={**mapping, "extraction": "hashes"}, held_out_fraction=0)
    [line] = lines(tmp_path / "out" / "questions.jsonl")
    assert line == {"id": "k/1", "question": " a ", "answer": "1234", "subject": "Sums", "difficulty": "3"}


@pytest.mark.parametrize(
    ("text", "how", "answer"),
    [
        (" 5 ", "as_is", " 5 "),
        ("a #### 1\nb ####  2 ", "hashes", "2"),
        ("#### 12,345.5", "hashes", "12345.5"),
        ("#### 1,2", "hashes", "1,2"),
        (r"\boxed{1} or rather $\boxed{\frac{1}{2}}$.", "boxed", r"\frac{1}{2}"),
    ],
)
def test_answer_is_found_in_its_cell(text, how, answer):
    assert extracted(text, how) == answer


@pytest.mark.parametrize(
    ("text", "how", "said"),
    [
        ("5", "hashes", "'answer' has no ####"),
        ("5 #### ", "hashes", "nothing after ####"),
        ("5", "boxed", r"'answer' has no \boxed{}"),
        (r"\boxed{5", "boxed", "empty or not closed"),
    ],
)
def test_answer_that_is_not_there_is_refused(text, how, said):
    with pytest.raises(QuestionFileError, match=re.escape(said)):
        extracted(text, how)


@pytest.mark.parametrize(
    ("record", "mapping"),
    [
        (
            {"unique_id": "1", "problem": "p", "solution": "s", "answer": "1", "subject": "A", "level": "5"},
            ("problem", "answer", "subject", "level", "unique_id", "as_is"),
        ),
        (
            {"problem": "p", "level": "Level 1", "type": "Algebra", "solution": "We see that " * 9 + r"$\boxed{2}$."},
            ("problem", "solution", "type", "level", "", "boxed"),
        ),
        ({"question": "p", "answer": "so #### 2"}, ("question", "answer", "", "", "", "hashes")),
        ({"Question": "p", "Gold": r"\boxed{2}"}, ("Question", "Gold", "", "", "", "boxed")),
        ({"a": "p", "b": "1"}, ("", "", "", "", "", "as_is")),
    ],
)
def test_mapping_is_guessed_from_usual_names(record, mapping):
    found = guess(list(record), [record]).mapping
    assert (found.question, found.answer, found.subject, found.difficulty, found.id, found.extraction) == mapping


def test_list_of_one_answer_is_an_answer_and_of_two_is_refused():
    mapping = QuestionMapping(answer="final_answer")
    assert mapping.question_of({"question": "q", "final_answer": ["2"]}).answer == "2"
    with pytest.raises(QuestionFileError, match="a list of several answers"):
        mapping.question_of({"question": "q", "final_answer": ["2", "3"]})
    with pytest.raises(QuestionFileError, match="'final_answer' must be text or a number, not an object"):
        mapping.question_of({"question": "q", "final_answer": {"a": "1"}})


def test_counts_are_those_of_the_trainer(tmp_path):
    found = import_into(tmp_path / "out", [*sums(500), *sums(3)], mapping={"subject": "subject"})
    data = DataSpec(train_path=str(tmp_path / "out" / "questions.jsonl"), held_out_fraction=0.2)
    split = split_questions(data)
    assert (found["num_train"], found["num_held_out"]) == (len(split.train), len(split.held_out))
    assert (found["num_repeated"], split.num_repeated) == (3, 0)
    assert found["subjects"] == {"M": 250, "P": 250}
    assert found["sha256"] == hashlib.sha256((tmp_path / "out" / "questions.jsonl").read_bytes()).hexdigest()


def test_ids_and_the_split_do_not_depend_on_the_canonical_form(tmp_path):
    """A benchmark that was registered before there was one trains on the same questions under the same ids."""
    import_into(tmp_path / "out", sums(100))
    before = split_questions(DataSpec(train_path=str(tmp_path / "train.jsonl")))
    after = split_questions(DataSpec(train_path=str(tmp_path / "out" / "questions.jsonl")))
    assert [q.id for q in before.held_out] == [q.id for q in after.held_out]
    assert [q.id for q in before.train] == [q.id for q in after.train]


def test_index_names_the_place_of_every_fiftieth_line(tmp_path):
    import_into(tmp_path / "out", sums(120))
    content = (tmp_path / "out" / "questions.jsonl").read_bytes()
    offsets = array("Q")
    offsets.frombytes((tmp_path / "out" / "questions.index").read_bytes())
    starts = [0, *(place + 1 for place, byte in enumerate(content) if byte == 10)]
    assert list(offsets) == [starts[0], starts[50], starts[100]]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"question": "what  is 0+1?", "answer": "1"}, ""),  # the same but for case and spaces: repeated
        ({"question": "What is 0+1?", "answer": "2"}, "train.jsonl, line 2: repeats the question of line 1"),
        ({"question": "WHAT is 0+1?", "answer": "2"}, ""),  # another question: letters may be variables
        ({"id": "a", "question": "other", "answer": "2"}, "train.jsonl, line 2: id 'a' is already used by line 1"),
        ({"question": "x", "answer": "1", "level": "y" * 201}, "'level' has 201 characters, 200 at most"),
        ({"question": "x", "answer": "1", "level": ["y"]}, "'level' must be text or a number, not a list"),
    ],
)
def test_second_line_is_kept_or_left_out_by_name(tmp_path, second, said):
    first = {"id": "a", "question": "What is 0+1?", "answer": "1"}
    mapping = {"id": "id", "difficulty": "level"}
    found = import_into(tmp_path / "out", [first, second], mapping=mapping, held_out_fraction=0)
    assert said in " ".join(f"{row['place']}: {row['reason']}" for row in found["left_out"]["rows"])
    assert found["left_out"]["num"] == bool(said)


@pytest.mark.parametrize(
    ("row", "question"),
    [
        ({"Body": "87 oranges in 3 bags.", "Question": "How many a bag?", "Answer": 29.0}, "oranges"),  # SVAMP
        ({"context": "Paris is in France.", "question": "Where?", "answers": {"text": ["France"]}}, "Paris"),  # SQuAD
        ({"instruction": "When?", "context": "X started in 2000.", "response": "2000"}, "2000"),  # dolly
        ({"article": "It is red.", "question": "Color?", "options": ["red", "blue"], "answer": "A"}, "It is red."),
        ({"question": "Where?", "context": {"title": ["a"]}, "answer": "here"}, "Where?"),  # no text, as HotpotQA's
    ],
)
def test_text_that_a_question_stands_on_is_part_of_it(tmp_path, row, question):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    files = [{"path": str(tmp_path / "rows.jsonl"), "name": "rows.jsonl"}]
    looked = import_cli.look({"files": files})
    shown = import_cli.preview_rows({"files": files, "mapping": looked["guess"]})
    assert question in shown["question"]
    assert next(row[one] for one in ("question", "Question", "instruction") if one in row) in shown["question"]
    assert not [note for note in looked["notes"] if "left out" in note and "title" not in note]


def test_unit_in_brackets_behind_a_number_is_noted():
    rows = [{"question": f"{n}?", "answer": f"{n} (apples)" if n % 2 else f"{n}"} for n in range(10)]
    told = "5 of the first 10 reference answers have words in brackets behind a number, such as '1 (apples)', which"
    assert [told in note for note in guess(["question", "answer"], rows).notes] == [True]
    assert guess(["question", "answer"], [{"question": "f", "answer": "2 (x+1)"}]).notes == []


PATH = "A path of length ten goes from the lower left corner of a square grid with {} points to the upper right."


def test_near_duplicates_of_held_out_questions_are_counted_and_shown(tmp_path):
    train = [{"question": PATH.format(n), "answer": n} for n in ("nine", "sixteen")]
    train.append(
        {"question": "Something else that has at least thirteen words in it so that it could be near.", "answer": 1}
    )
    found = import_into(tmp_path / "out", train, [{"question": PATH.format("nine") + " Why?", "answer": "1"}])
    assert (found["num_train"], found["num_held_out"], found["num_overlapping"]) == (3, 1, 0)
    near = found["near"]
    # 22 words, 10 pieces of 13; the 17th word stands in those that begin with the 5th to 10th: 4 of 10 are the same.
    assert (near["num_asked"], near["num_same"], near["num_near"]) == (3, 0, 1)
    assert near["examples"] == [
        {"question": PATH.format("nine"), "other": PATH.format("nine") + " Why?", "is_same": False}
    ]


def test_the_same_question_and_a_nearly_equal_one_are_told_apart():
    own = [*(row["question"] for row in sums(5)), PATH.format("nine")]
    others = ["WHAT is 3+1 ?", PATH.format("nine") + " Why?", "z"]
    found = overlap.count_overlap(own, overlap.KnownQuestions(others)).as_dict(others)
    assert (found["num_asked"], found["num_same"], found["num_near"]) == (6, 1, 1)
    assert [example["other"] for example in found["examples"]] == ["WHAT is 3+1 ?", PATH.format("nine") + " Why?"]


def test_memory_for_pieces_is_bounded(monkeypatch):
    monkeypatch.setattr(overlap, "MAX_PIECES", 50)
    words = [f"{PATH.format(n)} It has {n} points." * 3 for n in range(40)]
    known = overlap.KnownQuestions(words)
    assert len(known._pieces) <= 50
    assert overlap.count_overlap(words, known).num_same == 40


def test_no_line_of_a_file_is_held_in_memory(tmp_path):
    """60 MB within an address space of 200 MiB, of which the interpreter and its libraries take half."""
    path = tmp_path / "long.jsonl"
    with open(path, "w") as file:
        for n in range(2000):
            file.write(json.dumps({"question": f"{n} " + "x" * 30_000, "answer": n}) + "\n")
    (tmp_path / "out").mkdir()
    request = {"verb": "import", "train": [{"path": str(path), "name": "long.jsonl"}], "mapping": {}}
    done = subprocess.run(
        [sys.executable, "-m", "workers.questions.import_cli"],
        input=json.dumps(request | {"held_out_fraction": 0.1, "folder": str(tmp_path / "out")}).encode(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 * 2**20, 200 * 2**20)),  # no threads here
        timeout=550,
    )
    found = json.loads(done.stdout)
    assert found.get("error") is None
    assert found["num_train"] + found["num_held_out"] == 2000


@pytest.mark.parametrize("name", ["math500", "gsm8k_test", "aime2025", "amc23", "minerva_math", "olympiad_bench"])
def test_local_copies_are_guessed_and_read(tmp_path, name):
    path = BENCHMARKS / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip("the benchmark files lie beside the repository only where it is developed")
    file = {"path": str(path), "name": path.name}
    guessed = ask("look", files=[file])["guess"]
    assert (guessed["question"], guessed["answer"], guessed["extraction"]) == ("problem", "answer", "as_is")
    out = tmp_path / "out"
    out.mkdir()
    found = ask("import", train=[file], mapping=guessed, held_out_fraction=0, folder=str(out))
    count = json.loads((BENCHMARKS / "MANIFEST.json").read_text())[name]["count"]
    assert found["num_train"] + found["num_repeated"] == count
    assert len(lines(out / "questions.jsonl")) == found["num_train"]


def test_error_of_the_held_out_file_says_so(tmp_path):
    found = import_into(tmp_path / "out", sums(3), [{"question": "x"}])
    assert found["is_held_out"] is True
    assert found["error"] == "test.jsonl, line 1: no key 'answer' (keys here: question)"


def test_progress_is_told_while_it_reads(tmp_path):
    import_into(tmp_path / "out", sums(300), progress=str(tmp_path / "progress.json"))
    told = json.loads((tmp_path / "progress.json").read_text())
    assert 0 < told["share"] <= 1
    assert told["rows"] >= 100


def test_file_that_does_not_fit_in_memory_is_refused_in_words(monkeypatch):
    def fail(request):
        raise MemoryError

    monkeypatch.setitem(import_cli.VERBS, "look", fail)
    assert "more memory than is allowed" in ask("look")["error"]
