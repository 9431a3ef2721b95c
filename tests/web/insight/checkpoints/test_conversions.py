"""GGUF files of agents: made in the background by a stand-in of llama.cpp's converter, downloaded, stopped, removed."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from django.urls import reverse

from hacrl_web.insight.checkpoints import conversions
from hacrl_web.insight.checkpoints.background import start_job
from hacrl_web.runs.archive.deletion import delete_run
from hacrl_web.runs.archive.remains import DeletedRuns
from hacrl_web.runs.models import Quota, Run, State
from hacrl_web.runs.worker.usage import UnmeasuredFiles
from hacrl_web.web.errors import FieldErrors
from tests.support.waiting import wait_until
from tests.support.web.factories import make_member, make_user
from tests.support.web.insight_help import add_checkpoint, claimed

pytestmark = pytest.mark.django_db
CONVERTER = """import pathlib, subprocess, sys, time
folder, kind = sys.argv[1], sys.argv[3]
assert sys.argv[2] == "--outtype" and sys.argv[4] == "--outfile"
out = pathlib.Path(sys.argv[5])
if kind == "f16":
    print("reading"); print("KeyError: no such tensor", file=sys.stderr); sys.exit(3)
if kind == "bf16":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", str(out)]).wait()
if kind == "q8_0":
    out.write_bytes(b"no model"); sys.exit(0)
if kind == "f32":
    sys.exit(0)
weights = (pathlib.Path(folder) / "weights.bin").read_bytes()
out.write_bytes(b"GGUF" + weights)
"""


@pytest.fixture
def owner(client):
    user = make_user()
    client.force_login(user)
    return user


@pytest.fixture
def run(owner, settings, tmp_path):
    run = claimed(owner)
    add_checkpoint(run, 5)
    settings.GGUF_CONVERTER = str(tmp_path)
    (tmp_path / "convert_hf_to_gguf.py").write_text(CONVERTER)
    return run


def convert(client, run, number_type="auto", **body):
    body = {"step": 5, "agent": 1, "number_type": number_type, **body}
    path = f"/api/v1/runs/{run.pk}/checkpoints/gguf"
    return client.post(path, json.dumps(body), content_type="application/json")


def ended(client, run):
    """The newest conversion once it has ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        (newest, *_) = client.get(f"/api/v1/runs/{run.pk}/gguf").json()["items"]
        if not newest["is_running"]:
            return newest
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_file_is_made_in_the_background_and_saved_under_its_name(client, run):
    assert convert(client, run).status_code == 202
    one = ended(client, run)
    (weights,) = (run.run_dir / "checkpoints" / "step-000005" / "agents").glob("1-*/weights.bin")
    content = b"GGUF" + weights.read_bytes()
    assert (one["error"], one["size_bytes"], one["agent"], one["step"]) == ("", len(content), "B", 5)
    for path in (f"/runs/{run.pk}/gguf/{one['key']}.gguf", f"/api/v1/runs/{run.pk}/gguf/{one['key']}/file"):
        answer = client.get(path)
        assert answer.getvalue() == content
        assert answer["Content-Disposition"] == f'attachment; filename="{one["name"]}"'
        assert answer["Content-Length"] == str(len(content))
    text = client.get(f"/runs/{run.pk}/checkpoints").content.decode()
    assert "Convert to GGUF" in text
    assert one["name"] in text


@pytest.mark.parametrize(
    ("number_type", "message"),
    [
        ("f16", "The converter ended with status 3: KeyError: no such tensor"),
        ("q8_0", "The converter's output is not a GGUF file."),
        ("f32", "The converter ended without a file."),
    ],
)
def test_failure_says_what_the_converter_said_and_leaves_no_file(client, run, number_type, message):
    convert(client, run, number_type)
    one = ended(client, run)
    assert (one["error"], one["size_bytes"]) == (message, 0)
    assert client.get(f"/runs/{run.pk}/gguf/{one['key']}.gguf").status_code == 404
    assert sorted(path.suffix for path in (run.run_dir / "gguf").iterdir()) == [".json", ".state"]


def test_converter_that_does_not_end_is_killed_at_the_limit(client, run, monkeypatch):
    monkeypatch.setattr(conversions, "TIME_LIMIT_S", 0.5)
    key = convert(client, run, "bf16").json()["key"]
    assert ended(client, run)["error"].startswith("The converter did not end within")
    assert nothing_runs_of(key)  # nor what the converter had started


def test_one_at_a_time_and_removing_ends_it_with_the_converter(client, run):
    key = convert(client, run, "bf16").json()["key"]
    busy = convert(client, run)
    assert (busy.status_code, "under way" in busy.json()["error"]["message"]) == (409, True)
    assert 'hx-trigger="every 2s"' in client.get(f"/runs/{run.pk}/gguf").content.decode()
    assert client.post(f"/runs/{run.pk}/gguf/{key}/remove").status_code == 302
    assert client.get(f"/api/v1/runs/{run.pk}/gguf").json()["items"] == []
    assert nothing_runs_of(key)
    assert client.delete(f"/api/v1/runs/{run.pk}/gguf/{key}").status_code == 404


def test_converter_ends_with_its_process_and_frees_the_lock(client, run):
    key = convert(client, run, "bf16").json()["key"]
    assert wait_until(lambda: sum(key in text for text in _commands()) == 2, 20)
    pid = json.loads((run.run_dir / "gguf" / f"{key}.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)  # that process alone
    assert "ended without an answer" in ended(client, run)["error"]
    assert wait_until(lambda: sum(key in text for text in _commands()) == 1, 5)
    os.killpg(pid, signal.SIGKILL)  # what the converter had started outlives it in this case
    assert convert(client, run).status_code == 202
    assert ended(client, run)["size_bytes"]


def test_two_requests_at_once_start_one_conversion(client, run, monkeypatch):
    """The second asks before the first has started its process, as another web process may."""
    answers = []

    def start_slowly(*arguments):
        if not answers:
            answers.append(None)
            answers[0] = convert(client, run).status_code
        return start_job(*arguments)

    monkeypatch.setattr(conversions, "END_S", 0.2)
    monkeypatch.setattr(conversions, "start_job", start_slowly)
    assert (convert(client, run).status_code, answers) == (202, [409])
    assert len(client.get(f"/api/v1/runs/{run.pk}/gguf").json()["items"]) == 1
    ended(client, run)


def test_file_counts_towards_the_quota_and_a_full_project_converts_nothing(client, run):
    def measured():
        UnmeasuredFiles().tick()
        run.refresh_from_db()
        return run.files_bytes

    before = measured()
    convert(client, run)
    size = ended(client, run)["size_bytes"]
    assert wait_until(lambda: measured() and run.files_changed_at is None, 5)
    with_file = run.files_bytes
    assert with_file >= (before or 0) + size
    key = convert(client, run, "bf16").json()["key"]
    measured()
    assert run.files_changed_at is not None  # measured again after its end
    Quota.objects.create(project=run.project, disk_gib=0)
    full = convert(client, run)
    assert (full.status_code, "delete some" in full.json()["error"]["message"]) == (409, True)
    for one in client.get(f"/api/v1/runs/{run.pk}/gguf").json()["items"]:
        assert client.delete(f"/api/v1/runs/{run.pk}/gguf/{one['key']}").status_code == 204
    run.refresh_from_db()
    assert run.files_bytes <= with_file - size
    assert nothing_runs_of(key)


def test_page_says_which_type_auto_became_and_what_the_file_is_for(client, run):
    convert(client, run)
    ended(client, run)
    page = reverse("insight:run_checkpoints", args=[run.pk])
    assert "For llama.cpp, Ollama and LM Studio" in client.get(page).content.decode()
    (state,) = (run.run_dir / "gguf").glob("*.state")
    state.write_text(json.dumps({**json.loads(state.read_text()), "weights": "bf16"}))
    assert "auto: bf16" in client.get(page).content.decode()


def test_run_is_not_deleted_while_a_file_is_made_of_it(client, owner, run):
    Run.objects.filter(pk=run.pk).update(state=State.COMPLETED)
    run.refresh_from_db()
    key = convert(client, run, "bf16").json()["key"]
    with pytest.raises(FieldErrors, match=r"A GGUF file of .* is being created: wait for it, or remove it"):
        delete_run(owner, run)
    assert run.run_dir.is_dir()
    client.delete(f"/api/v1/runs/{run.pk}/gguf/{key}")
    delete_run(owner, run)
    assert DeletedRuns().tick() == 1
    assert not run.run_dir.exists()


def nothing_runs_of(key):
    return wait_until(lambda: not any(key in text for text in _commands()), 5)


def _commands():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text(errors="replace")
        except OSError:
            continue


@pytest.mark.parametrize(
    ("body", "status"),
    [({"number_type": "f8"}, 422), ({"agent": 7}, 404), ({"step": 9}, 404), ({"agent": -1}, 422), ({"x": 1}, 422)],
)
def test_wrong_requests_are_refused_and_start_nothing(client, run, body, status):
    assert convert(client, run, **body).status_code == status
    assert not (run.run_dir / "gguf").exists()


def test_without_the_converter_and_without_disk_nothing_starts(client, run, settings, monkeypatch):
    monkeypatch.setattr(conversions, "SPARE_BYTES", 10**18)
    full = convert(client, run)
    assert (full.status_code, "of the disk are free" in full.json()["error"]["message"]) == (507, True)
    settings.GGUF_CONVERTER = "/none"
    answer = convert(client, run)
    assert (answer.status_code, "HACRL_GGUF_CONVERTER" in answer.json()["error"]["message"]) == (409, True)


def test_viewers_download_and_convert_nothing(client, run):
    convert(client, run)
    one = ended(client, run)
    client.force_login(make_member(run.project, "viewer"))
    assert client.get(f"/runs/{run.pk}/gguf/{one['key']}.gguf").status_code == 200
    assert convert(client, run).status_code == 403
    assert client.post(f"/runs/{run.pk}/gguf/{one['key']}/remove").status_code == 403
    assert "Convert to GGUF" not in client.get(reverse("insight:run_checkpoints", args=[run.pk])).content.decode()


@pytest.mark.parametrize("key", ["x", "00000000000000000001-00000000", "a" * 300])
def test_unknown_keys_are_not_found(client, run, key):
    assert client.get(f"/runs/{run.pk}/gguf/{key}.gguf").status_code == 404
    assert client.get(f"/api/v1/runs/{run.pk}/gguf/{key}/file").status_code == 404
    assert client.post(f"/runs/{run.pk}/gguf/{key}/remove").status_code == 404


def test_run_keeps_so_many_files_and_one_removed_makes_room(client, run, monkeypatch):
    monkeypatch.setattr(conversions, "MAX_KEPT", 1)
    assert convert(client, run).status_code == 202
    one = ended(client, run)
    answer = convert(client, run)
    assert answer.status_code == 409
    assert "This run has 1 conversions, and at most 1 are kept: remove one first." in answer.content.decode()
    assert client.delete(f"/api/v1/runs/{run.pk}/gguf/{one['key']}").status_code == 204
    assert convert(client, run).status_code == 202
    ended(client, run)
