"""The broadcaster: one reader of the database per web process, for all browsers that watch runs.

Redis only carries updates ("run X has news"); a poll every two seconds covers lost ones. Events go from the reader to
each subscription's short queue. A browser that is too slow loses its queue but no event: it reads from its cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import redis.asyncio
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import Error, connections

from hacrl_web.accounts.login.sessions import session_digest
from hacrl_web.accounts.models import User
from hacrl_web.runs.live.event_reader import EventBatch, Status, read_batch, read_status
from hacrl_web.runs.messages.pubsub import LOGOUT_CHANNEL, RIGHTS_CHANNEL, UPDATE_CHANNEL, publish

POLL_S = 2.0
PING_AFTER_S = 3.0  # of silence on the connection to Redis
COALESCE_S = 0.05  # updates within this time cost one read
MAX_QUEUED_BATCHES = 20
FRAME_CHARACTERS = 500_000
ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Subscription:
    """One browser's cursor over one run."""

    run_id: UUID
    cursor: int
    wake: asyncio.Event  # of the browser's sender
    is_live: bool = False  # False: the sender reads the backlog by itself
    is_synced: bool = False  # "synced" was sent
    queue: deque[EventBatch] = field(default_factory=deque)
    sent_status: str = ""
    is_deleted: bool = False  # the run

    def offer(self, batch: EventBatch) -> None:
        """Queue a batch for the sender; on overflow drop the queue: the sender reads the backlog again."""
        if self.is_live:
            if len(self.queue) >= MAX_QUEUED_BATCHES:
                self.queue.clear()
                self.is_live = False
            else:
                self.queue.append(batch)
        self.wake.set()

    def take(self) -> list[EventBatch]:
        """Remove and return what is queued, up to the size of one frame."""
        batches: list[EventBatch] = []
        size = 0
        while self.queue and size < FRAME_CHARACTERS:
            batches.append(self.queue.popleft())
            size += len(batches[-1].text)
        return batches


class Feed:
    """One run that a browser of this process watches."""

    def __init__(self, run_id: UUID, status: Status) -> None:
        self.run_id, self.status = run_id, status
        self.read_to = status.last_seq  # live subscriptions were offered everything up to here, others read up to here
        self.subscriptions: set[Subscription] = set()

    def wake(self) -> None:
        for subscription in self.subscriptions:
            subscription.wake.set()


class Member(Protocol):
    """One browser's socket, as the broadcaster knows it."""

    user: User
    session: str  # session_digest
    subscriptions: dict[UUID, Subscription]
    rights_changed: asyncio.Event  # set: its session is checked at once

    async def end_session(self) -> None: ...


class Broadcaster:
    """Holds the feeds of this process, with their updates from Redis and their poll."""

    def __init__(self) -> None:
        self.feeds: dict[UUID, Feed] = {}
        self.members: set[Member] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._updated: set[UUID] = set()
        self._has_updates = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_delayed = False  # True: no updates from Redis, only the poll; pages show it
        # One thread, one connection: the database is read once, however many watch.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="broadcaster-reader")

    async def read(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Run a database function in the reader thread."""
        in_thread = database_sync_to_async(function, thread_sensitive=False, executor=self._reader)
        return await in_thread(*arguments)

    def start(self) -> None:
        """Start the subscription to Redis, the poll and the reader; they run while the process does."""
        jobs = (self._receive_updates(), self._poll(), self._read_updates())
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await asyncio.get_running_loop().run_in_executor(self._reader, connections.close_all)
        self._reader.shutdown()

    def subscribe(self, subscription: Subscription, status: Status) -> None:
        feed = self.feeds.setdefault(subscription.run_id, Feed(subscription.run_id, status))
        feed.subscriptions.add(subscription)
        self.note_update(subscription.run_id)

    async def read_backlog(self, subscription: Subscription) -> EventBatch:
        """The next batch between the cursor and the feed; with the last one the subscription becomes live."""
        feed = self.feeds[subscription.run_id]
        read_to = feed.read_to
        batch = await self.read(read_batch, subscription.run_id, subscription.cursor, read_to)
        # No await from here on: nothing can be offered between the comparison and the switch.
        if not batch.is_full and feed.read_to == read_to:
            subscription.is_live = True
        return batch

    def unsubscribe(self, subscription: Subscription) -> None:
        feed = self.feeds[subscription.run_id]
        feed.subscriptions.discard(subscription)
        if not feed.subscriptions:
            del self.feeds[subscription.run_id]

    def note_update(self, run_id: UUID) -> None:
        if run_id in self.feeds:
            self._updated.add(run_id)
            self._has_updates.set()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            for run_id in self.feeds:
                self.note_update(run_id)

    async def _receive_updates(self) -> None:
        """Subscribe to Redis; while it is unreachable keep trying, with growing pauses."""
        pause_s = 1.0
        while True:
            try:
                client = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=None, socket_connect_timeout=2)
                async with client, client.pubsub() as channels:
                    async with asyncio.timeout(PING_AFTER_S):
                        await channels.subscribe(UPDATE_CHANNEL, LOGOUT_CHANNEL, RIGHTS_CHANNEL)
                        await client.ping()
                    self._set_delayed(False)
                    pause_s = 1.0
                    for run_id in self.feeds:  # messages published before this moment are lost
                        self.note_update(run_id)
                    self.recheck_rights()
                    while True:
                        message = await channels.get_message(ignore_subscribe_messages=True, timeout=PING_AFTER_S)
                        if message is not None:
                            self._handle_message(message)
                            continue
                        # A frozen Redis keeps its connections open.
                        async with asyncio.timeout(PING_AFTER_S):
                            await client.ping()
            except (redis.RedisError, OSError) as error:
                if not self.is_delayed:
                    log.warning("Redis is unreachable (%r): live updates come by the poll every %g s", error, POLL_S)
            self._set_delayed(True)
            await asyncio.sleep(pause_s)
            pause_s = min(10.0, pause_s * 2)

    def _set_delayed(self, is_delayed: bool) -> None:
        if is_delayed != self.is_delayed:
            self.is_delayed = is_delayed
            for feed in self.feeds.values():
                feed.wake()

    def _handle_message(self, message: dict[str, Any]) -> None:
        text = bytes(message["data"]).decode("ascii", "replace")
        channel = bytes(message["channel"]).decode()
        with contextlib.suppress(ValueError):
            if channel == LOGOUT_CHANNEL:
                self.end_session(text)
            elif channel == RIGHTS_CHANNEL:
                self.recheck_rights(int(text))
            else:
                self.note_update(UUID(text))

    def end_session(self, digest: str) -> None:
        """Close the sockets of a session that has ended."""
        for member in [member for member in self.members if member.session == digest]:
            task = asyncio.create_task(member.end_session())
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    def recheck_rights(self, user_id: int | None = None) -> None:
        """Have the sockets of a user (None: of all) check now what they may still show."""
        for member in self.members:
            if user_id in (None, member.user.pk):
                member.rights_changed.set()

    async def _read_updates(self) -> None:
        """Read the news of all updated runs in one round, and offer them to their subscriptions."""
        while True:
            await self._has_updates.wait()
            await asyncio.sleep(COALESCE_S)
            self._has_updates.clear()
            updated, self._updated = self._updated, set()
            try:
                await self._read_round(list(updated))
            except Error as error:
                log.warning("live updates: the database cannot be read (%s); the next poll tries again", error)
            except Exception:
                log.exception("live updates failed; the next poll tries again")

    async def _read_round(self, run_ids: list[UUID]) -> None:
        statuses = await self.read(read_status, run_ids)
        for run_id in run_ids:
            feed = self.feeds.get(run_id)
            if feed is None:
                continue
            status = statuses.get(run_id)
            if status is None:
                for subscription in feed.subscriptions:
                    subscription.is_deleted = True
                feed.wake()
                continue
            if any(s.is_live for s in feed.subscriptions):
                await self._read_events(feed, status.last_seq)
            else:
                feed.read_to = max(feed.read_to, status.last_seq)
            # After its events: a browser that reads "completed" has everything.
            feed.status = status
            feed.wake()

    async def _read_events(self, feed: Feed, last_seq: int) -> None:
        while feed.read_to < last_seq:
            batch = await self.read(read_batch, feed.run_id, feed.read_to)
            # Rollouts have numbers too, but are no events: past the last event the cursor may move to last_seq.
            feed.read_to = batch.seq if batch.is_full else max(batch.seq, last_seq)
            if batch.count:
                for subscription in feed.subscriptions:
                    subscription.offer(batch)


_broadcasters: WeakKeyDictionary[asyncio.AbstractEventLoop, Broadcaster] = WeakKeyDictionary()


def get_broadcaster() -> Broadcaster:
    """The broadcaster of this process (one per event loop), started when first used."""
    loop = asyncio.get_running_loop()
    broadcaster = _broadcasters.get(loop)
    if broadcaster is None:
        broadcaster = _broadcasters[loop] = Broadcaster()
        broadcaster.start()
    return broadcaster


def end_sockets(session_key: str) -> None:
    """Close the sockets of a session that has ended: here at once, in other processes through Redis.

    Without Redis those close within a minute, when they check their session.
    """
    digest = session_digest(session_key)
    _in_each_broadcaster(lambda broadcaster: broadcaster.end_session(digest))
    publish(LOGOUT_CHANNEL, digest)


def recheck_rights(user_id: int) -> None:
    """Have a user's sockets check what they may still show, in the processes that end_sockets reaches."""
    _in_each_broadcaster(lambda broadcaster: broadcaster.recheck_rights(user_id))
    publish(RIGHTS_CHANNEL, str(user_id))


def _in_each_broadcaster(act: Callable[[Broadcaster], None]) -> None:
    for loop, broadcaster in list(_broadcasters.items()):
        with contextlib.suppress(RuntimeError):  # a loop that has ended
            loop.call_soon_threadsafe(act, broadcaster)


def socket_count() -> int:
    """Open sockets of this process."""
    return sum(len(broadcaster.members) for broadcaster in list(_broadcasters.values()))
