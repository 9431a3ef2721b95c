"""Requests about a benchmark that child processes answer: import files, verify an answer.

The web process never holds the questions of an upload.
"""

from __future__ import annotations

from typing import Any

from hacrl_web.registry.base import values
from hacrl_web.registry.base.children import IMPORTER, VERIFIER
from hacrl_web.registry.models import Benchmark
from hacrl_web.registry.rewards.service import MAX_RESPONSE, reward_of
from hacrl_web.web.errors import FieldErrors

MAX_GOLD = 10_000
PARQUET_MEMORY_BYTES = 4 * 2**30  # pyarrow maps much more than it uses


def ask_importer(request: dict[str, Any], field: str, held_out_field: str = "", hub_token: str = "") -> dict[str, Any]:
    """The child's answer. Error: FieldErrors with its message at `field`, or at `held_out_field` for that file."""
    memory_bytes = PARQUET_MEMORY_BYTES if _needs_libraries(request) else 0
    answer = IMPORTER.ask(at=field, request=request, memory_bytes=memory_bytes, hub_token=hub_token)
    if answer.get("error"):
        error_field = held_out_field if held_out_field and answer.get("is_held_out") else field
        raise FieldErrors.single("bad_file", str(answer["error"]), error_field)
    return answer


def _needs_libraries(request: dict[str, Any]) -> bool:
    """Whether the child loads pyarrow, the hub's client or reasoning-gym."""
    files = [*request.get("files", []), *request.get("train", []), *request.get("held_out", [])]
    return request["verb"] == "fetch" or any(_is_parquet(file["path"]) for file in files)


def _is_parquet(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def ask_verifier(benchmark: Benchmark, *, gold: object, response: object) -> dict[str, Any]:
    """{reward (None: unscorable), reason, extracted, seconds}. Error: FieldErrors."""
    checker = values.Checker()
    gold = checker.take("gold", values.lines, gold, MAX_GOLD, "Write the reference answer.")
    response = checker.take("response", values.lines, response, MAX_RESPONSE, "Write a response.")
    gold, response = checker.finish(gold, response)
    if source := benchmark.reward_function or benchmark.judge:
        return reward_of(source, question="", gold=gold, response=response) | {"extracted": None}
    rules = {"verifier": benchmark.verifier, "tolerance": benchmark.tolerance, "extraction": benchmark.extraction}
    request = rules | {"gold": gold, "response": response}
    answer = VERIFIER.ask(at="response", request=request)
    if answer.get("error"):
        raise FieldErrors.single("verifier_failed", str(answer["error"]), status=503)
    return {key: answer.get(key) for key in ("reward", "reason", "extracted", "seconds")}
