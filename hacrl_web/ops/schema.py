"""Compares the migrations of the database with those of the code, and migrates in one process at a time."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps as installed
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

log = logging.getLogger(__name__)
_LOCK_NUMBER = 2_603_02604  # of a PostgreSQL advisory lock: any number without another use


class NewerDatabase(CommandError):
    """The database has migrations that this code does not have; the text says what to do."""


def pending() -> list[str]:
    """Migrations of this code that the database lacks."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def refuse_newer() -> None:
    """Error: NewerDatabase if the database has unknown migrations, or only a part of a squashed one."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    for migration in MigrationLoader(None).disk_migrations.values():
        missing = [f"{app}.{name}" for app, name in migration.replaces if (app, name) not in applied]
        if 0 < len(missing) < len(migration.replaces):
            raise NewerDatabase(
                f"The database is from before 26 November 2026 ({missing[0]} is missing): start the version of that "
                "day (commit ca894bb6) once, then this version."
            )
    loader = MigrationExecutor(connection).loader
    apps = {app for app, _ in loader.disk_migrations}
    replaced = {name for migration in loader.disk_migrations.values() for name in migration.replaces}
    foreign = set(loader.applied_migrations) - set(loader.disk_migrations) - replaced
    unknown = sorted(f"{app}.{name}" for app, name in foreign if app in apps)
    if unknown:
        raise NewerDatabase(
            f"The database is from a newer version ({unknown[-1]} is unknown here): start that version, or restore "
            "the backup from before the upgrade."
        )


def bring_up_to_date() -> None:
    """Migrate. A second process waits, and then has nothing to do. Error: NewerDatabase."""
    with _migration_lock():
        refuse_newer()
        call_command("migrate", interactive=False, skip_checks=True)
        for label in left_tables():
            log.warning(
                "%s is switched off, but its tables are in the database, and runs with rows in them cannot be deleted: "
                "put its line back into FEATURES, run ./hacrl manage migrate %s zero, and take the line out",
                label,
                label,
            )


def left_tables() -> list[str]:
    """The apps that are switched off and whose tables are still there."""
    labels = {app for app, _ in MigrationRecorder(connection).applied_migrations()}
    labels -= {config.label for config in installed.get_app_configs()}
    tables = connection.introspection.table_names()
    return sorted(label for label in labels if any(name.startswith(f"{label}_") for name in tables))


@contextmanager
def _migration_lock() -> Iterator[None]:
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
