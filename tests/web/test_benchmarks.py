"""Adding question files: every line is checked, and a refusal leaves neither row nor file.

The child process is the real one: what a line may hold is decided there.
"""

import io
import os
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from hacrl_web.errors import FieldErrors
from hacrl_web.registry import services, uploads
from hacrl_web.registry.models import Benchmark
from tests.web.registry_help import QUESTIONS, answer_inspections, field_error, jsonl, make_user

pytestmark = pytest.mark.django_db
ACCEPTED = {"num_train": 8, "num_held_out": 2, "sample": QUESTIONS[:3]}


@pytest.fixture
def folder(tmp_path, settings):
    settings.BENCHMARKS_DIR = tmp_path / "benchmarks"
    return settings.BENCHMARKS_DIR


@pytest.fixture
def ada(client, folder):
    user = make_user("ada")
    client.force_login(user)
    return user


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def post(client, **fields):
    data = {"name": "sums", "question_field": "question", "answer_field": "answer", "verifier": "exact"}
    return client.post("/benchmarks/new", data | {"held_out_fraction": "0.2"} | fields)


def refused(owner, folder, file, **fields) -> list[tuple[str | None, str, str]]:
    """What was wrong; neither a row nor a file is left."""
    with pytest.raises(FieldErrors) as error:
        services.create_benchmark(owner, **{"name": "sums", "file": file} | fields)
    assert Benchmark.objects.count() == 0
    assert files_in(folder) == []
    return [(e.field, e.code, e.message) for e in error.value.errors]


def test_good_file_is_kept_counted_and_previewed(client, ada, folder):
    rows = [*QUESTIONS, {"question": "<script>alert(1)</script>", "answer": 7}, QUESTIONS[0]]
    response = post(client, file=jsonl(rows))
    row = Benchmark.objects.get()
    assert response["Location"] == f"/benchmarks/{row.pk}"
    assert row.num_train + row.num_held_out == 11
    assert row.num_held_out >= 1
    assert row.train_path == str(folder / str(row.pk) / "questions.jsonl")
    assert row.eval_path == ""
    assert files_in(folder) == [str(row.pk), f"{row.pk}/questions.jsonl"]
    assert Path(row.train_path).read_bytes() == jsonl(rows).read()
    page = client.get(response["Location"]).content.decode()
    assert any(f"<bdi>{question['question']}</bdi>" in page for question in QUESTIONS)
    assert "1 repeated lines" in page
    assert "P 10" in page
    assert "<script>alert" not in page
    assert "sums" in client.get("/benchmarks/").content.decode()


def test_second_file_is_held_out_whole(client, ada, folder):
    held_out = [{"question": f"{n}+2=", "answer": str(n + 2)} for n in range(4)]
    post(client, file=jsonl(), held_out_file=jsonl(held_out))
    row = Benchmark.objects.get()
    assert (row.num_train, row.num_held_out) == (10, 4)
    assert Path(row.eval_path).name == "held_out.jsonl"
    assert Path(row.eval_path).read_bytes() == jsonl(held_out).read()


def test_broken_line_five_is_named_beside_the_file_and_nothing_is_written(client, ada, folder):
    rows = [*QUESTIONS[:4], '{"question": "broken', *QUESTIONS[4:]]
    response = post(client, file=jsonl(rows))
    assert response.status_code == 422
    assert "line 5" in field_error(response, "file")
    assert Benchmark.objects.count() == 0
    assert files_in(folder) == []


def test_broken_line_of_the_second_file_stands_beside_it(client, ada, folder):
    response = post(client, file=jsonl(), held_out_file=jsonl([{"question": "1+1=", "answer": "2"}, "[]"]))
    assert response.status_code == 422
    assert "line 2" in field_error(response, "held_out_file")
    assert 'id="id_file-error"' not in response.content.decode()
    assert files_in(folder) == []


BROKEN = {
    "empty": b"",
    "blank lines": b"\n\n  \n",
    "list": b"[1, 2]",
    "number": b"7",
    "null": b"null",
    "not json": b"question,answer\n1+1,2",
    "bad utf-8": b'{"question": "\xff\xfe", "answer": "1"}',
    "utf-16": '{"question": "q", "answer": "1"}'.encode("utf-16"),
    "zip": b"PK\x03\x04" + bytes(range(256)),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(100),
    "parquet": b"PAR1" + bytes(100) + b"PAR1",
    "nesting": b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b', "answer": "1"}',
    "nan": b'{"question": "q", "answer": NaN}',
    "duplicate keys": b'{"question": "q", "question": "r", "answer": "1"}',
    "missing answer": b'{"question": "q"}',
    "answer is an object": b'{"question": "q", "answer": {"a": 1}}',
    "answer is null": b'{"question": "q", "answer": null}',
    "empty question": b'{"question": "  ", "answer": "1"}',
    "surrogate": b'{"question": "\\ud800", "answer": "1"}',
    "contradiction": b'{"question": "q", "answer": "1"}\n{"question": "q", "answer": "2"}',
    "long line": b'{"question": "' + b"q" * 3_000_000 + b'", "answer": "1"}',
    "nul bytes": bytes(1000),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_refused_and_leaves_nothing(ada, folder, case):
    upload = SimpleUploadedFile("questions.jsonl", BROKEN[case])
    found = refused(ada, folder, upload)
    assert [(field, code) for field, code, _ in found] == [("file", "bad_file")]
    assert str(folder) not in found[0][2], "no path of the server"


def test_refusal_names_the_users_own_file(ada, folder):
    (found,) = refused(ada, folder, jsonl(["{"], name="my sums.jsonl"))
    assert found[2].startswith("my sums.jsonl, line 1: not JSON")
    (found,) = refused(ada, folder, jsonl(name="mine.jsonl"), held_out_file=jsonl(["{"], name="exam.jsonl"))
    assert (found[0], found[2].partition(":")[0]) == ("held_out_file", "exam.jsonl, line 1")
    (found,) = refused(ada, folder, jsonl(name="mine.jsonl"), held_out_file=jsonl(name="exam.jsonl"))
    assert found[2] == "mine.jsonl: every question is also in exam.jsonl: nothing left to train on"


def test_integer_of_five_thousand_digits_is_kept_as_it_is_written(ada, folder):
    digits = "7" * 5000
    services.create_benchmark(ada, name="big", file=jsonl([*QUESTIONS, f'{{"question": "big", "answer": {digits}}}']))
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
    assert response.status_code in (400, 422), "the other fields are missing, or the headers are too long"
    assert files_in(folder) == []
    response = post(client, file=SimpleUploadedFile("x", jsonl().read()), name="odd")
    assert response.status_code == 302
    assert [Path(name).name for name in files_in(folder)][1:] == ["questions.jsonl"]


def test_too_large_a_file_is_refused_while_it_is_copied(client, ada, folder, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_UPLOAD_BYTES", 1000)
    asked = answer_inspections(monkeypatch, ACCEPTED)
    response = post(client, file=SimpleUploadedFile("q.jsonl", b"x" * 1001))
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
    [("name", ""), ("name", "a" * 81), ("name", "a\x00"), ("name", "a/b"), ("question_field", ""),
     ("question_field", "a\x00"),
     ("question_field", "q" * 121), ("answer_field", "question"), ("answer_field", "\ud800"), ("verifier", "python"),
     ("verifier", ""), ("held_out_fraction", "nan"), ("held_out_fraction", "1"), ("held_out_fraction", "-0.1"),
     ("held_out_fraction", "0,1"), ("held_out_fraction", ""), ("held_out_fraction", "inf"),
     ("held_out_fraction", "０.1")],
)  # fmt: skip
def test_bad_field_is_refused_before_the_file_is_read(ada, folder, monkeypatch, field, value):
    asked = answer_inspections(monkeypatch, ACCEPTED)
    found = refused(ada, folder, jsonl(), **{field: value})
    assert [name for name, _, _ in found] == [field]
    assert asked == []


def test_key_that_looks_like_an_option_is_a_key(ada, folder):
    rows = [{"--help": f"{n}+1=", "-a": str(n + 1)} for n in range(5)]
    services.create_benchmark(ada, name="odd", file=jsonl(rows), question_field="--help", answer_field="-a")
    assert Benchmark.objects.get().num_train == 4


def test_wrong_key_names_the_keys_that_are_there(client, ada, folder):
    response = post(client, file=jsonl(), answer_field="solution")
    assert "solution" in field_error(response, "file")
    assert "answer, question" in field_error(response, "file")


def test_missing_file_is_said_beside_the_field(client, ada):
    response = post(client)
    assert response.status_code == 422
    assert "Choose a JSONL file" in field_error(response, "file")
    assert post(client, file="not a file").status_code == 422


def test_name_taken_while_the_file_is_inspected_leaves_one_row_and_its_file(ada, folder, monkeypatch):
    real = services._inspect_questions

    def inspect_slowly(row, staged, *files):
        real(row, staged, *files)
        monkeypatch.setattr(services, "_inspect_questions", real)
        services.create_benchmark(ada, name="sums", file=jsonl())

    monkeypatch.setattr(services, "_inspect_questions", inspect_slowly)
    with pytest.raises(FieldErrors, match="already have one"):
        services.create_benchmark(ada, name="sums", file=jsonl())
    row = Benchmark.objects.get()
    assert files_in(folder) == [str(row.pk), f"{row.pk}/questions.jsonl"]


def test_row_that_is_not_committed_leaves_no_file(ada, folder, monkeypatch):
    answer_inspections(monkeypatch, ACCEPTED)

    def fail(staged, target):
        staged.rename(target)
        raise OSError("disk gone")

    monkeypatch.setattr(uploads, "keep", fail)
    with pytest.raises(OSError, match="disk gone"):
        services.create_benchmark(ada, name="sums", file=jsonl())
    assert Benchmark.objects.count() == 0
    assert files_in(folder) == []


def test_leftovers_of_killed_processes_are_swept(ada, folder, monkeypatch):
    answer_inspections(monkeypatch, ACCEPTED)
    old, new = folder / ".incoming-old", folder / ".incoming-new"
    for left in (old, new):
        left.mkdir(parents=True)

    os.utime(old, (0, 0))
    services.create_benchmark(ada, name="sums", file=jsonl())
    assert not old.exists()
    assert new.exists()


def test_other_users_benchmark_is_404(client, ada, folder, monkeypatch):
    answer_inspections(monkeypatch, ACCEPTED)
    row = services.create_benchmark(make_user("bob"), name="secret", file=jsonl())
    assert client.get(f"/benchmarks/{row.pk}").status_code == 404
    assert b"secret" not in client.get("/benchmarks/").content


def test_empty_list_says_what_to_do(client, ada):
    assert b'href="/benchmarks/new"' in client.get("/benchmarks/").content


def test_files_are_for_the_server_alone(ada, folder, monkeypatch):
    answer_inspections(monkeypatch, ACCEPTED)
    row = services.create_benchmark(ada, name="sums", file=SimpleUploadedFile("q", io.BytesIO(b"{}").getvalue()))
    assert folder.stat().st_mode & 0o077 == 0
    assert Path(row.train_path).parent.stat().st_mode & 0o077 == 0
