"""Full disks: named on every page and in each refusal, and what writes is paused. On a small file system if root."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
from collections import namedtuple
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.utils import timezone

from hacrl_web import body_limit
from hacrl_web.insight.bundle.importing import import_bundle
from hacrl_web.insight.checkpoints.reuse import removed_on_error
from hacrl_web.insight.checkpoints.uploads import start_job
from hacrl_web.ops import devices, disk_space
from hacrl_web.ops.disk_space import disk_error
from hacrl_web.registry.benchmarks import service as benchmarks
from hacrl_web.registry.benchmarks import uploads
from hacrl_web.runs.models import Host, Run
from hacrl_web.runs.models.quotas import waiting_reason
from hacrl_web.runs.worker import tasks
from hacrl_web.web.errors import FieldErrors
from tests.support.web.factories import make_run

GIB = 2**30
Usage = namedtuple("Usage", "f_frsize f_blocks f_bavail f_bfree f_files f_favail")


@pytest.fixture
def usage(monkeypatch):
    """Sets what all disks have: total and free GiB."""

    def put(total: float, free: float, files: int = 9) -> None:
        values = Usage(1, int(total * GIB), int(free * GIB), int(free * GIB), 9, files)
        monkeypatch.setattr(disk_space.os, "statvfs", lambda folder: values)
        monkeypatch.setattr(disk_space._looks, "at", float("-inf"))

    monkeypatch.setattr(disk_space, "_looks", disk_space._Looks())
    return put


def full(settings, free: str, total: str) -> str:
    return f"The disk of {settings.DATA_DIR} is full: {free} of {total} are free. No run starts and nothing new"


@pytest.mark.parametrize("path", ["/", "/runs/", "/models", "/workers", "/account"])
def test_every_page_names_the_disk_that_is_full_or_nearly_full(client, user, settings, usage, path):
    client.force_login(user)
    usage(100, 50)
    assert "data-disk" not in client.get(path, follow=True).content.decode()
    usage(100, 4)
    page = client.get(path, follow=True).content.decode()
    assert f"The disk of {settings.DATA_DIR} is nearly full: 4.0 GiB of 100 GiB are free." in page
    usage(100, 0.25)
    assert full(settings, "256 MiB", "100 GiB") in client.get(path, follow=True).content.decode()


def test_visitors_are_told_no_folders(client, db, usage):
    usage(100, 0)
    assert "data-disk" not in client.get("/login").content.decode()


def test_disk_without_room_for_another_file_is_full_and_a_large_one_has_room_below_2_percent(usage):
    usage(100, 50, files=0)
    assert disk_space.full_disk()
    usage(100_000, 600)
    assert not disk_space.full_disk()
    usage(1, 0.03)
    assert not disk_space.full_disk()


def test_disks_are_looked_at_once_in_5_s_and_a_look_that_hangs_holds_nothing_up(usage, monkeypatch):
    usage(100, 0)
    looks, hangs = [], threading.Event()
    real = disk_space._disks
    monkeypatch.setattr(disk_space, "_disks", lambda folders: looks.append(1) or real(folders))
    assert all(disk_space.full_disk() for _ in range(100))
    assert len(looks) == 1
    monkeypatch.setattr(disk_space, "LOOK_S", 0.1)
    monkeypatch.setattr(disk_space, "_disks", lambda folders: looks.append(1) or hangs.wait(60) or [])
    for _ in range(3):
        monkeypatch.setattr(disk_space._looks, "at", float("-inf"))
        assert disk_space.full_disk()  # as last seen
    assert len(looks) == 2, "one look at a time, and that one still hangs"
    hangs.set()


def test_queued_run_says_that_the_hosts_which_could_take_it_are_full(user, usage):
    run = make_run(user)
    usage(100, 0)
    reported = devices.disk(Path("/"))
    assert reported["full"] == disk_space.full_disk()
    usage(100, 50)
    assert devices.disk(Path("/"))["full"] == ""
    values = {"last_seen": timezone.now(), "devices": [reported]}
    full = Host.objects.create(name="a", data_folder="of a", **values)
    assert waiting_reason(run) == f"a takes no runs. {reported['full']}"
    Host.objects.create(name="b", **values)
    assert waiting_reason(run) == "a, b take no runs: their disks are full."
    Host.objects.create(name="c", drain="finish", **values | {"devices": []})
    Host.objects.create(name="d", devices=[])
    assert waiting_reason(run), "a host that is drained or silent takes no runs either"
    Host.objects.create(name="e", **values | {"devices": []})
    usage(100, 0)
    assert waiting_reason(run) == "", "the disk of the web's host does not matter then"
    Run.objects.filter(pk=run.pk).update(data_folder=full.data_folder)
    run.refresh_from_db()
    assert waiting_reason(run).startswith("a takes no runs.")


def test_no_run_starts_and_its_page_says_why(client, user, settings, usage):
    run = make_run(user)
    usage(100, 0)
    assert tasks.claim_next() is None
    assert waiting_reason(run).startswith(full(settings, "0 B", "100 GiB"))
    usage(100, 50)
    assert waiting_reason(run) == ""
    assert tasks.claim_next() == run


def test_uploads_imports_copies_and_jobs_are_refused_with_the_sentence(user, settings, usage, tmp_path):
    usage(100, 0)
    file = SimpleUploadedFile("q.jsonl", b'{"question": "1+1", "answer": "2"}\n')
    with pytest.raises(FieldErrors) as upload:
        benchmarks.create_benchmark(user, name="sums", file=file)
    with pytest.raises(FieldErrors) as job:
        start_job(tmp_path, "workers.hub.upload", {}, {})
    with pytest.raises(FieldErrors) as bundle:
        import_bundle(user, BytesIO(), 0)
    with pytest.raises(FieldErrors) as copy, removed_on_error(tmp_path / "copy"):
        raise AssertionError("nothing is copied")
    for refused in (upload.value, job.value, bundle.value, copy.value):
        assert (refused.status, refused.errors[0].code) == (507, "disk_full")
        assert refused.text.startswith(full(settings, "0 B", "100 GiB"))


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("database or disk is full"),
        OperationalError('could not extend file "base/5/16399": No space left on device'),
        NO_SPACE,
    ],
)
@pytest.mark.parametrize("path", ["/runs/", "/api/v1/runs"])
def test_error_of_a_full_disk_names_it(client, user, settings, usage, monkeypatch, error, path):
    client.force_login(user)
    usage(100, 0)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", fail)
    client.raise_request_exception = False
    answer = client.get(path)
    assert answer.status_code == 507
    if path.startswith("/api/"):
        assert answer.json()["error"]["code"] == "disk_full"
        assert answer.json()["error"]["message"].startswith(full(settings, "0 B", "100 GiB"))
    else:
        assert full(settings, "0 B", "100 GiB") in answer.content.decode()


def test_full_disk_of_a_database_server_is_not_one_of_ours(settings, usage):
    usage(100, 50)
    error = OperationalError('could not extend file "base/5/16399": No space left on device')
    settings.DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}}
    assert disk_error(error).text == disk_space.OF_THE_DATABASE_SERVER
    assert disk_error(OperationalError("database is locked")) is None
    assert disk_error(ValueError("the disk is full")) is None


async def test_body_that_no_disk_holds_is_a_507(settings, usage):
    usage(100, 0)
    sent = []

    async def application(scope, receive, send):
        raise NO_SPACE

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/api/v1/runs", "method": "POST", "headers": []}
    await body_limit.LimitBody(application)(scope, None, send)
    assert sent[0]["status"] == 507
    assert b'"disk_full"' in sent[1]["body"]


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 8 MiB with nothing on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_upload_onto_a_real_full_disk_is_refused_before_and_during_it(user, settings, small_disk, monkeypatch):
    monkeypatch.setattr(disk_space, "_looks", disk_space._Looks())
    settings.BENCHMARKS_DIR = small_disk / "benchmarks"
    settings.BENCHMARKS_DIR.mkdir()
    line = b'{"question": "1+1", "answer": "2"}\n'
    large = SimpleUploadedFile("q.jsonl", line * (9 * 2**20 // len(line)))
    with pytest.raises(FieldErrors) as during:  # there is room when it begins
        benchmarks.create_benchmark(user, name="sums", file=large)
    sentence = f"The disk of {settings.BENCHMARKS_DIR}"
    assert during.value.status == 507
    assert during.value.text.startswith(f"{sentence} is full: 0 B of 8.0 MiB are free.")
    assert list(settings.BENCHMARKS_DIR.iterdir()) == [], "what was written is gone"
    with contextlib.suppress(OSError), open(small_disk / "other", "wb") as file:
        file.write(b"0" * 2**23)
    monkeypatch.setattr(disk_space._looks, "at", float("-inf"))
    with pytest.raises(FieldErrors) as before:
        benchmarks.create_benchmark(user, name="sums", file=SimpleUploadedFile("q.jsonl", line))
    assert before.value.text.startswith(f"{sentence} is full: 0 B of 8.0 MiB are free.")
    (small_disk / "other").unlink()
    monkeypatch.setattr(disk_space._looks, "at", float("-inf"))
    with uploads.staging(user) as staged:
        uploads.store(SimpleUploadedFile("q.jsonl", line), staged, "train", "file")
