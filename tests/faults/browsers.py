"""Browsers that watch runs: what the page's socket does (frontend/static/js/lib/socket.js), many at once in one thread.

Each keeps a cursor for each run, comes back with jitter after a lost connection, and notes every event it is sent.
A frame that does not start at the cursor is a violation, for the server promises none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from tests.faults.records import Place

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 2.0  # the page's longest is 15 s
AnyResult = TypeVar("AnyResult")


class Browser:
    """One open page."""

    def __init__(self, url: str, session: str) -> None:
        self.url, self.session = url, session
        self.cursors: dict[UUID, int] = {}
        self.seen: dict[UUID, list[Place]] = {}
        self.states: dict[UUID, list[str]] = {}  # as the page would show them, one after the other
        self.link: list[bool] = []  # "live updates delayed", and their return
        self.violations: list[str] = []
        self.connections = 0
        self.reads = asyncio.Event()  # cleared: a browser that takes nothing
        self.reads.set()
        self.subscribed: set[UUID] = set()  # over this connection
        self.left: set[UUID] = set()  # watched no more
        self._socket: ClientConnection | None = None

    async def live(self) -> None:
        """Connect, and come back for ever."""
        tries = 0
        while True:
            with contextlib.suppress(OSError, InvalidHandshake, WebSocketException, TimeoutError):
                headers = {"Cookie": f"hacrl_session={self.session}"}
                address = f"ws://{urlsplit(self.url).netloc}/ws"
                async with connect(
                    address, origin=self.url, additional_headers=headers, max_size=None, compression=None, max_queue=4
                ) as socket:  # type: ignore[arg-type]
                    tries, self._socket = 0, socket
                    self.connections += 1
                    self.subscribed.clear()
                    for run_id in [run_id for run_id in self.cursors if run_id not in self.left]:
                        await self.ask(run_id)
                    await self._listen(socket)
            self._socket = None
            longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**tries)
            tries += 1
            await asyncio.sleep(longest * (0.5 + random.random() / 2))

    async def watch(self, run_id: UUID) -> None:
        self.cursors[run_id], self.seen[run_id], self.states[run_id] = 0, [], []
        with contextlib.suppress(WebSocketException):
            await self.ask(run_id)

    async def ask(self, run_id: UUID) -> None:
        if self._socket is not None and run_id not in self.subscribed:
            self.subscribed.add(run_id)
            frame = {"op": "sub", "run": str(run_id), "after": self.cursors[run_id]}
            await self._socket.send(json.dumps(frame))

    async def leave(self, run_id: UUID) -> None:
        """Watch a run no more: a socket may watch only so many at once. What came of it stays noted."""
        self.left.add(run_id)
        if self._socket is not None and run_id in self.subscribed:
            self.subscribed.discard(run_id)
            with contextlib.suppress(WebSocketException):
                await self._socket.send(json.dumps({"op": "unsub", "run": str(run_id)}))

    async def _listen(self, socket: ClientConnection) -> None:
        while True:
            await self.reads.wait()
            self._take(json.loads(await socket.recv()))

    def _take(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "link":
            self.link.append(frame["delayed"])
        elif frame["op"] == "run":
            run_id = UUID(frame["run"])
            if self.states[run_id][-1:] != [frame["state"]]:
                self.states[run_id].append(frame["state"])
        elif frame["op"] == "events":
            run_id = UUID(frame["run"])
            if frame["prev"] != self.cursors[run_id]:
                self.violations.append(f"a frame from {frame['prev']} at cursor {self.cursors[run_id]}")
            self.seen[run_id] += [(e["seq"], e["attempt"], e["type"], e["step"]) for e in frame["events"]]
            self.cursors[run_id] = frame["seq"]


class Browsers:
    """A number of browsers in a thread of their own."""

    def __init__(self, url: str, session: str, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browsers", daemon=True)
        self._thread.start()
        self.all: list[Browser] = []
        self._lives: list[asyncio.Task[None]] = []
        self._do(self._open(url, session, count))

    async def _open(self, url: str, session: str, count: int) -> None:
        self.all = [Browser(url, session) for _ in range(count)]
        self._lives = [asyncio.ensure_future(browser.live()) for browser in self.all]

    def _do(self, work: Coroutine[Any, Any, AnyResult]) -> AnyResult:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def watch(self, run_id: UUID) -> None:
        for browser in self.all:
            self._do(browser.watch(run_id))

    def leave(self, run_id: UUID) -> None:
        for browser in self.all:
            self._do(browser.leave(run_id))

    def read(self, *, on: bool, browser: Browser) -> None:
        """Let one take its frames, or take nothing more."""
        self._loop.call_soon_threadsafe(browser.reads.set if on else browser.reads.clear)

    def seen(self, run_id: UUID) -> list[list[Place]]:
        """What each has got of a run, of those that watch it."""
        return [browser.seen[run_id] for browser in self.all if run_id in browser.seen]

    def cursors(self, run_id: UUID) -> list[int]:
        return [browser.cursors[run_id] for browser in self.all if run_id in browser.cursors]

    def violations(self) -> list[str]:
        return [f"browser {number}: {text}" for number, browser in enumerate(self.all) for text in browser.violations]

    def close(self) -> None:
        async def end() -> None:
            for life in self._lives:
                life.cancel()
            await asyncio.gather(*self._lives, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
