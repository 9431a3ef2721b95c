"""How this process talks to Redis without ever waiting for it: short time-outs, and a pause after each failure.

Redis carries only hints (the bell, the doorbell); everything that must not be lost is a row.
"""

from __future__ import annotations

import logging
import time
from uuid import UUID

import redis
from django.conf import settings

BELL_CHANNEL = "hacrl:bell"
LOGOUT_CHANNEL = "hacrl:logout"
RIGHTS_CHANNEL = "hacrl:rights"
TIMEOUT_S = 1.0
PAUSE_S = 5.0
log = logging.getLogger(__name__)


class Guard:
    """Keeps away from Redis for a while after a failure, so that a frozen one costs a second now and then."""

    def __init__(self) -> None:
        self._closed_until = 0.0
        self._is_down = False

    def is_open(self) -> bool:
        return time.monotonic() >= self._closed_until

    def failed(self, what: str, error: Exception) -> None:
        self._closed_until = time.monotonic() + PAUSE_S
        if not self._is_down:
            log.warning("Redis is not reachable (%s: %s); trying again every %g s", what, error, PAUSE_S)
        self._is_down = True

    def succeeded(self) -> None:
        if self._is_down:
            log.info("Redis is reachable again")
        self._is_down = False


guard = Guard()
_client: redis.Redis | None = None


def client() -> redis.Redis:
    """This process' client; connects when first used."""
    global _client
    if _client is None:
        _client = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=None
        )
    return _client


def publish_update(run_id: UUID) -> bool:
    """Tell the hubs that a run has news; False where Redis is down: they poll."""
    return _publish(BELL_CHANNEL, run_id.hex)


def publish_logout(session_digest: str) -> bool:
    """Tell the hubs that a session was logged out; False where Redis is down: they look every minute."""
    return _publish(LOGOUT_CHANNEL, session_digest)


def publish_rights(user_id: int) -> bool:
    """Tell the hubs that somebody's rights have changed; False where Redis is down: they look every minute."""
    return _publish(RIGHTS_CHANNEL, str(user_id))


def _publish(channel: str, text: str) -> bool:
    if not guard.is_open():
        return False
    try:
        client().publish(channel, text)
    except redis.RedisError as error:
        guard.failed("bell", error)
        return False
    guard.succeeded()
    return True
