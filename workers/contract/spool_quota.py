"""Part of the contract: which events enter the spool. Log lines are cleaned and limited; a nearly full spool takes
only the most important types.

Events left out get no `seq` and are counted in `left_out` events, which pages show. No torch, no Django.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable

LINE_CHARACTERS = 4000
LINES_PER_S = 200.0
LINES_AT_ONCE = 2000.0
NOTICE_S = 5.0
# Share of the quota from which events of a type are left out; other types always enter.
LEVELS = {"log": 0.5, "rollout": 0.5, "contribution": 0.5, "answers": 0.5, "metrics": 0.9, "progress": 0.9}
DEFAULT_QUOTA_BYTES = 2 * 2**30
TOO_MANY_LINES = f"more than {LINES_PER_S:.0f} log lines a second"

# CSI sequences (colours, cursor), OSC strings (titles, links) and two-character escapes of ECMA-48.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]")
# Control characters, and those that reverse the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean_line(text: str, whole: int = 0) -> str:
    """A log line without escape sequences and control characters; a line that is too long is cut and marked.

    whole: length of the line where `text` is only its beginning.
    """
    if len(text) <= LINE_CHARACTERS and whole <= 20 * LINE_CHARACTERS and text.isprintable():
        return text
    whole = max(whole, len(text))
    text = text[: 20 * LINE_CHARACTERS]  # cleaning a whole line of 1 MB takes too long
    text = _ANSI.sub("", text)
    # A progress bar overwrites its line: keep what a terminal shows in the end.
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    text = _CONTROL.sub("", text)
    if len(text) <= LINE_CHARACTERS and whole <= 20 * LINE_CHARACTERS:
        return text
    return f"{text[:LINE_CHARACTERS]} … [cut: the line had {whole:,} characters]"


class Gate:
    """Decides which events enter the spool, and counts the others. measure: returns the spool's size in bytes."""

    def __init__(self, quota_bytes: int, measure: Callable[[], int], now: Callable[[], float] = time.monotonic) -> None:
        self.quota_bytes = quota_bytes
        self._measure, self._now = measure, now
        self._share, self._measure_at = 0.0, 0.0
        self._tokens, self._tokens_at = LINES_AT_ONCE, now()
        self._left_out: dict[str, Counter[str]] = {}
        self._notice_at = 0.0

    def admits(self, kind: str, *, is_urgent: bool = False) -> bool:
        """False where an event of this type is left out. is_urgent: a warning, which enters a full spool too."""
        now = self._now()
        if now >= self._measure_at:
            self._share, self._measure_at = self._measure() / self.quota_bytes, now + 1.0
        if self._share >= LEVELS.get(kind, float("inf")) and not is_urgent:
            return self._leave_out(kind, f"the spool fills more than {LEVELS[kind]:.0%} of its quota")
        if kind == "log":
            self._tokens = min(LINES_AT_ONCE, self._tokens + (now - self._tokens_at) * LINES_PER_S)
            self._tokens_at = now
            if self._tokens < 1:
                return self._leave_out(kind, TOO_MANY_LINES)
            self._tokens -= 1
        return True

    def _leave_out(self, kind: str, reason: str) -> bool:
        self._left_out.setdefault(reason, Counter())[kind] += 1
        return False

    def notices(self, *, is_last: bool = False) -> dict[str, dict[str, int]]:
        """Reason -> type -> number of events left out since the last notice; empty where that was just now."""
        now = self._now()
        if not self._left_out or (now < self._notice_at and not is_last):
            return {}
        self._notice_at = now + NOTICE_S
        counts_by_reason = {reason: dict(counts) for reason, counts in self._left_out.items()}
        self._left_out = {}
        return counts_by_reason
