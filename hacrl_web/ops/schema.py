"""The database beside the code: older, newer or equal; and how one process at a time brings it up to date."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

_LOCK_NUMBER = 2_603_02604  # of PostgreSQL's advisory locks: any number that nobody else uses


class NewerDatabase(Exception):
    """A version whose migrations this code does not have has migrated the database; the text says what to do."""


def pending() -> list[str]:
    """Migrations of this code that the database has not had."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def refuse_newer() -> None:
    """Error: NewerDatabase, where it has had migrations that this code does not know, or only some of those that one
    migration of this code stands for."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    for migration in MigrationLoader(None).disk_migrations.values():
        missing = [f"{app}.{name}" for app, name in migration.replaces if (app, name) not in applied]
        if 0 < len(missing) < len(migration.replaces):
            raise NewerDatabase(
                f"The database is of a version before 0.1.0 ({missing[0]} has not run): start version 0.1.0 "
                "on it once, then this one."
            )
    loader = MigrationExecutor(connection).loader
    apps = {app for app, _ in loader.disk_migrations}
    own_migrations = set(loader.disk_migrations) | {
        one for each in loader.disk_migrations.values() for one in each.replaces
    }
    unknown = sorted(f"{app}.{name}" for app, name in set(loader.applied_migrations) - own_migrations if app in apps)
    if unknown:
        raise NewerDatabase(
            f"The database is of a newer version ({unknown[-1]} is unknown here): start that version, or restore the "
            "backup made before the upgrade."
        )


def bring_up_to_date() -> None:
    """Migrate; others who want to at the same time wait, and then find nothing to do. Error: NewerDatabase."""
    with _alone():
        refuse_newer()
        call_command("migrate", interactive=False, skip_checks=True)


@contextmanager
def _alone() -> Iterator[None]:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK_NUMBER])
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_NUMBER])
        return
    descriptor = os.open(Path(settings.DATA_DIR) / "migrate.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
