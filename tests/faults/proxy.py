"""A proxy between two sockets that can pause, cut and delay what passes: the broken network of the fault tests.

One thread copies for all connections; nothing is read or understood of what passes. Addresses are paths of unix
sockets or (host, port).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

Address = Path | tuple[str, int]
BLOCK = 65_536


class Proxy:
    """Listens at `at` and forwards everything to `to`, until it is cut."""

    def __init__(self, at: Address, to: Address) -> None:
        self.at, self.to = at, to
        self.delay_s = 0.0
        self.is_cut = False
        self.passed = 0  # bytes, both ways
        self._copies: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {at}", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    @property
    def port(self) -> int:
        """The port of a proxy that listens on one; 0 became a free one."""
        return int(self._server.sockets[0].getsockname()[1])

    async def _listen(self) -> asyncio.Server:
        if isinstance(self.at, Path):
            return await asyncio.start_unix_server(self._accept, str(self.at))
        return await asyncio.start_server(self._accept, *self.at)

    def pause(self) -> None:
        """Pass nothing on, without an error, as a frozen server or a dead switch does."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._flows.set)

    def cut(self) -> None:
        """End all connections and refuse new ones, until `mend`."""
        self.is_cut = True
        self._loop.call_soon_threadsafe(self._drop)

    def mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.is_cut = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._drop()
        for copy in list(self._copies):
            copy.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)

    def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        try:
            if isinstance(self.to, Path):
                onward = await asyncio.open_unix_connection(str(self.to))
            else:
                onward = await asyncio.open_connection(*self.to)
        except OSError:  # the server is down: so are we
            writer.transport.abort()
            return
        for source, target in ((reader, onward[1]), (onward[0], writer)):
            self._writers.add(target)
            copy = self._loop.create_task(self._copy(source, target))
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while block := await reader.read(BLOCK):
                await self._flows.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(block)
                await writer.drain()
                self.passed += len(block)
        self._writers.discard(writer)
        with contextlib.suppress(OSError):
            writer.close()
