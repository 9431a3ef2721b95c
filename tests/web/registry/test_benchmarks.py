"""Adding question files in one request: every line is checked, and a refusal leaves neither row nor file.

The child process is the real one: what a line may hold is decided there.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from hacrl_web.registry.base.children import IMPORTER
from hacrl_web.registry.benchmarks import service as benchmarks
from hacrl_web.registry.benchmarks import uploads
from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldErrors
from tests.support.web.registry_help import QUESTIONS, field_error, jsonl

pytestmark = pytest.mark.django_db


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def post(client, **fields):
    data = {"name": "sums", "verifier": "exact", "held_out_fraction": "0.2"}
    return client.post("/api/v1/benchmarks", data | fields)


def said(response) -> list[tuple[str, str]]:
    """Field and message of each error."""
    assert response.status_code == 422
    return [(error["field"], error["message"]) for error in response.json()["errors"]]


@pytest.fixture
def asked(monkeypatch):
    """What the child is asked; it is never started."""
    requests: list[bytes] = []
    monkeypatch.setattr(IMPORTER, "run", lambda arguments, stdin, memory_bytes: requests.append(stdin))
    return requests


def refused(owner, folder, file, **fields) -> list[tuple[str | None, str, str]]:
    """What was wrong; neither a row nor a file is left."""
    with pytest.raises(FieldErrors) as error:
        benchmarks.create_benchmark(owner, **{"name": "sums", "file": file} | fields)
    assert Benchmark.objects.count() == 0
    assert files_in(folder) == []
    return [(e.field, e.code, e.message) for e in error.value.errors]


def test_good_file_is_kept_counted_and_previewed(client, ada, folder):
    rows = [*QUESTIONS, {"question": "<script>alert(1)</script>", "answer": 7}, QUESTIONS[0]]
    response = post(client, file=jsonl(rows))
    row = Benchmark.objects.get()
    assert (response.status_code, response.json()["id"]) == (201, row.pk)
    assert row.num_train + row.num_held_out == 11
    assert row.num_held_out >= 1
    assert row.train_path == str(folder / str(row.pk) / "questions.jsonl")
    assert row.eval_path == ""
    assert files_in(folder) == [str(row.pk), f"{row.pk}/questions.index", f"{row.pk}/questions.jsonl"]
    kept = [json.loads(line) for line in Path(row.train_path).read_text().splitlines()]
    assert [(line["question"], line["answer"]) for line in kept[-2:]] == [("9+1=", "10"), (rows[10]["question"], "7")]
    assert set(kept[0]) == {"id", "question", "answer", "subject", "difficulty"}
    assert row.questions_sha == hashlib.sha256(Path(row.train_path).read_bytes()).hexdigest()
    assert row.source == "questions.jsonl"
    page = client.get(f"/benchmarks/{row.pk}").content.decode()
    assert "&lt;script&gt;alert(1)" in page
    assert ">9+1=</div>" in page
    assert "1 repeated line is left out" in page
    assert "P · 10" in page
    assert "<script>alert" not in page
    assert "sums" in client.get("/benchmarks/").content.decode()


def test_second_file_is_held_out_whole(client, ada, folder):
    held_out = [{"question": f"{n}+2=", "answer": str(n + 2)} for n in range(4)]
    post(client, file=jsonl(), held_out_file=jsonl(held_out))
    row = Benchmark.objects.get()
    assert (row.num_train, row.num_held_out) == (10, 4)
    assert Path(row.eval_path).name == "held_out.jsonl"
    kept = [json.loads(line) for line in Path(row.eval_path).read_text().splitlines()]
    assert [line["question"] for line in kept] == [question["question"] for question in held_out]


def test_training_question_that_is_held_out_in_other_typography_is_left_out(ada, folder):
    rows = [{"question": "What is  x² if x=2?", "answer": "4"}, {"question": "Another", "answer": "1"}]
    held_out = [{"question": "what is x2 if x=2?", "answer": "4"}]
    row = benchmarks.create_benchmark(ada, name="sums", file=jsonl(rows), held_out_file=jsonl(held_out))
    assert (row.num_train, row.num_held_out, row.facts["num_overlapping"]) == (1, 1, 1)
    assert "What is" not in Path(row.train_path).read_text()


def test_broken_line_of_the_second_file_stands_beside_it(client, ada, folder):
    response = post(client, file=jsonl(), held_out_file=jsonl(["7", "[]"]))
    [(field, message)] = said(response)
    assert (field, "line 1: must be a JSON object" in message) == ("held_out_file", True)
    assert files_in(folder) == []


# One of each kind that tests/workers/questions refuses: a file, a line, a value, and what a careless reader dies of.
BROKEN = {
    "zip": b"PK\x03\x04" + bytes(range(256)),
    "not json": b"question,answer\n1+1,2",
    "bad utf-8": b'{"question": "\xff\xfe", "answer": "1"}',
    "nesting": b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b', "answer": "1"}',
    "surrogate": b'{"question": "\\ud800", "answer": "1"}',
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_refused_and_leaves_nothing(ada, folder, case, record_property):
    upload = SimpleUploadedFile("questions.jsonl", BROKEN[case])
    found = refused(ada, folder, upload)
    assert [(field, code) for field, code, _ in found] == [("file", "bad_file")]
    message = found[0][2]
    assert message.startswith("questions.jsonl"), message
    assert str(folder) not in message, "no path of the server"
    record_property("hostile", json.dumps(["uploads", 1]))


def test_refusal_names_the_users_own_file(ada, folder):
    (found,) = refused(ada, folder, jsonl(["{"], name="my sums.jsonl"))
    assert found[2].startswith("my sums.jsonl, line 1: not JSON")
    (found,) = refused(ada, folder, jsonl(name="mine.jsonl"), held_out_file=jsonl(["{"], name="exam.jsonl"))
    assert (found[0], found[2].partition(":")[0]) == ("held_out_file", "exam.jsonl, line 1")
    (found,) = refused(ada, folder, jsonl(name="mine.jsonl"), held_out_file=jsonl(name="exam.jsonl"))
    assert found[2] == "mine.jsonl: every question is also in exam.jsonl: nothing left to train on"


def test_integer_of_five_thousand_digits_is_kept_as_it_is_written(ada, folder):
    digits = "7" * 5000
    benchmarks.create_benchmark(ada, name="big", file=jsonl([*QUESTIONS, f'{{"question": "big", "answer": {digits}}}']))
    assert digits in Path(Benchmark.objects.get().train_path).read_text()


@pytest.mark.parametrize(
    "filename", ["../../etc/passwd", "/etc/passwd", "a\x00b", "", ".", "..", "C:\\x", "a" * 5000, "‮lnosj", "-rf"]
)
def test_odd_file_names_name_nothing_on_disk(client, ada, folder, filename):
    parts = {"name": ("", "sums"), "file": (f'; filename="{filename}"', jsonl().read().decode())}
    lines = [
        f'--B\nContent-Disposition: form-data; name="{key}"{more}\n\n{text}' for key, (more, text) in parts.items()
    ]
    body = "\n".join([*lines, "--B--", ""]).replace("\n", "\r\n")
    response = client.post("/benchmarks/new", body.encode(), content_type="multipart/form-data; boundary=B")
    assert response.status_code in (302, 400, 422), "no name is no file, and headers may be too long"
    names = {Path(name).name for name in files_in(folder)}
    assert {name for name in names if not name.startswith(".incoming-")} <= {"train-0.jsonl", "notes.json"}
    assert not (folder / "passwd").exists()


def test_too_large_a_file_is_refused_while_it_is_copied(client, ada, folder, monkeypatch, asked):
    monkeypatch.setattr(uploads, "MAX_UPLOAD_BYTES", 1000)
    response = client.post("/benchmarks/new", {"file": SimpleUploadedFile("q.jsonl", b"x" * 1001)})
    assert response.status_code == 422
    assert "larger than" in field_error(response, "file")
    assert asked == []
    assert files_in(folder) == []
    assert refused(ada, folder, jsonl(), held_out_file=SimpleUploadedFile("h", b"x" * 1001))[0][:2] == (
        "held_out_file",
        "too_large",
    )


def test_client_that_stops_at_99_percent_leaves_nothing(ada, folder):
    class Broken(SimpleUploadedFile):
        def chunks(self, chunk_size=None):
            yield b"x" * 1000
            raise ConnectionResetError(104, "Connection reset by peer")

    assert refused(ada, folder, Broken("q.jsonl", b""))[0][:2] == ("file", "not_stored")


def test_form_cut_off_in_the_middle_is_refused(client, ada, folder):
    body = b'--B\r\nContent-Disposition: form-data; name="file"; filename="q"\r\n\r\n{"question"'
    response = client.post("/benchmarks/new", body, content_type="multipart/form-data; boundary=B")
    assert response.status_code == 422
    assert Benchmark.objects.count() == 0
    assert client.post("/benchmarks/new", body, content_type="multipart/form-data").status_code == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", ""), ("name", "a" * 81), ("name", "a\x00"), ("name", "a/b"), ("name", "\u200b\u2060"),
     ("question_field", ""),
     ("question_field", "a\x00"),
     ("question_field", "q" * 121), ("answer_field", "question"), ("answer_field", "\ud800"), ("verifier", "pickle"),
     ("verifier", ""), ("held_out_fraction", "nan"), ("held_out_fraction", "1"), ("held_out_fraction", "-0.1"),
     ("held_out_fraction", "0,1"), ("held_out_fraction", ""), ("held_out_fraction", "inf"),
     ("held_out_fraction", "０.1"), ("subject_field", "a\x00"), ("answer_extraction", "regex"),
     ("prompt_template", "Solve it"), ("prompt_template", "{question}\x00"), ("prompt_template", "{question}\ud800"),
     ("prompt_template", "{question}" + "x" * 20_000), ("prompt_template", 7)],
)  # fmt: skip
def test_bad_field_is_refused_before_the_file_is_read(ada, folder, asked, field, value, record_property):
    found = refused(ada, folder, jsonl(), **{field: value})
    assert [name for name, _, _ in found] == [field]
    assert found[0][2].endswith((".", ")")), "a sentence for people"
    record_property("hostile", json.dumps(["fields of benchmarks", 1]))
    assert asked == []


def test_key_that_looks_like_an_option_is_a_key(ada, folder):
    rows = [{"--help": f"{n}+1=", "-a": str(n + 1)} for n in range(5)]
    benchmarks.create_benchmark(ada, name="odd", file=jsonl(rows), question_field="--help", answer_field="-a")
    assert Benchmark.objects.get().num_train == 4


def test_wrong_key_names_the_keys_that_are_there(client, ada, folder):
    [(field, message)] = said(post(client, file=jsonl(), answer_field="solution"))
    assert field == "file"
    assert "no key 'solution' (keys here: answer, question, subject)" in message


def test_missing_file_is_said_beside_the_field(client, ada):
    response = client.post("/benchmarks/new", {})
    assert response.status_code == 422
    assert "Choose a file" in field_error(response, "file")
    assert client.post("/benchmarks/new", {"file": "not a file"}).status_code == 422
    assert post(client).status_code == 422


def test_name_taken_while_the_file_is_inspected_leaves_one_row_and_its_file(ada, folder, monkeypatch):
    real = benchmarks._read

    def read_slowly(*arguments):
        answer = real(*arguments)
        monkeypatch.setattr(benchmarks, "_read", real)
        benchmarks.create_benchmark(ada, name="sums", file=jsonl())
        return answer

    monkeypatch.setattr(benchmarks, "_read", read_slowly)
    with pytest.raises(FieldErrors, match="already has one"):
        benchmarks.create_benchmark(ada, name="sums", file=jsonl())
    row = Benchmark.objects.get()
    assert files_in(folder) == [str(row.pk), f"{row.pk}/questions.index", f"{row.pk}/questions.jsonl"]


def test_row_that_is_not_committed_leaves_no_file(ada, folder, monkeypatch):
    def fail(staged, target):
        staged.rename(target)
        raise OSError("disk gone")

    monkeypatch.setattr(uploads, "keep", fail)
    with pytest.raises(OSError, match="disk gone"):
        benchmarks.create_benchmark(ada, name="sums", file=jsonl())
    assert Benchmark.objects.count() == 0
    assert files_in(folder) == []


def test_leftovers_of_killed_processes_are_swept(ada, folder):
    old, new = folder / ".incoming-old", folder / ".incoming-new"
    for left in (old, new):
        left.mkdir(parents=True)

    os.utime(old, (0, 0))
    benchmarks.create_benchmark(ada, name="sums", file=jsonl())
    assert not old.exists()
    assert new.exists()


def test_files_are_for_the_server_alone(ada, folder):
    row = benchmarks.create_benchmark(ada, name="sums", file=jsonl())
    assert folder.stat().st_mode & 0o077 == 0
    assert Path(row.train_path).parent.stat().st_mode & 0o077 == 0
