"""Adding a benchmark in two steps, and its own page: paging, search, trying an answer, delete."""

from __future__ import annotations

import html
import io
import json
import os
import re
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from hacrl_web.registry.base.children import IMPORTER, VERIFIER
from hacrl_web.registry.benchmarks import questions, uploads
from hacrl_web.registry.benchmarks import service as benchmarks
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.models import Run, State
from tests.support.web.factories import make_run
from tests.support.web.registry_help import field_error, jsonl, make_user
from tests.workers.questions.test_hub_files import COMMIT, served_hub
from workers.questions import canonical, files

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forked_children")]
JSON = {"HTTP_ACCEPT": "application/json"}
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "benchmarks"
CSV = "problem,solution,level\n" + "".join(f'"What is {n}+1?","so it is #### {n + 1}",{n % 3}\n' for n in range(20))
MAPPED = {
    "name": "Sums",
    "question_field": "problem",
    "answer_field": "solution",
    "answer_extraction": "hashes",
    "subject_field": "",
    "difficulty_field": "level",
    "id_field": "",
    "verifier": "math",
    "tolerance": "",
    "prompt_template": "Solve.\r\n{question}",
    "system_prompt": " You are a tutor.\r\nBe brief. ",
    "held_out_fraction": "0.1",
}


@pytest.fixture(autouse=True)
def _local_data(tmp_path, settings):
    """Where local data sets may lie."""
    settings.MODEL_ROOTS = [tmp_path / "models", settings.MODELS_DIR]
    (tmp_path / "models").mkdir()


def csv_file(content: str = CSV, name: str = "sums.csv") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content.encode())


def upload(client, file=None, **more) -> str:
    """The address of the second step."""
    response = client.post("/benchmarks/new", {"file": file or csv_file(), **more})
    assert response.status_code == 302, response.content.decode()
    return response["Location"]


def make(owner, count: int = 120, **fields) -> Benchmark:
    rows = [
        {"question": f"What is {n}+1?", "answer": n + 1, "subject": "AB"[n % 2], "difficulty": str(n % 3)}
        for n in range(count)
    ]
    asked = {"name": "sums", "subject_field": "subject", "difficulty_field": "difficulty", "held_out_fraction": 0}
    return benchmarks.create_benchmark(owner, file=jsonl(rows), **{**asked, **fields})


def shown_questions(page: str) -> list[int]:
    """The numbers n of the questions "What is n+1?" in the table."""
    return [int(n) for n in re.findall(r">What is (\d+)\+1\?</div>", page)]


# Two steps


def test_columns_are_shown_with_a_guess_and_nothing_is_registered_yet(client, ada):
    page = client.get(upload(client)).content.decode()
    assert Benchmark.objects.count() == 0
    assert "What is 0+1?" in page
    assert '<option value="problem" selected>problem</option>' in page
    assert '<option value="solution" selected>solution</option>' in page
    assert '<option value="hashes" selected>' in page
    assert '<option value="level" selected>level</option>' in page
    assert 'value="sums"' in page, "the file's name is proposed"


def test_mapping_makes_the_benchmark_and_the_files_are_gone(client, ada, folder):
    response = client.post(upload(client), MAPPED)
    row = Benchmark.objects.get()
    assert response["Location"] == f"/benchmarks/{row.pk}"
    assert (row.num_train + row.num_held_out, row.source) == (20, "sums.csv")
    assert row.prompt_template == "Solve.\n{question}"
    assert row.system_prompt == data_values(row)["system_prompt"] == "You are a tutor.\nBe brief."
    assert "You are a tutor." in client.get(row.get_absolute_url()).content.decode()
    first = json.loads(Path(row.train_path).read_text().splitlines()[0])
    assert first | {"id": ""} == {"id": "", "question": "What is 0+1?", "answer": "1", "subject": "", "difficulty": "0"}
    assert [path.name for path in folder.iterdir()] == [str(row.pk)]
    page = client.get(response["Location"]).content.decode()
    assert "after the last" in page
    assert row.questions_sha in page


def test_extraction_is_chosen_with_the_mapping_and_reaches_a_run(client, ada, folder):
    address = upload(client)
    refused = client.post(address, MAPPED | {"verifier": "choice", "extraction": "flexible"})
    assert refused.status_code == 422
    assert "choose strict for choice" in refused.content.decode()
    client.post(address, MAPPED | {"extraction": "flexible"})
    row = Benchmark.objects.get()
    assert row.extraction == data_values(row)["extraction"] == "flexible"
    assert "else the last number" in client.get(row.get_absolute_url()).content.decode()
    tried = client.post(f"/api/v1/benchmarks/{row.pk}/try", {"gold": "42", "response": "so she has 42 left"},
                        content_type="application/json")  # fmt: skip
    assert (tried.json()["reward"], tried.json()["extracted"]) == (1.0, "42")


def test_parquet_is_read_within_the_childs_limits(client, ada, real_children):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    import pyarrow

    columns = {"problem": ["a", "b"], "solution": ["#### 1", "#### 2"], "level": [1.0, 2.5], "image": [b"\xff", None]}
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), written)
    address = upload(client, SimpleUploadedFile("sums.parquet", written.getvalue()))
    client.post(address, MAPPED)
    assert Benchmark.objects.get().facts["difficulties"] == {"1": 1, "2.5": 1}
    response = client.post("/benchmarks/new", {"file": SimpleUploadedFile("cut.parquet", written.getvalue()[:-9])})
    assert "cut.parquet: a damaged Parquet file" in field_error(response, "file")


def test_wrong_mapping_is_said_beside_its_column_and_can_be_mended(client, ada):
    address = upload(client)
    response = client.post(address, {**MAPPED, "answer_extraction": "boxed"})
    assert response.status_code == 422
    assert "sums.csv, line 2: &#x27;solution&#x27; has no \\boxed{}" in field_error(response, "answer_field")
    response = client.post(address, {**MAPPED, "difficulty_field": "solution", "prompt_template": "Solve"})
    assert "must contain {question}" in field_error(response, "prompt_template")
    assert Benchmark.objects.count() == 0
    assert client.post(address, MAPPED).status_code == 302


def test_script_is_answered_in_json(client, ada):
    response = client.post("/benchmarks/new", {"file": csv_file()}, **JSON)
    address = response.json()["location"]
    response = client.post(address, {**MAPPED, "name": ""}, **JSON)
    assert response.status_code == 422
    assert [(error["field"], error["code"]) for error in response.json()["errors"]] == [("name", "missing")]
    assert client.post(address, MAPPED, **JSON).json()["location"] == Benchmark.objects.get().get_absolute_url()
    refused = client.post("/benchmarks/new", {"file": csv_file("", "empty.csv")}, **JSON)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "file")


def test_held_out_file_of_its_own(client, ada):
    held_out = csv_file('problem,solution,level\n"Held out","#### 1",2\n', "test.csv")
    address = upload(client, held_out_file=held_out)
    page = client.get(address).content.decode()
    assert "held_out_fraction" not in page
    assert "test.csv" in page
    client.post(address, MAPPED)
    row = Benchmark.objects.get()
    assert (row.num_train, row.num_held_out, row.held_out_fraction) == (20, 1, 0)
    page = client.get(f"/benchmarks/{row.pk}?file=held_out").content.decode()
    assert ">Held out</div>" in page


def test_staged_files_are_the_owners_and_wait_for_an_hour(client, ada, folder):
    address = upload(client)
    client.force_login(make_user("bob"))
    for path in (address, f"{address}/discard"):
        assert client.post(path, MAPPED).status_code == 404
    client.force_login(ada)
    assert client.get(address).status_code == 200
    os.utime(next(folder.iterdir()), (0, 0))
    uploads.stage(ada).discard()
    assert client.get(address).status_code == 404


@pytest.mark.parametrize("token", ["..", "x", "0" * 32, "0" * 33, "%2e%2e", "*" * 32, "\u0660" * 32])
def test_odd_names_of_staged_files_are_not_there(client, ada, token):
    upload(client)
    assert client.get(f"/benchmarks/new/{token}").status_code in (404, 301)
    assert uploads.find_upload(ada, token) is None


def test_discarded_files_are_gone(client, ada, folder):
    address = upload(client)
    assert client.post(f"{address}/discard")["Location"] == "/benchmarks/new"
    assert list(folder.iterdir()) == []


def test_a_fourth_upload_takes_the_place_of_the_oldest(client, ada):
    addresses = [upload(client) for _ in range(3)]
    for age, address in enumerate(addresses):
        staged = uploads.find_upload(ada, address.rpartition("/")[2])
        os.utime(staged.folder, (staged.folder.stat().st_mtime - 100 + age,) * 2)
    addresses.append(upload(client))
    assert [client.get(address).status_code for address in addresses] == [404, 200, 200, 200]


def test_files_that_are_still_coming_in_are_not_taken_away(ada):
    coming = [uploads.stage(ada) for _ in range(5)]
    assert all(staged.folder.is_dir() for staged in coming)


def test_progress_is_that_of_the_users_own_newest_files(client, ada):
    assert client.get("/benchmarks/new/progress").json() == {}
    staged = uploads.find_upload(ada, upload(client).rpartition("/")[2])
    told = {"phase": "reading", "share": 0.5, "rows": 10}
    (staged.folder / uploads.PROGRESS).write_text(json.dumps(told))
    assert client.get("/benchmarks/new/progress").json() == told
    (staged.folder / uploads.PROGRESS).write_text('{"pha')
    assert client.get("/benchmarks/new/progress").json() == {}
    client.force_login(make_user("bob"))
    assert client.get("/benchmarks/new/progress").json() == {}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # Each line alone is allowed: all of their keys would stand in five menus of the page.
        ([{f"{line}-{key}": 1 for key in range(400)} for line in range(2)], "800 columns in its first 100 rows"),
        ([{"question": "q", "answer": "1", "x" * 121: "1"}], "a column's name has 121 characters, 120 at most"),
    ],
)
def test_columns_that_no_page_could_offer_are_refused(client, ada, folder, lines, said):
    answer = client.post("/benchmarks/new", {"file": jsonl(lines)})
    assert answer.status_code == 422
    assert said in html.unescape(answer.content.decode())
    assert list(folder.iterdir()) == []


def test_files_that_another_tab_uses_up_meanwhile_are_said_to_be_gone(client, ada, folder, monkeypatch):
    address = upload(client)
    staged = uploads.find_upload(ada, address.rpartition("/")[2])
    turn = IMPORTER.turns.acquire

    def wait_for_a_turn(**limits) -> bool:
        if staged.folder.is_dir():
            staged.discard()
        return turn(**limits)

    monkeypatch.setattr(IMPORTER.turns, "acquire", wait_for_a_turn)
    answer = client.post(address, MAPPED)
    assert answer.status_code == 409
    assert "another tab has used or discarded them" in answer.content.decode()
    assert not Benchmark.objects.exists()
    assert list(folder.iterdir()) == []


def test_column_names_and_cells_are_text(client, ada):
    page = client.get(upload(client, csv_file("<b>q</b>,</script>\n<img src=x>,1\n"))).content.decode()
    assert "<b>q" not in page
    assert "<img src=x" not in page
    assert page.count("</script>") == len(re.findall("<script", page))


# Other sources


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"built_in": "imagenet"}, "built_in"),
        ({"kind": "hub", "location": "../etc"}, "location"),
        ({"kind": "hub", "location": "owner/sums", "revision": "--x"}, "revision"),
        ({"kind": "local", "location": "/etc/passwd"}, "location"),
        ({"kind": "local", "location": ""}, "location"),
    ],
)
def test_source_that_cannot_be_is_refused_without_a_child(client, ada, monkeypatch, asked, field):
    monkeypatch.setattr(IMPORTER, "run", lambda *_: pytest.fail("no child is needed"))
    response = client.post("/benchmarks/new/fetch", asked, **JSON)
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert client.post("/benchmarks/new/fetch", asked).status_code == response.status_code == 422


def test_built_in_benchmark_is_fetched_at_a_commit_that_is_kept(client, ada, monkeypatch, tmp_path):
    lines = {
        side: jsonl([{"question": f"{side} {n}", "answer": f"so #### {n}"} for n in range(count)]).read()
        for side, count in (("train", 6), ("test", 3))
    }
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with served_hub({f"main/{side}-0.jsonl": content for side, content in lines.items()}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        address = client.post("/benchmarks/new/fetch", {"built_in": "gsm8k"}, **JSON).json()["location"]
        page = client.get(address).content.decode()
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
        refused = client.post("/benchmarks/new/fetch", {"built_in": "math-500"}, **JSON)
    assert '<option value="hashes" selected>' in page
    assert 'value="GSM8K"' in page
    columns = {"question_field": "question", "answer_field": "answer", "difficulty_field": ""}
    client.post(address, MAPPED | columns)
    row = Benchmark.objects.get()
    assert (row.num_train, row.num_held_out, row.source) == (6, 3, f"openai/gsm8k at {COMMIT}")
    [error] = refused.json()["errors"]
    assert error["message"].startswith("Could not reach the hub for HuggingFaceH4/MATH-500 (within 10 s, 2 tries; ")


def test_local_folder_is_staged_like_an_upload(client, ada, settings):
    place = settings.MODEL_ROOTS[0] / "gsm8k"
    (place / "main").mkdir(parents=True)
    for side, count in (("train", 5), ("test", 2)):
        rows = [{"question": f"{side} {n}", "answer": f"#### {n}"} for n in range(count)]
        (place / "main" / f"{side}.jsonl").write_bytes(jsonl(rows).read())
    response = client.post("/benchmarks/new/fetch", {"kind": "local", "location": str(place)})
    client.post(
        response["Location"], {**MAPPED, "question_field": "question", "answer_field": "answer", "difficulty_field": ""}
    )
    row = Benchmark.objects.get()
    assert (row.num_train, row.num_held_out, row.source) == (5, 2, "gsm8k")


def test_built_in_benchmark_from_a_local_copy_by_the_api(client, ada, settings):
    place = settings.MODEL_ROOTS[0] / "math500.jsonl"
    rows = [
        {"problem": f"p {n}", "answer": n, "subject": "Algebra", "level": 1, "unique_id": f"a/{n}"} for n in range(6)
    ]
    place.write_bytes(jsonl(rows).read())
    body = {"built_in": "math-500", "location": str(place)}
    response = client.post("/api/v1/benchmarks/built-in", body, content_type="application/json")
    assert response.status_code == 201, response.content
    found = response.json()
    assert (found["name"], found["num_train"], found["num_held_out"]) == ("MATH-500", 6, 0)
    assert found["facts"]["difficulties"] == {"1": 6}
    assert found["prompt_template"].endswith("put your final answer within \\boxed{}.")  # which the verifier reads
    assert json.loads(Path(Benchmark.objects.get().train_path).read_text().splitlines()[0])["id"] == "a/0"
    keys = [entry["key"] for entry in client.get("/api/v1/benchmarks/built-in").json()]
    assert keys[:7] == ["math-500", "math", "gsm8k", "aime2025", "amc23", "minerva", "olympiadbench"]


@pytest.mark.parametrize("key", ["math-500", "aime2025", "amc23", "minerva", "olympiadbench"])
def test_built_in_benchmarks_accept_the_local_copies(client, ada, settings, key):
    name = {"math-500": "math500", "minerva": "minerva_math", "olympiadbench": "olympiad_bench"}.get(key, key)
    if not (SHARED / f"{name}.jsonl").is_file():
        pytest.skip("the benchmark files lie beside the repository only where it is developed")
    settings.MODEL_ROOTS = [SHARED]
    body = {"built_in": key, "location": str(SHARED / f"{name}.jsonl")}
    response = client.post("/api/v1/benchmarks/built-in", body, content_type="application/json")
    assert response.status_code == 201, response.content
    count = json.loads((SHARED / "MANIFEST.json").read_text())[name]["count"]
    assert response.json()["num_train"] + response.json()["facts"]["num_repeated"] == count


# The page of a benchmark


def test_questions_come_in_pages_from_the_index(client, ada):
    row = make(ada)
    page = client.get(f"/benchmarks/{row.pk}").content.decode()
    assert shown_questions(page) == list(range(50))
    assert 'href="?start=50#questions"' in page
    page = client.get(f"/benchmarks/{row.pk}?start=100").content.decode()
    assert shown_questions(page) == list(range(100, 120))
    assert 'href="?start=50#questions"' in page
    assert "start=150" not in page
    assert shown_questions(client.get(f"/benchmarks/{row.pk}?start=73").content.decode()) == list(range(73, 120))[:50]
    assert shown_questions(client.get(f"/benchmarks/{row.pk}?start=99999999").content.decode()) == []


def test_both_sides_know_the_same_index_and_endings():
    assert questions.LINES_PER_INDEX == canonical.LINES_PER_INDEX
    assert questions.OTHER_SLICES == canonical.OTHER_SLICES
    assert uploads.SUFFIXES == files.SUFFIXES


def test_search_and_slices_find_what_holds_them(client, ada):
    row = make(ada)
    page = client.get(f"/benchmarks/{row.pk}?q=is+11").content.decode()
    assert shown_questions(page) == [11, *range(110, 120)]
    page = client.get(f"/benchmarks/{row.pk}?subject=B&difficulty=0").content.decode()
    assert shown_questions(page) == [n for n in range(120) if n % 2 and n % 3 == 0]
    assert "Nothing found." in client.get(f"/benchmarks/{row.pk}?q=absent").content.decode()
    assert ">A · 60</a>" in page


def test_subjects_that_are_not_counted_by_name_are_found_together(client, ada):
    count = canonical.MAX_SLICES + 3
    rows = [{"question": f"What is {n}+1?", "answer": n + 1, "subject": f"S{n}"} for n in range(count)]
    row = benchmarks.create_benchmark(ada, file=jsonl(rows), name="many", subject_field="subject")
    assert row.facts["subjects"][questions.OTHER_SLICES] == 3
    assert "<summary>201 subjects</summary>" in client.get(f"/benchmarks/{row.pk}").content.decode()
    page = client.get(f"/benchmarks/{row.pk}?subject={questions.OTHER_SLICES}").content.decode()
    assert shown_questions(page) == [canonical.MAX_SLICES + n for n in range(3)]


def test_search_that_runs_out_of_time_goes_on_where_it_stopped(client, ada, monkeypatch):
    row = make(ada)
    monkeypatch.setattr(questions, "SEARCH_S", -1.0)
    page = client.get(f"/benchmarks/{row.pk}?q=99").content.decode()
    assert "Nothing found so far." in page
    assert 'href="?q=99&amp;start=1#questions"' in page


def test_held_out_questions_of_a_share_are_marked(client, ada):
    row = make(ada, held_out_fraction=0.3)
    page = client.get(f"/api/v1/benchmarks/{row.pk}/questions").json()
    second = client.get(f"/api/v1/benchmarks/{row.pk}/questions?start={page['next_start']}").json()
    third = client.get(f"/api/v1/benchmarks/{row.pk}/questions?start={second['next_start']}").json()
    marked = [item for part in (page, second, third) for item in part["items"] if item["is_held_out"]]
    assert len(marked) == row.num_held_out > 0
    assert third["next_start"] is None


def test_benchmark_of_an_earlier_version_is_shown(client, ada, tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text('{"q": "What is 1+1?", "a": 2.50}\n\n{"q": "What is 2+1?", "a": "3"}')
    row = Benchmark.objects.create(owner=ada, name="old", train_path=str(path), question_field="q", answer_field="a")
    page = client.get(f"/benchmarks/{row.pk}").content.decode()
    assert shown_questions(page) == [1, 2]
    assert ">2.50</div>" in page


def test_missing_question_file_is_said(client, ada):
    row = Benchmark.objects.create(owner=ada, name="gone", train_path="/nowhere/q.jsonl")
    assert "cannot be read" in client.get(f"/benchmarks/{row.pk}").content.decode()
    assert client.get(f"/api/v1/benchmarks/{row.pk}/questions").status_code == 409


# Trying an answer


def test_answer_is_tried_by_the_real_verifier(client, ada, real_children):
    row = make(ada)
    page = client.get(f"/benchmarks/{row.pk}?try=41").content.decode()
    assert ">42</textarea>" in page
    tried = {"gold": "42", "response": "Hence \\boxed{42.0}."}
    page = client.post(f"/benchmarks/{row.pk}/try", tried).content.decode()
    assert "</svg>correct</span>" in page
    assert "<code>42.0</code>" in page
    assert re.search(r"<dt>Time</dt><dd>(under 1 ms|[\d.]+ s)</dd>", page)  # nobody reads 3.5e-5 s
    page = client.post(
        f"/benchmarks/{row.pk}/try", tried | {"response": "no idea"}, HTTP_HX_REQUEST="true"
    ).content.decode()
    assert "</svg>incorrect</span>" in page
    assert "<html" not in page
    found = client.post(
        f"/api/v1/benchmarks/{row.pk}/try", {"gold": "1/2", "response": "\\boxed{0.5}"}, content_type="application/json"
    ).json()
    assert (found["reward"], found["extracted"]) == (1.0, "0.5")
    assert found["seconds"] >= 0


@pytest.mark.parametrize(
    ("field", "value"), [("gold", ""), ("gold", " "), ("response", ""), ("response", "x" * 100_001), ("gold", "\x00")]
)
def test_try_without_texts_is_refused_without_a_child(client, ada, monkeypatch, field, value):
    row = make(ada, count=3)
    monkeypatch.setattr(VERIFIER, "run", lambda *_: pytest.fail("no child is needed"))
    response = client.post(f"/benchmarks/{row.pk}/try", {"gold": "1", "response": "1", field: value})
    assert response.status_code == 422
    body = json.dumps({"gold": "1", "response": "1", field: value})
    refused = client.post(f"/api/v1/benchmarks/{row.pk}/try", body, content_type="application/json")
    assert refused.json()["error"]["field"] == field


# Launch and delete


def test_delete_names_what_is_lost_and_removes_row_and_files(client, ada, folder, django_capture_on_commit_callbacks):
    row = make(ada)
    page = client.get(f"/benchmarks/{row.pk}/delete").content.decode()
    assert "120, " in page
    assert "none used it" in page
    with django_capture_on_commit_callbacks(execute=True):
        assert client.post(f"/benchmarks/{row.pk}/delete")["Location"] == "/benchmarks/"
    assert Benchmark.objects.count() == 0
    assert list(folder.iterdir()) == []


def test_benchmark_that_a_run_still_needs_is_kept(client, ada, folder):
    row, other = make(ada, count=10), make(ada, count=10, name="other")
    run = make_run(ada, benchmark=row.pk)
    further = make_run(ada, benchmark=other.pk)
    Run.objects.filter(pk=further.pk).update(
        spec=further.spec | {"evaluation": {"benchmarks": [{"path": row.train_path}]}}
    )
    response = client.post(f"/benchmarks/{row.pk}/delete")
    assert response.status_code == 409
    assert "2 runs that have not ended need this benchmark" in response.content.decode()
    refused = client.post(f"/api/v1/benchmarks/{row.pk}/delete", {}, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "in_use")
    assert Path(row.train_path).is_file()
    Run.objects.update(state=State.COMPLETED)
    assert client.post(f"/api/v1/benchmarks/{row.pk}/delete", {}, content_type="application/json").status_code == 204
    run.refresh_from_db()
    assert run.benchmark is None


def test_files_that_were_not_made_here_are_left_alone(ada, tmp_path, folder):
    path = tmp_path / "mine.jsonl"
    path.write_text("{}")
    benchmarks.remove_files(Benchmark.objects.create(owner=ada, name="old", train_path=str(path)))
    assert path.is_file()
