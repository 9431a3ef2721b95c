"""What only the process that answers requests does: its waits for locks end, and garbage collections cost it little."""

import gc
from typing import Any

from django.conf import settings
from django.db.backends.signals import connection_created
from django.urls import get_resolver

IDLE_IN_TRANSACTION_S = 60  # of a request whose thread hangs: others wait for its locks


def limit_database_waits() -> None:
    """For all connections from now on: on PostgreSQL a longer wait is a 503; SQLite's `timeout` says it there."""
    connection_created.connect(_limit, dispatch_uid="limit_database_waits")


def _limit(connection: Any, **_: Any) -> None:
    if connection.vendor == "postgresql":
        waits = {"lock_timeout": settings.LOCK_WAIT_S, "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_S}
        with connection.cursor() as cursor:
            cursor.execute("; ".join(f"SET {name} = '{seconds}s'" for name, seconds in waits.items()))


def freeze_loaded_modules() -> None:
    """Load the pages and the API, and leave all objects that exist now out of full collections.

    They are some 200,000: visiting them takes a tenth of a second, in which no request is answered.
    """
    get_resolver().url_patterns  # noqa: B018  which the first request would load
    gc.collect()
    gc.freeze()
