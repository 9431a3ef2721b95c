"""Files as the field has them: twelve data sets, imported by upload, `fetch`, API and command line without naming a
column, give the same questions and answers; an odd row leaves the others as they are."""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from hacrl_web.registry.base.children import IMPORTER, ChildResult
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.tables import insert
from tests.support.marks import in_full
from tests.support.web.factories import make_run
from tests.support.web.page_text import text_of
from tests.support.workers.tiny import make_pair, make_spec, train
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from workers.contract.spool import read_records
from workers.questions import import_cli

pytestmark = pytest.mark.django_db
ONE_STEP = {"training": {"steps": 1, "train_batch_size": 12, "mini_batch_size": 12}, "evaluation": {"eval_interval": 0}}
USER = [{"role": "user", "content": "What is 2+2?"}]
# By data set: its rows in its own columns, and the first question and answer that they give.
ROWS: dict[str, tuple[list[Any], tuple[str, str]]] = {
    "verl": (
        [{"data_source": "sums", "prompt": USER, "ability": "math",
          "reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"index": 7, "split": "train"}}],
        ("What is 2+2?", "4"),
    ),
    "skywork": ([{"prompt": USER, "reward_model": {"ground_truth": '["4"]'}}], ("What is 2+2?", "4")),
    "dapo": (
        [{"prompt": "What is 2+2?", "solution": "4", "data_source": "dapo", "source_prompt": USER,
          "reward_model": {"ground_truth": "4", "style": "rule"}, "extra_info": {"index": "9"}}],
        ("What is 2+2?", "4"),
    ),
    "parts": (
        [{"prompt": [{"role": "developer", "content": "Be brief."},
                     {"role": "user", "content": [{"type": "text", "text": "What is "},
                                                  {"type": "text", "text": "2+2?"}]}], "answer": "4"}],
        ("Be brief.\n\nWhat is 2+2?", "4"),
    ),
    "messages": ([{"messages": [*USER, {"role": "assistant", "content": "4"}]}], ("What is 2+2?", "4")),
    "sharegpt": (
        [{"conversations": [{"from": "human", "value": "What is 2+2?"}, {"from": "gpt", "value": "so\n#### 1,204"}]}],
        ("What is 2+2?", "1204"),
    ),
    "deepscaler": ([{"problem": "What is 2+2?", "answer": "4", "solution": "Two and two."}], ("What is 2+2?", "4")),
    "open-r1": (
        [{"problem": "What is 2+2?", "solution": "Add.\n4", "answer": "4", "problem_type": "Algebra", "uuid": "u1",
          "generations": ["<think>", "b"], "messages": [*USER, {"role": "assistant", "content": "4"}]}],
        ("What is 2+2?", "4"),
    ),
    "numina": ([{"source": "s", "problem": "What is 2+2?", "solution": "So $\\boxed{4}$."}], ("What is 2+2?", "4")),
    "alpaca": ([{"instruction": "Add.", "input": "2 and 2", "output": "4"}], ("Add.\n\n2 and 2", "4")),
    "aime": ([{"ID": "2024-I-1", "Problem": "What is 2+2?", "Solution": "Add\nthem", "Answer": 4}],
             ("What is 2+2?", "4")),
    "mmlu": ([{"question": "2+2?", "subject": "sums", "choices": ["3", "4"], "answer": 1}],
             ("2+2?\n\nA. 3\nB. 4", "B")),
    "list": ([{"question": "2+2?", "answer": 5.00}], ("2+2?", "5.0")),
}  # fmt: skip
EXPECTED = {name: pair for name, (_, pair) in ROWS.items()}
# Files as other programs write them.
OTHERS = {
    "list.json": (b'{"version": 1, "data": [\n {"question": "2+2?", "answer": 5.0}\n]}', ("2+2?", "5.0")),
    "mmlu.csv": (b"Question,A,B,Answer\n2+2?,3,4,B\n", ("2+2?\n\nA. 3\nB. 4", "B")),
    "sheet.csv": ("\ufeffsep=;\rquestion;answer\r2+2?;3,50\r".encode(), ("2+2?", "3,50")),
    "sums.tsv": (b'question\tanswer\nA 5" pipe\t007\n"one\t2\n', ('A 5" pipe', "007")),
}
FLAT = [name for name, (rows, _) in ROWS.items() if not any(isinstance(one, dict | list) for one in rows[0].values())]
FORMS = [(name, form) for form in ("jsonl", "json") for name in ROWS]
FORMS += [(name, "parquet") for name in ROWS if name != "parts"]  # a column of Parquet has one type
FORMS += [(name, form) for form in ("csv", "tsv") for name in [*FLAT, "mmlu"]]


def written(rows: list[Any], form: str) -> bytes:
    """A file of these rows."""
    if form == "jsonl":
        return "\n".join(map(json.dumps, rows)).encode()
    if form == "json":
        return json.dumps(rows, indent=1).encode()
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
        from pyarrow import parquet

        binary = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist(rows), binary)
        return binary.getvalue()
    text = io.StringIO()
    table = csv.writer(text, delimiter="," if form == "csv" else "\t")
    table.writerow(rows[0])
    table.writerows([json.dumps(one) if isinstance(one, list) else one for one in row.values()] for row in rows)
    return text.getvalue().encode()


@pytest.fixture(autouse=True)
def _importer_in_this_process(monkeypatch):
    """Its process and limits have tests of their own; half a second of each import is its start."""

    def run(arguments, stdin, memory_bytes):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin.decode()))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            status = import_cli.main()
        return ChildResult(output.getvalue().encode(), status, is_late=False)

    monkeypatch.setattr(IMPORTER, "run", run)


def imported(benchmark: Benchmark) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in Path(benchmark.train_path).read_text().splitlines()]
    return [(row["question"], row["answer"]) for row in rows]


def by_page(web, hacrl, file: Path) -> None:
    upload = SimpleUploadedFile(file.name, file.read_bytes())
    address = web.post("/benchmarks/new", {"file": upload})["Location"]
    form = web.get(address).context["form"]
    values = {field: form[field].value() or "" for field in form.fields}
    answer = web.post(address, values | {"name": "page", "held_out_fraction": "0"})
    assert answer.status_code == 302, text_of(answer)


def by_fetch(web, hacrl, file: Path) -> None:
    body = {"kind": "local", "location": str(file), "name": "fetch", "held_out_fraction": 0}
    answer = web.post("/api/v1/benchmarks/fetch", body, content_type="application/json")
    assert answer.status_code == 201, answer.json()


def by_api(web, hacrl, file: Path, name: str = "api") -> Any:
    upload = SimpleUploadedFile(file.name, file.read_bytes())
    answer = web.post("/api/v1/benchmarks", {"name": name, "held_out_fraction": "0", "file": upload})
    assert answer.status_code == 201, answer.json()
    return answer.json()


def by_command(web, hacrl, file: Path) -> None:
    hacrl("benchmarks", "add", str(file), "--name", "command", "--set", "held_out_fraction=0")


# The command is the first: after a request of Django's test client another server would close the test's connection.
WAYS = (by_command, by_page, by_fetch, by_api)


@pytest.fixture
def place(settings, tmp_path) -> Path:
    settings.MODEL_ROOTS, settings.BENCHMARKS_DIR = [tmp_path / "copies"], tmp_path / "benchmarks"
    settings.ALLOWED_HOSTS = ["testserver", "hacrl.test"]
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies"


def uploaded(web, place: Path, name: str, content: bytes, called: str = "api") -> Any:
    (place / name).write_bytes(content)
    return by_api(web, None, place / name, called)


@pytest.mark.parametrize("name", [*ROWS, *OTHERS])
def test_data_set_is_the_same_by_every_way_without_naming_a_column(web, hacrl, place, name):
    content, expected = OTHERS[name] if name in OTHERS else (written(ROWS[name][0], "jsonl"), EXPECTED[name])
    file = place / (name if name in OTHERS else f"{name}.jsonl")
    file.write_bytes(content)
    for way in WAYS:
        way(web, hacrl, file)
    assert [imported(benchmark)[0] for benchmark in Benchmark.objects.all()] == [expected] * len(WAYS)


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_data_set_is_the_same_in_every_form(web, user, place, name, form):
    uploaded(web, place, f"{name}.{form}", written(ROWS[name][0], form))
    [(question, answer)] = imported(Benchmark.objects.get())
    assert question == EXPECTED[name][0]
    # 5.00 is a number, which Python's writers and Parquet write in their own ways.
    assert answer == ("5" if (name, form) == ("list", "parquet") else EXPECTED[name][1])


BROKEN = ('{"question": "odd", ', '{"question": "odd"} {}', "{}", '"odd"')


@pytest.mark.parametrize(("name", "broken", "way"), [
    *((name, BROKEN[0], by_api) for name in ROWS),
    *(("verl", BROKEN[0], way) for way in (by_page, by_fetch, by_command)),
    *in_full(*((name, broken, by_api) for name in ROWS for broken in BROKEN[1:])),
    *in_full(*((name, BROKEN[0], way) for name in ROWS for way in WAYS if way != by_api and name != "verl")),
])  # fmt: skip
def test_broken_row_among_a_hundred_changes_no_other(web, hacrl, place, name, broken, way):
    def numbered(text: str, number: int) -> str:
        return text.replace("2+2?", f"{number}+2?").replace("2 and 2", f"{number} and 2")

    [row], (question, answer) = ROWS[name]
    lines = [numbered(json.dumps(row), number) for number in range(99)]
    lines.insert(50, broken)
    (place / f"{name}.jsonl").write_text("\n".join(lines))
    way(web, hacrl, place / f"{name}.jsonl")
    benchmark = Benchmark.objects.get()
    assert imported(benchmark) == [(numbered(question, number), answer) for number in range(99)]
    assert [row["place"] for row in benchmark.facts["left_out"]["rows"]] == [f"{name}.jsonl, line 51"]


def test_floats_of_parquet_are_written_in_their_own_precision(web, user, place):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    binary = io.BytesIO()
    column = pyarrow.array([0.1, 27.0, 1e-7], pyarrow.float32())
    parquet.write_table(pyarrow.table({"question": ["a", "b", "c"], "answer": column}), binary)
    uploaded(web, place, "floats.parquet", binary.getvalue())
    assert [answer for _, answer in imported(Benchmark.objects.get())] == ["0.1", "27", "1e-07"]


GOOD = [{"question": f"{n}+1=", "answer": f"so #### {n + 1}"} for n in range(99)]
MATH = [{"problem": f"{n}+1=", "solution": f"so $\\boxed{{{n + 1}}}$"} for n in range(99)]


@pytest.mark.parametrize(
    ("rows", "odd", "said"),
    [
        (GOOD, {"question": "odd", "answer": "no marks"}, "line 51: 'answer' has no ####"),
        (MATH, {"problem": "odd", "solution": "no box"}, "line 51: 'solution' has no \\boxed{}"),
        (GOOD, "{'question': 'odd'}", "line 51: not JSON (column 2: it has single quotes, as Python writes it)"),
        (GOOD, '{"question": "odd", "answer": NaN}', "line 51: NaN is not a JSON number"),
        (GOOD, '{"question": "odd", "question": "2"}', "line 51: key 'question' appears twice: remove one"),
        (GOOD, '{"question": "odd", "answer": ' + "[" * 9000 + "]" * 9000 + "}", "line 51: nested too deeply"),
        (GOOD, {"question": "0+1=", "answer": "#### 7"}, "line 51: repeats the question of line 1 with another answer"),
        (GOOD, {"question": ["odd"], "answer": "#### 1"}, "line 51: 'question' is a list, but not of messages"),
        (GOOD, "[1]", "line 51: must be a JSON object, not a list"),
    ],
)
def test_odd_row_among_a_hundred_is_named_and_changes_no_other(web, user, place, rows, odd, said):
    lines = [json.dumps(row) for row in rows]
    lines.insert(50, odd if isinstance(odd, str) else json.dumps(odd))
    made = uploaded(web, place, "sums.jsonl", "\n".join(lines).encode())
    assert made["facts"]["left_out"]["num"] == 1
    assert f"sums.jsonl, {said}" in "{place}: {reason}".format(**made["facts"]["left_out"]["rows"][0])
    assert imported(Benchmark.objects.get()) == [(f"{n}+1=", str(n + 1)) for n in range(99)]
    assert said[:7] in text_of(web.get(Benchmark.objects.get().get_absolute_url()))


def test_quote_that_is_never_closed_spoils_its_own_line(web, user, place):
    lines = [f"{n}+1=,{n + 1}" for n in range(99)]
    lines.insert(50, '"odd,1')
    made = uploaded(web, place, "sums.csv", "\n".join(["question,answer", *lines]).encode())
    assert [row["place"] for row in made["facts"]["left_out"]["rows"]] == ["sums.csv, line 52"]
    assert len(imported(Benchmark.objects.get())) == 99


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"prompt": "Hi", "chosen": "a", "rejected": "b"},
            "Pairs of a chosen and a rejected response have no reference",
        ),
        (
            {"messages": [*USER, {"role": "assistant", "content": "Let me think. " * 20}]},
            "'messages.assistant', the last message of the assistant, is a whole response",
        ),
        ({"foo": "Hi", "answer": "4"}, "No column is known to hold the question: the columns here are foo, answer"),
        ({"question": "Which?", "choices": ["a", "b"], "answer": 2}, "seems to count options from 1"),
        ({"messages": [*USER, *USER], "answer": "4"}, "its roles are user, user"),
        ({"prompt": [{"role": "user", "content": [{"type": "image_url"}]}], "answer": "4"}, "such as a picture"),
    ],
)
def test_what_cannot_be_imported_is_said_in_a_sentence(web, user, place, row, said):
    file = SimpleUploadedFile("rows.jsonl", json.dumps(row).encode())
    answer = web.post("/api/v1/benchmarks", {"name": "rows", "file": file})
    assert answer.status_code == 422
    assert said in " ".join(error["message"] for error in answer.json()["errors"])


def test_whole_solutions_and_columns_that_are_left_out_are_noted(web, user, place):
    row = {"question": "2+2?", "answer": "We add two and two,\nwhich makes four.", "hint": "Use your fingers."}
    made = uploaded(web, place, "rows.jsonl", json.dumps(row).encode())
    solutions, left_out = made["facts"]["notes"]
    assert solutions.startswith("1 of the first 1 reference answers in 'answer' look like whole solutions")
    assert left_out == "Columns of text that are left out: hint."
    assert left_out in text_of(web.get(Benchmark.objects.get().get_absolute_url()))


@pytest.mark.parametrize(
    ("chosen", "field", "said"),
    [
        ({"answer_field": "question"}, "answer_field", "need two different columns"),
        ({"answer_extraction": "boxed"}, "answer_field", "sums.jsonl, line 1: 'answer' has no \\boxed{}"),
        ({"question_field": "hint"}, "question_field", "'hint' is a list, but not of messages"),
        ({"answer_field": "hint"}, "answer_field", "'hint' is a list of several answers: keep one"),
        ({"subject_field": "hint"}, "subject_field", "'hint' must be text or a number, not a list"),
        ({"answer_field": ""}, "answer_field", "This field is required"),
        ({"question_field": "gone"}, "question_field", "no key 'gone'"),
        ({"answer_extraction": "magic"}, "answer_extraction", "Choose one of"),
    ],
)
def test_preview_says_at_the_column_why_it_cannot_be_and_the_file_stays(web, user, place, chosen, field, said):
    rows = [{"question": f"{n}+1=", "answer": f"so #### {n + 1}", "hint": ["a", "b"]} for n in range(9)]
    upload = SimpleUploadedFile("sums.jsonl", "\n".join(map(json.dumps, [*rows, {"question": "odd"}])).encode())
    address = web.post("/benchmarks/new", {"file": upload})["Location"]
    form = web.get(address).context["form"]
    values = {name: form[name].value() or "" for name in form.fields}
    refused = web.post(f"{address}/preview", values | chosen)
    assert refused.status_code == 422
    assert [(one["field"], said in one["message"]) for one in refused.json()["errors"]] == [(field, True)]
    # The same is said when it is sent, and then other columns are chosen.
    assert said in html.unescape(text_of(web.post(address, values | chosen)))
    found = web.post(f"{address}/preview", values).json()
    assert (found["question"], found["answer"], found["num_odd"], found["num_rows"]) == ("0+1=", "1", 1, 10)
    assert found["odd"] == ["sums.jsonl, line 10: no key 'answer' (keys here: question)"]
    assert web.post(address, values).status_code == 302


@pytest.mark.parametrize("number", ["007", "5.00", "3,5", "123456789012345678901234567890", "1e400", "-0.10"])
def test_numbers_keep_their_written_form(web, user, place, number):
    plain = number if number not in ("007", "3,5") else json.dumps(number)
    uploaded(web, place, "n.jsonl", f'{{"question": "n?", "answer": {plain}}}'.encode())
    uploaded(web, place, "n.csv", f'question;answer\nn?;"{number}"\n'.encode(), "csv")
    assert {imported(benchmark)[0][1] for benchmark in Benchmark.objects.all()} == {number}


@pytest.mark.slow
def test_run_of_a_file_with_odd_rows_names_what_it_leaves_out(web, user, place, settings):
    settings.MODEL_ROOTS = [*settings.MODEL_ROOTS, Path(settings.MODELS_DIR)]
    rows: list[Any] = [{"id": f"q{n}", "question": f"{n % 10}+{n // 10}=", "answer": str(n % 3)} for n in range(24)]
    rows[5] = {"id": "q5", "question": "5+0="}  # left out when it is imported
    rows[7]["question"] = "7+<eos>="  # a mark that this tokenizer, of single characters, cannot write as text
    rows[9]["question"] = "9+" * 9 + "="  # 19 tokens
    made = uploaded(web, place, "sums.jsonl", "\n".join(map(json.dumps, rows)).encode())
    benchmark = Benchmark.objects.get()
    assert made["facts"]["left_out"]["rows"] == [
        {"place": "sums.jsonl, line 6", "reason": "no key 'answer' (keys here: id, question)"}
    ]
    assert "sums.jsonl, line 6" in text_of(web.get(benchmark.get_absolute_url()))

    spec = make_spec(place, make_pair(place), data=data_values(benchmark) | {"held_out_fraction": 0.25}, **ONE_STEP)
    train(spec, place / "run")
    run = make_run(user)
    records = [record for _, record in read_records(place / "run" / "events.jsonl")]
    insert(run.pk, records)
    Run.objects.filter(pk=run.pk).update(
        spec=spec.model_dump(mode="json"), state="completed", step=1, last_seq=len(records)
    )
    used = {record["prompt_id"] for record in records if record["type"] == "rollout"}
    log = web.get(f"/api/v1/runs/{run.pk}/log?level=warning").json()
    page = web.get(f"/api/v1/runs/{run.pk}/history").json()  # what the run's page writes into its log
    for said in (
        "1 training questions left out: an agent's tokenizer reads words of them",
        ": q7",
        "1 left out as too",
    ):
        assert said in json.dumps(log), said
        assert said in json.dumps(page), said
    assert len(used) == 12
    assert used < {f"q{n}" for n in range(24)} - {"q5", "q7", "q9"}
