"""Limits of what a model's own files compute: its chat template, and the normalizer and splitter of its tokenizer.

Memory: the call fails. Time: nothing interrupts a regular expression that runs in Rust, so a thread reports the call
and ends the process. That is only where `late_calls_end` says how to report it: the web's short child processes have
limits of their own.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

LIMIT_S = 60.0  # of one call, which usually takes a thousandth of a second
SPARE_BYTES = 4 * 2**30  # of address space that a chat template may add
LOOK_EVERY_S = 1.0


@dataclass
class _Watch:
    """calls: by thread, how long its call has taken so far, and what it is."""

    report: Callable[[str], None] | None = None
    calls: dict[int, tuple[float, str]] = field(default_factory=dict)
    thread: threading.Thread | None = None
    memory: threading.Lock = field(default_factory=threading.Lock)


_watch = _Watch()


@contextlib.contextmanager
def late_calls_end(report: Callable[[str], None]) -> Iterator[None]:
    """Within: a call that takes longer than LIMIT_S is reported from another thread, and the process ends."""
    _watch.report = report
    if _watch.thread is None or not _watch.thread.is_alive():  # a fork has none
        _watch.thread = threading.Thread(target=_look, name="call-limits", daemon=True)
        _watch.thread.start()
    try:
        yield
    finally:
        _watch.report = None


@contextlib.contextmanager
def time_limit(what: str) -> Iterator[None]:
    """Within: one call of `what`, such as "the tokenizer of agent 'A' at 'What is'". Error: ValueError if it panics."""
    thread = threading.get_ident()
    _watch.calls[thread] = (0.0, what)
    try:
        yield
    except BaseException as error:
        if is_panic(error):
            raise ValueError(f"{what} fails: {error}") from None
        raise
    finally:
        del _watch.calls[thread]


def is_panic(error: BaseException) -> bool:
    """Whether code in Rust gave up, as a regular expression does that tries too much. It is no Exception."""
    return type(error).__module__ == "pyo3_runtime"


@contextlib.contextmanager
def memory_limit() -> Iterator[None]:
    """Within: MemoryError once the process has grown by SPARE_BYTES. Linux only."""
    with _watch.memory:
        before = resource.getrlimit(resource.RLIMIT_AS)
        try:
            with open("/proc/self/statm") as file:
                most = int(file.read().split()[0]) * resource.getpagesize() + SPARE_BYTES
        except OSError:
            yield
            return
        soft = most if before[0] == resource.RLIM_INFINITY else min(most, before[0])
        resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _look() -> None:
    """A process that was frozen meanwhile has lost no time: each look counts once."""
    while True:
        time.sleep(LOOK_EVERY_S)
        for thread, (seconds, what) in list(_watch.calls.items()):
            if seconds + LOOK_EVERY_S > LIMIT_S and _watch.report is not None:
                _end(f"{what} takes longer than {LIMIT_S:.0f} s: use a model whose tokenizer files are sound")
            # Only of the same call: it may have ended since.
            if _watch.calls.get(thread) == (seconds, what):
                _watch.calls[thread] = (seconds + LOOK_EVERY_S, what)


def _end(reason: str) -> None:
    print(reason, file=sys.stderr, flush=True)
    try:
        assert _watch.report is not None
        _watch.report(reason)
    finally:
        os._exit(1)
