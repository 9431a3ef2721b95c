"""Redis without ever waiting for it: short time-outs, and a pause after each failure.

Redis carries only hints; everything that must not be lost is a row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import TypeVar
from uuid import UUID

import redis
from django.conf import settings
from kombu.exceptions import OperationalError

# Names of the wire protocol: during an update, processes of two versions use them at once.
UPDATE_CHANNEL = "hacrl:bell"  # a run's id: it has news
LOGOUT_CHANNEL = "hacrl:logout"  # a session's digest: it was logged out
RIGHTS_CHANNEL = "hacrl:rights"  # a user's id: the user's rights have changed
TIMEOUT_S = 1.0
PAUSE_S = 5.0
ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


class RedisGuard:
    """Calls Redis, except in the seconds after a failure: a frozen Redis then costs one time-out per pause."""

    def __init__(self) -> None:
        self._closed_until = 0.0
        self._is_down = False

    def call(self, purpose: str, function: Callable[[], ResultT]) -> ResultT | None:
        """What `function` returns; None if Redis did not answer, now or within the last PAUSE_S seconds."""
        if time.monotonic() < self._closed_until:
            return None
        try:
            result = function()
        except (redis.RedisError, OperationalError, OSError) as error:
            self._closed_until = time.monotonic() + PAUSE_S
            if not self._is_down:
                log.warning("Redis is unreachable (%s: %s); retrying every %g s", purpose, error, PAUSE_S)
            self._is_down = True
            return None
        if self._is_down:
            log.info("Redis is reachable again")
        self._is_down = False
        return result


guard = RedisGuard()


@cache
def client() -> redis.Redis:
    """The client of this process, which connects when first used."""
    timeouts = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    return redis.Redis.from_url(settings.REDIS_URL, **timeouts, retry=None)


def publish(channel: str, text: str) -> None:
    """Send a message to every broadcaster. Without Redis they find out by their poll, the sockets within a minute."""
    guard.call("publish", lambda: client().publish(channel, text))


def publish_update(run_id: UUID) -> None:
    """Notify every broadcaster that a run has news."""
    publish(UPDATE_CHANNEL, run_id.hex)
