"""The tables of the tests' database in SQLite, copied from a file: to migrate takes each process five seconds."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import management
from django.core.management.sql import emit_post_migrate_signal
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "var" / "test-database"


def copy_instead_of_migrating() -> None:
    """The next `migrate` copies what an earlier one made of an empty database, unless a migration or an app changed."""
    call_command = management.call_command

    def migrate(*words: Any, **options: Any) -> None:
        management.call_command = call_command
        migrations = hashlib.sha256(" ".join(settings.INSTALLED_APPS).encode())
        for path in sorted((ROOT / "hacrl_web").rglob("migrations/*.py")):
            migrations.update(path.as_posix().encode() + path.read_bytes())
        KEPT.mkdir(parents=True, exist_ok=True)
        kept = KEPT / f"{migrations.hexdigest()}.sqlite3"
        connection.ensure_connection()
        with (KEPT / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if kept.exists():
                _copy(connection.Database.connect(kept), connection.connection)
                emit_post_migrate_signal(0, False, connection.alias)
                return
            call_command(*words, **options)
            for old in KEPT.glob("*.sqlite3"):
                old.unlink()
            part = kept.with_suffix(".part")
            part.unlink(missing_ok=True)
            _copy(connection.connection, connection.Database.connect(part))
            part.rename(kept)

    management.call_command = migrate


def _copy(source: Any, target: Any) -> None:
    source.backup(target)
    (source if target is connection.connection else target).close()
