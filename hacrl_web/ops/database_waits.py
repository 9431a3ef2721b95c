"""How long a request may wait for another's lock on PostgreSQL before it is a 503; SQLite's `timeout` says it there.

Of the web process alone: migrations, exports by command and the processes beside the web may wait as long as they need.
"""

from typing import Any

from django.conf import settings
from django.db.backends.signals import connection_created

IDLE_IN_TRANSACTION_S = 60  # of a request whose thread hangs: others wait for its locks


def limit_database_waits() -> None:
    """For all connections that this process opens from now on."""
    connection_created.connect(_limit, dispatch_uid="limit_database_waits")


def _limit(connection: Any, **_: Any) -> None:
    if connection.vendor == "postgresql":
        waits = {"lock_timeout": settings.LOCK_WAIT_S, "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_S}
        with connection.cursor() as cursor:
            cursor.execute("; ".join(f"SET {name} = '{seconds}s'" for name, seconds in waits.items()))
