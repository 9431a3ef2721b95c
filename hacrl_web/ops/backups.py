"""Backs the database up to one file, and restores it. Runs, models, benchmarks and reward functions are folders that
any tool copies."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection

from hacrl_web.ops.preflight import ROOT, lock_holder

RESTORE = ROOT / "docker" / "restore.sh"  # the same for deployments in containers
LEAVE_S = 2.0  # so long the server may still count a program that has just ended


class BackupError(CommandError):
    """A backup or restore fails and changes nothing; the text says why and what to do."""


def back_up(path: Path) -> None:
    """Write the database to a new file; the product may run. Error: BackupError."""
    if path.exists():
        raise BackupError(f"{path} exists: name a new file.")
    part = path.with_name(f"{path.name}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))  # it contains password hashes
        if connection.vendor == "sqlite":
            with (
                closing(sqlite3.connect(connection.settings_dict["NAME"])) as source,
                closing(sqlite3.connect(part)) as copy,
            ):
                source.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # no -wal file beside it
        else:
            _dump_postgresql(part)
        part.replace(path)
    except OSError as error:
        raise BackupError(f"{path} cannot be written: {error.strerror}.") from None
    except sqlite3.Error as error:  # SQLite reports a full disk by its own errors
        raise BackupError(f"The database cannot be copied to {path}: {error}.") from None
    finally:
        with suppress(OSError):
            part.unlink()


def restore(path: Path) -> Path | None:
    """Replace the database by a backup; the product must be stopped. Error: BackupError.

    Returns the path of the replaced database: SQLite only.
    """
    if not path.is_file():
        raise BackupError(f"There is no file {path}.")
    if connection.vendor == "sqlite":
        return _restore_sqlite(path)
    _restore_postgresql(path)
    return None


def _restore_sqlite(path: Path) -> Path | None:
    holder = lock_holder(Path(settings.DATA_DIR))
    if holder is not None:
        raise BackupError(f"HACRL Web is running (pid {holder}): stop it first, ./hacrl down")
    _check_sqlite(path)
    database = Path(connection.settings_dict["NAME"])
    connection.close()
    new, old = database.with_name(f"{database.name}.new"), database.with_name(f"{database.name}.before-restore")
    try:
        shutil.copyfile(path, new)
        new.chmod(0o600)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise BackupError(f"{new} cannot be written: {error.strerror}.") from None
    replaced = None
    if database.exists():
        with closing(sqlite3.connect(database)) as current:
            current.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # moves the -wal file into the database
        database.replace(old)
        replaced = old
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    new.replace(database)
    return replaced


def _check_sqlite(path: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as copy:
            [[state]] = copy.execute("PRAGMA integrity_check").fetchmany(1)
            copy.execute("SELECT 1 FROM django_migrations LIMIT 1")
    except sqlite3.Error as error:
        raise BackupError(f"{path} is not a backup of our SQLite database: {error}.") from None
    if state != "ok":
        raise BackupError(f"{path} is damaged: {state}.")


def _dump_postgresql(path: Path) -> None:
    _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={path}")


def _restore_postgresql(path: Path) -> None:
    """Restore in one transaction, which is committed only if pg_restore has read the whole backup."""
    deadline = time.monotonic() + LEAVE_S
    while others := _other_connections():
        if time.monotonic() > deadline:
            what = "stop web, workers, dispatcher and watcher"
            raise BackupError(f"The database has {others} other connections: {what}.")
        time.sleep(0.05)
    connection.close()
    _run(str(RESTORE), str(path), "env")


def _other_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"  # not PostgreSQL's own workers, such as autovacuum
        )
        [others] = cursor.fetchone()
    return int(others)


def _run(*command: str) -> None:
    """A client program, or our script of them, with the database in its environment. Error: BackupError."""
    database: dict[str, Any] = connection.settings_dict
    names = {"HOST": "HOST", "PORT": "PORT", "USER": "USER", "PASSWORD": "PASSWORD", "DATABASE": "NAME"}
    own = {f"PG{name}": str(database[key]) for name, key in names.items() if database[key]}
    try:
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True)
    except OSError as error:
        raise BackupError(
            f"{error.filename} cannot be started ({error.strerror}): install PostgreSQL's client programs."
        ) from None
    if done.returncode:
        raise BackupError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-500:]}")
