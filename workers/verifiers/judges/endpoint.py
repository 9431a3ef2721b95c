"""Asks a judge behind an OpenAI-compatible address.

The host must be on the operator's list (HACRL_JUDGE_ALLOW). Its name is resolved once for each batch, the connection
goes to the checked address, no redirect is followed and no proxy is used; an answer is at most MAX_ANSWER_BYTES long.
The key is in no message of an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2 as httpx

from workers import heartbeat
from workers.contract.allowed_address import DEFAULT_PORTS, AddressRefused, AllowList, HostUnknown, PinnedRequest
from workers.contract.spec.judge import ALLOW_VARIABLE, JudgeSettings
from workers.verifiers.judges.replies import CUT_OFF, Reply

CONNECT_S = 10.0
MAX_ANSWER_BYTES = 4 * 2**20
WAIT_S, MAX_WAIT_S = 0.5, 30.0  # before the first further try; then twice as long each time
RETRYABLE = (408, 409, 425, 429)
MAX_LOST = 3  # times `concurrency`: so many failed requests in a row, and the judge is not there


class JudgeRefuses(Exception):
    """The address, the key or the model's name is wrong: further requests would fail alike."""


@dataclass
class _Round:
    """One batch. lost: failed requests since the last one that succeeded."""

    client: httpx.AsyncClient
    pinned: PinnedRequest
    turns: asyncio.Semaphore
    has_ended: asyncio.Event
    lost: int = 0
    refusal: str = ""


class Endpoint:
    """One judge's address. `ask` may be called again and again, from one thread at a time."""

    def __init__(self, settings: JudgeSettings, key: str = "", may_spend: Callable[[], bool] = lambda: True) -> None:
        """key: for the header Authorization; may_spend: false once the budget is spent."""
        self._settings, self._key, self._may_spend = settings, key, may_spend

    def ask(self, messages: Sequence[str], on_reply: Callable[[Reply], None] = lambda reply: None) -> list[Reply]:
        """A reply to each message, in order. on_reply: called with each one. Error: JudgeRefuses."""
        return asyncio.run(self._ask_all(messages, on_reply))

    def close(self) -> None:
        """Connections end with each batch."""

    async def _ask_all(self, messages: Sequence[str], on_reply: Callable[[Reply], None]) -> list[Reply]:
        pinned = await asyncio.to_thread(self._pinned)
        limit_s = self._settings.time_limit_s
        timeout = httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s), pool=None)
        limits = httpx.Limits(max_connections=self._settings.concurrency)
        async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout, limits=limits) as client:
            turns = asyncio.Semaphore(self._settings.concurrency)
            batch = _Round(client, pinned, turns, asyncio.Event())
            pulse = asyncio.create_task(_send_heartbeats())
            try:
                replies = await asyncio.gather(*(self._ask_one(batch, text, on_reply) for text in messages))
            finally:
                pulse.cancel()
        if batch.refusal:
            raise JudgeRefuses(batch.refusal)
        return replies

    def _pinned(self) -> PinnedRequest:
        """Error: JudgeRefuses."""
        allowed = AllowList.of_variable(ALLOW_VARIABLE, os.environ.get(ALLOW_VARIABLE, ""))
        try:
            parts = allowed.check_url(f"{self._settings.address.rstrip('/')}/chat/completions")
            port = parts.port or DEFAULT_PORTS[parts.scheme]
            return PinnedRequest.to(parts, allowed.resolve(parts.hostname or "", port))
        except (AddressRefused, HostUnknown) as error:
            raise JudgeRefuses(str(error).rstrip(".")) from None

    async def _ask_one(self, batch: _Round, message: str, on_reply: Callable[[Reply], None]) -> Reply:
        async with batch.turns:
            reply = Reply(failure="not asked, because the judge failed before", is_transport=True)
            for tries in range(self._settings.retries + 1):
                if batch.has_ended.is_set():
                    break
                if not self._may_spend():
                    reply = Reply(failure="not asked, because the budget is spent", is_transport=True)
                    break
                begin = time.monotonic()
                reply, wait_s = await self._request(batch, message)
                reply = replace(reply, seconds=time.monotonic() - begin)
                if not reply.failure or wait_s is None:
                    break
                if tries < self._settings.retries:
                    wait_s = max(wait_s, WAIT_S * 2**tries)
                    await _wait(batch.has_ended, min(wait_s, MAX_WAIT_S))
            batch.lost = batch.lost + 1 if reply.is_transport else 0
            if batch.lost >= MAX_LOST * self._settings.concurrency:
                batch.has_ended.set()
            on_reply(reply)
            return reply

    async def _request(self, batch: _Round, message: str) -> tuple[Reply, float | None]:
        """The reply, and after how many seconds at least another try makes sense; None: not at all."""
        limit_s = self._settings.time_limit_s
        try:
            status, headers, content = await asyncio.wait_for(self._post(batch, message), limit_s)
        except TimeoutError:
            return Reply(failure=f"no answer within {limit_s:g} s", is_transport=True), 0.0
        except httpx.HTTPError as error:
            return Reply(failure=f"no connection ({type(error).__name__})", is_transport=True), 0.0
        except _TooLong:
            return Reply(failure=f"an answer of more than {MAX_ANSWER_BYTES:,} bytes"), None
        if status == 200:
            return _read(content), None
        failure = Reply(failure=f"the address answers {status}{_said(content, self._key)}", is_transport=True)
        if status in RETRYABLE or status >= 500:
            return failure, _retry_after(headers)
        if 300 <= status < 400:
            failure = replace(failure, failure=f"the address answers {status}: redirects are not followed")
        if status in (401, 403, 404, 405) or 300 <= status < 400:
            batch.refusal = batch.refusal or failure.failure
            batch.has_ended.set()
        return failure, None

    async def _post(self, batch: _Round, message: str) -> tuple[int, httpx.Headers, bytes]:
        """Errors: httpx.HTTPError, _TooLong."""
        pinned = batch.pinned
        target = httpx.URL(scheme=pinned.scheme, host=pinned.host, port=pinned.port, raw_path=pinned.path)
        headers = pinned.headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        body = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": message}],
            "temperature": 0,
            "max_tokens": self._settings.max_tokens,
        }
        # The certificate must match the name, although the connection goes to the checked address.
        extensions = {"sni_hostname": pinned.name}
        content = b""
        async with batch.client.stream("POST", target, json=body, headers=headers, extensions=extensions) as answer:
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    raise _TooLong
            return answer.status_code, answer.headers, content


class _TooLong(Exception):
    """The answer is longer than any judge's."""


async def _send_heartbeats() -> None:
    """While requests are on their way, each of which has a time limit."""
    while True:
        heartbeat.send_heartbeat()
        await asyncio.sleep(heartbeat.EVERY_S)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event, at most so long."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _retry_after(headers: httpx.Headers) -> float:
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _read(content: bytes) -> Reply:
    """The text and the tokens of an answer of chat/completions."""
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        text, is_cut_off = choice["message"]["content"], choice.get("finish_reason") == "length"
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return Reply(failure="its answer is no chat completion")
    if not isinstance(text, str):
        return Reply(failure="its answer holds no text")
    usage = answer.get("usage")
    reply = Reply(text, input_tokens=_tokens(usage, "prompt_tokens"), output_tokens=_tokens(usage, "completion_tokens"))
    return replace(reply, failure=CUT_OFF) if is_cut_off else reply


def _tokens(usage: Any, name: str) -> int:
    number = usage.get(name) if isinstance(usage, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10**9 else 0


def _said(content: bytes, key: str) -> str:
    """The message of an error in one short line, without the key if the server repeats it."""
    try:
        error = json.loads(content)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if not isinstance(text, str):
        return ""
    text = " ".join(text.split())
    if key:
        text = text.replace(key, "…")
    return f": {text[:160]}" if text.isprintable() else ""
