"""What the API answers about checks of models and pairs of agents; models, groups and benchmarks have their own."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class CheckAnswer(TypedDict):
    name: str
    ok: bool
    detail: str


class ChecksAnswer(TypedDict):
    checks: list[CheckAnswer]


class PairAnswer(TypedDict):
    """Two agents of a group: what differs, and how much longer a text is in the other's tokens.

    drift: the length ratio minus 1. facts: what was measured of both tokenizers.
    """

    agents: list[str]
    kind: str
    drift: float | None
    warnings: list[str]
    facts: dict[str, Any] | None
