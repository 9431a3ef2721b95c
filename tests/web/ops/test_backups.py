"""Backup and restore of the database, their refusals, and databases newer or older than the code."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from hacrl_web.ops import schema
from hacrl_web.ops.backups import BackupError, back_up, restore
from hacrl_web.ops.preflight import ROOT, take_lock
from tests.support.postgres import GET_IT, binaries, private_postgresql

# One process: each start of Django takes a second.
STORY = """
import sys
import django
django.setup()
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection

def refused(*words):
    try:
        call_command(*words)
    except CommandError as error:
        print("refused:", error)

file, text, part = sys.argv[1:]
users = get_user_model().objects
call_command("prepare_database", verbosity=0)
users.create_user("before")
call_command("backup", file)
refused("backup", file)
refused("restore", text)
users.create_user("after")
users.filter(username="before").delete()
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE of_a_newer_version (run uuid REFERENCES runs_run)")
whole = open(file, "rb").read()
open(part, "wb").write(whole[: len(whole) * 3 // 4])
refused("restore", part)
print([*users.values_list("username", flat=True)], "of_a_newer_version" in connection.introspection.table_names())
call_command("restore", file)
print([*users.values_list("username", flat=True)], "of_a_newer_version" in connection.introspection.table_names())
call_command("prepare_database", "--follow")
"""


def told(tmp_path: Path, **more: str) -> list[str]:
    """The refusals of the story, whose restored database must equal the one at the backup."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    own = {"HACRL_DATA": str(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}
    (tmp_path / "text").write_text("no database")
    command = [sys.executable, "-c", STORY, *(str(tmp_path / name) for name in ("backup", "text", "part"))]
    done = subprocess.run(command, cwd=ROOT, env=kept | own | more, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    assert lines[-3] == "['after'] True"  # nothing was replaced
    assert lines[-2].startswith("Restored.")
    assert lines[-1] == "['before'] False"
    refusals = [line for line in lines if line.startswith("refused: ")]
    assert refusals[0] == f"refused: {tmp_path / 'backup'} exists: name a new file."
    return refusals


def small_database(path: Path) -> Path:
    database = sqlite3.connect(path)
    database.executescript("CREATE TABLE django_migrations (text); INSERT INTO django_migrations VALUES ('x')")
    database.close()
    return path


def test_full_disk_ends_a_backup_with_one_sentence_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "NAME", str(small_database(tmp_path / "db.sqlite3")))
    monkeypatch.setattr(connection, "vendor", "sqlite")
    connect = sqlite3.connect

    def full(path, **options):
        opened = connect(path, **options)
        if str(path).endswith(".part"):
            opened.execute("PRAGMA max_page_count = 1")  # as if the disk had room for one page
        return opened

    monkeypatch.setattr(sqlite3, "connect", full)
    path = tmp_path / "backup"
    with pytest.raises(BackupError) as refused:
        back_up(path)
    assert str(refused.value) == f"The database cannot be copied to {path}: database or disk is full."
    assert [one.name for one in tmp_path.iterdir()] == ["db.sqlite3"]


def test_full_disk_ends_a_restore_with_one_sentence_and_the_old_database(tmp_path, monkeypatch, settings):
    settings.DATA_DIR = tmp_path
    database, backup = small_database(tmp_path / "db.sqlite3"), small_database(tmp_path / "backup")
    before = database.read_bytes()
    monkeypatch.setitem(connection.settings_dict, "NAME", str(database))
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setattr(connection, "close", lambda: None)

    def full(source, target):
        Path(target).write_bytes(b"a part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(BackupError, match=r"db.sqlite3.new cannot be written: No space left on device.$"):
        restore(backup)
    assert database.read_bytes() == before
    assert not (tmp_path / "db.sqlite3.new").exists()


@pytest.mark.slow
def test_sqlite_is_restored_from_its_backup(tmp_path):
    [_, text, part] = told(tmp_path)
    assert "is not a backup of our SQLite database" in text
    assert "database disk image is malformed" in part
    assert (tmp_path / "data" / "db.sqlite3.before-restore").exists()


@pytest.mark.slow
def test_postgresql_is_restored_from_its_backup(tmp_path):
    folder = binaries()
    if folder is None:
        pytest.skip(f"PostgreSQL is not here: {GET_IT}")
    with private_postgresql() as url:
        [_, text, part] = told(tmp_path, DATABASE_URL=url, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert "restore.sh failed: pg_restore: error: input file does not appear to be a valid archive" in text
    assert "restore.sh failed" in part


@pytest.fixture
def container(tmp_path):
    """Words that run a client program with a database named hacrl, whose account has all rights, and its folder."""
    folder = binaries()
    if folder is None:
        pytest.skip(f"PostgreSQL is not here: {GET_IT}")
    with private_postgresql() as url:
        host = unquote(url.partition("@")[2].partition("/")[0])
        words = ["env", f"PGHOST={host}", f"PATH={folder}{os.pathsep}{os.environ['PATH']}"]
        subprocess.run([*words, "createdb", "-U", "hacrl", "hacrl"], check=True)
        yield words


def test_script_restores_onto_a_newer_database_or_changes_nothing(tmp_path, container):
    dump, part = tmp_path / "dump", tmp_path / "part"

    def sql(statements: str) -> str:
        command = [*container, "psql", "-U", "hacrl", "-d", "hacrl", "-qAtc", statements]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def script(path: Path) -> tuple[int, str]:
        done = subprocess.run(
            [ROOT / "docker" / "restore.sh", path, *container], capture_output=True, text=True, timeout=60
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()[-1]

    sql("CREATE TABLE run (id int PRIMARY KEY, text text); INSERT INTO run SELECT n, n FROM generate_series(1, 9999) n")
    subprocess.run([*container, "pg_dump", "-U", "hacrl", "-Fc", f"--file={dump}", "hacrl"], check=True)
    sql("DELETE FROM run WHERE id > 1; CREATE TABLE newer (run int REFERENCES run)")
    for text in (dump.read_bytes()[:-5000], b"no dump"):
        part.write_bytes(text)
        assert script(part) == (1, "Nothing was changed.")
        assert sql("SELECT count(*) FROM run") == "1"
        assert sql("SELECT count(*) FROM newer") == "0"
    assert script(dump) == (0, "Restored.")
    assert sql("SELECT count(*) FROM run") == "9999"
    assert sql("SELECT to_regclass('newer') IS NULL") == "t"
    assert script(tmp_path / "none")[0] == 2


def test_nothing_is_restored_under_a_running_product(settings, tmp_path, monkeypatch):
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr("hacrl_web.ops.backups.connection", SimpleNamespace(vendor="sqlite"))
    (tmp_path / "backup").write_text("")
    lock = take_lock(tmp_path)
    try:
        with pytest.raises(BackupError, match=r"running \(pid \d+\): stop it first"):
            restore(tmp_path / "backup")
    finally:
        os.close(lock)


@pytest.mark.django_db
def test_database_of_a_newer_version_is_refused():
    call_command("prepare_database", follow=True)
    MigrationRecorder(connection).record_applied("runs", "9999_of_tomorrow")
    for words in ({}, {"follow": True, "wait_s": 5.0}):
        with pytest.raises(CommandError, match=r"newer version \(runs.9999_of_tomorrow is unknown here\)"):
            call_command("prepare_database", **words)


@pytest.mark.django_db
def test_older_database_is_awaited_until_the_web_has_migrated_it(monkeypatch):
    answers = iter([["runs.0002"], ["runs.0002"], []])
    monkeypatch.setattr(schema, "pending", lambda: next(answers))
    monkeypatch.setattr("hacrl_web.runs.management.commands.prepare_database.RETRY_S", 0.01)
    call_command("prepare_database", follow=True, wait_s=5.0)
    monkeypatch.setattr(schema, "pending", lambda: ["runs.0002"])
    with pytest.raises(CommandError, match="older than this code: start the web of this version first"):
        call_command("prepare_database", follow=True)
