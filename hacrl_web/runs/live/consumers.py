"""The WebSocket of a browser: a cursor over the stored events for each run that it watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Coroutine, Iterable
from typing import Any
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user
from django.contrib.auth.signals import user_logged_out
from django.contrib.sessions.backends.db import SessionStore
from django.db import Error, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.http import HttpRequest

from hacrl_web.accounts.login.sessions import session_digest, session_ended
from hacrl_web.accounts.models import Membership
from hacrl_web.runs.live.broadcaster import Broadcaster, Subscription, end_sockets, get_broadcaster, recheck_rights
from hacrl_web.runs.live.event_reader import events_frame, find_visible, frame_text
from hacrl_web.runs.live.same_origin import is_same_origin
from hacrl_web.runs.models import Run

FRAME_PAUSE_S = 0.1  # at most ten rounds of frames a second
SESSION_CHECK_S = 60.0
MAX_SUBSCRIPTIONS = 64
MAX_SOCKETS_OF_USER = 64  # per web process
MAX_SUBSCRIPTIONS_OF_USER = 512
MAX_FRAME = 4096
FRAMES_PER_S = 20.0
FRAMES_AT_ONCE = 200.0  # a page that comes back subscribes to many runs at once
MAX_CURSOR = 2**62
SESSION_ENDED, FLOODED, TOO_MANY_SOCKETS = 4401, 4429, 4430
SENDER_FAILED, TRY_AGAIN_LATER = 1011, 1013
_GONE = "Unexpected ASGI message"  # begins the server's error for a frame to a browser that has left
log = logging.getLogger(__name__)


def _read_rights(session_key: str | None, user_id: Any, run_ids: Iterable[UUID]) -> tuple[Any, set[UUID]]:
    """A session's user as stored now, and those of the runs that the user may see.

    The user is None if the session has ended or belongs to another user.
    """
    request = HttpRequest()
    request.session = SessionStore(session_key)
    user = get_user(request)
    if not user.is_authenticated or not user.is_active or user.pk != user_id:
        return None, set()
    return user, set(Run.objects.visible_to(user).filter(pk__in=list(run_ids)).values_list("pk", flat=True))


@receiver(user_logged_out)
def _end_sockets_of_session(sender: Any, request: HttpRequest, **_: Any) -> None:
    if request.session.session_key:
        end_sockets(request.session.session_key)


@receiver(session_ended)
def _end_sockets_of_ended_session(sender: Any, session_key: str, **_: Any) -> None:
    end_sockets(session_key)


@receiver([post_save, post_delete], sender=Membership)
def _recheck_member(sender: Any, instance: Membership, **_: Any) -> None:
    transaction.on_commit(lambda: recheck_rights(instance.user_id))


class FrameError(ValueError):
    """Why a frame is refused, as the answer to the browser."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RunConsumer(AsyncWebsocketConsumer):
    """One browser.

    It sends {"op": "sub", "run": id, "after": seq}, {"op": "unsub", "run": id}, {"op": "ping"}; it gets
    {"op": "events", "run", "prev", "seq", "events": [...]}, {"op": "run", "run", "state", ...}, {"op": "synced", "run",
    "seq"} once after the backlog of a sub, {"op": "link", "delayed"} when Redis fails or comes back,
    {"op": "error", "code", "message"} (with "run" if a subscription ends) and {"op": "pong"}.
    """

    channel_layer_alias = None  # a Redis restart must not close the socket

    async def connect(self) -> None:
        self.broadcaster: Broadcaster = get_broadcaster()
        self.tasks: list[asyncio.Task[None]] = []
        self.subscriptions: dict[UUID, Subscription] = {}
        self.wake, self.rights_changed = asyncio.Event(), asyncio.Event()
        self.sending = asyncio.Lock()
        self.allowance, self.allowance_at = FRAMES_AT_ONCE, time.monotonic()
        self.is_closing = False
        self.sent_delayed = False
        user = self.scope.get("user")
        if not is_same_origin(self.scope) or user is None or not user.is_authenticated:
            await self.close()
            return
        self.user = user
        self.session = session_digest(self.scope["session"].session_key or "")
        await self.accept()
        if len(self._of_same_user()) >= MAX_SOCKETS_OF_USER:
            await self._close(TOO_MANY_SOCKETS)
            return
        self.broadcaster.members.add(self)
        jobs = (self._send_on(), self._watch_session())
        self.tasks = [asyncio.create_task(self._guarded(job)) for job in jobs]

    async def disconnect(self, code: int) -> None:
        self.is_closing = True
        self.broadcaster.members.discard(self)
        for task in self.tasks:
            task.cancel()
        for subscription in self.subscriptions.values():
            self.broadcaster.unsubscribe(subscription)
        self.subscriptions.clear()

    def _of_same_user(self) -> list[Any]:
        return [member for member in self.broadcaster.members if member.user.pk == self.user.pk]

    async def end_session(self) -> None:
        """Close the socket: its user has logged out."""
        await self._close(SESSION_ENDED)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.is_closing:
            return
        if not self._is_allowed():
            await self._close(FLOODED)
            return
        try:
            frame = _parse(text_data)
            if frame["op"] == "ping":
                await self._send_frame({"op": "pong"})
            elif frame["op"] == "sub":
                await self._subscribe(frame["run"], frame["after"])
            else:
                self._unsubscribe(frame["run"])
        except FrameError as error:
            await self._send_frame({"op": "error", "code": error.code, "message": str(error)})
        except Error:
            # A browser that reconnects subscribes again from its cursor; it would not repeat a frame that was answered.
            await self._close(TRY_AGAIN_LATER)

    def _is_allowed(self) -> bool:
        now = time.monotonic()
        self.allowance = min(FRAMES_AT_ONCE, self.allowance + (now - self.allowance_at) * FRAMES_PER_S) - 1
        self.allowance_at = now
        return self.allowance >= 0

    async def _subscribe(self, run_id: UUID, after: int) -> None:
        if run_id not in self.subscriptions:
            if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
                raise FrameError("too_many", f"At most {MAX_SUBSCRIPTIONS} runs can be watched at once.")
            if sum(len(member.subscriptions) for member in self._of_same_user()) >= MAX_SUBSCRIPTIONS_OF_USER:
                message = f"At most {MAX_SUBSCRIPTIONS_OF_USER} runs can be watched by one user at once."
                raise FrameError("too_many", message)
        status = await self.broadcaster.read(find_visible, self.user, run_id)
        if status is None:
            raise FrameError("not_found", f"There is no run {run_id}.")
        if after > status.last_seq:
            raise FrameError("bad_cursor", f"The run has no event {after}: the last is {status.last_seq}.")
        self._unsubscribe(run_id)
        subscription = self.subscriptions[run_id] = Subscription(run_id, after, self.wake)
        self.broadcaster.subscribe(subscription, status)
        self.wake.set()

    def _unsubscribe(self, run_id: UUID) -> None:
        subscription = self.subscriptions.pop(run_id, None)
        if subscription is not None:
            self.broadcaster.unsubscribe(subscription)

    async def _drop(self, run_id: UUID) -> None:
        """End a subscription whose run was deleted, or is no longer visible to this user."""
        self._unsubscribe(run_id)
        error = {"op": "error", "code": "not_found", "message": f"There is no run {run_id}.", "run": str(run_id)}
        await self._send_frame(error)

    async def _send_frame(self, body: dict[str, Any]) -> None:
        await self._send_text(frame_text(body))

    async def _send_text(self, text: str) -> None:
        async with self.sending:
            if not self.is_closing:
                await self.send(text_data=text)

    async def _close(self, code: int) -> None:
        if not self.is_closing:
            self.is_closing = True
            await self.close(code=code)

    async def _guarded(self, job: Coroutine[Any, Any, None]) -> None:
        """Close the socket when its sender or its session watch fails: it would stay open and silent."""
        try:
            await job
            return
        except Exception as error:
            if isinstance(error, OSError) or str(error).startswith(_GONE):
                log.debug("a browser has left: %s", error)
            else:
                log.exception("a socket failed; the browser will reconnect")
        with contextlib.suppress(OSError, RuntimeError):
            await self._close(SENDER_FAILED)

    async def _send_on(self) -> None:
        """Send news until the browser leaves, never faster than it receives them."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            if self.broadcaster.is_delayed != self.sent_delayed:
                self.sent_delayed = self.broadcaster.is_delayed
                await self._send_frame({"op": "link", "delayed": self.sent_delayed})
            is_behind = False
            for subscription in list(self.subscriptions.values()):
                try:
                    is_behind |= await self._serve(subscription)
                except Error:
                    is_behind = True
                    await asyncio.sleep(1)  # the database is unreachable: the backlog waits
            if is_behind:
                self.wake.set()
            else:
                await asyncio.sleep(FRAME_PAUSE_S)

    async def _serve(self, subscription: Subscription) -> bool:
        """Send one subscription's next frames; True if there is more already."""
        if self.subscriptions.get(subscription.run_id) is not subscription:
            return False
        if subscription.is_deleted:
            await self._drop(subscription.run_id)
            return False
        status = self.broadcaster.feeds[subscription.run_id].status
        batches = subscription.take() if subscription.is_live else [await self.broadcaster.read_backlog(subscription)]
        if self.subscriptions.get(subscription.run_id) is not subscription:  # resubscribed while the backlog was read
            return False
        batches = [batch for batch in batches if batch.count]
        if batches:
            previous, subscription.cursor = subscription.cursor, batches[-1].seq
            texts = [batch.text for batch in batches]
            await self._send_text(events_frame(subscription.run_id, previous, subscription.cursor, texts))
        has_more = bool(subscription.queue) or not subscription.is_live
        # The final state follows the last event: a browser that reads "completed" has everything.
        if subscription.sent_status != status.text and not (status.is_terminal and has_more):
            subscription.sent_status = status.text
            await self._send_text(status.text)
        if subscription.is_live and not subscription.is_synced:
            subscription.is_synced = True
            await self._send_frame({"op": "synced", "run": str(subscription.run_id), "seq": subscription.cursor})
        return bool(subscription.queue) or not subscription.is_live

    async def _watch_session(self) -> None:
        """Close the socket when its session ends, its user is deactivated or changes the password; drop hidden runs.

        It checks when the broadcaster reports that the user's rights have changed, and every minute besides.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.rights_changed.wait(), SESSION_CHECK_S)
            self.rights_changed.clear()
            session_key = getattr(self.scope.get("session"), "session_key", None)
            with contextlib.suppress(Error):
                watched = set(self.subscriptions)
                user, visible = await self.broadcaster.read(_read_rights, session_key, self.user.pk, watched)
                if user is None:
                    await self._close(SESSION_ENDED)
                    return
                self.user = user  # its rights may have changed
                for run_id in watched - visible:
                    await self._drop(run_id)


def _parse(text: str | None) -> dict[str, Any]:
    """A checked frame. Error: FrameError."""
    if text is None or len(text) > MAX_FRAME:
        raise FrameError("bad_frame", f"A frame is JSON text of at most {MAX_FRAME} characters.")
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise FrameError("bad_frame", "This frame is not JSON.") from None
    if not isinstance(frame, dict) or frame.get("op") not in ("sub", "unsub", "ping"):
        raise FrameError("bad_frame", 'A frame is an object whose "op" is sub, unsub or ping.')
    if frame["op"] == "ping":
        return frame
    try:
        run_id = UUID(str(frame.get("run")))
    except ValueError:
        raise FrameError("not_found", "There is no run of this id.") from None
    after = frame.get("after", 0)
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < MAX_CURSOR:
        raise FrameError("bad_cursor", '"after" is a whole number from 0.')
    return {"op": frame["op"], "run": run_id, "after": after}
