"""Try an answer: a response against a reference answer by a benchmark's verifier, in a short child process."""

from __future__ import annotations

from typing import Any

from hacrl_web.registry import values
from hacrl_web.registry.children import VERIFIER
from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldError, FieldErrors

MAX_GOLD = 10_000
MAX_RESPONSE = 100_000


def ask_verifier(benchmark: Benchmark, *, gold: object, response: object) -> dict[str, Any]:
    """{reward (None: unscorable), reason, extracted, seconds}. Error: FieldErrors."""
    checker = values.Checker()
    gold = checker.take("gold", _text, gold, MAX_GOLD, "Write the reference answer.")
    response = checker.take("response", _text, response, MAX_RESPONSE, "Write a response.")
    gold, response = checker.finish(gold, response)
    request = {"verifier": benchmark.verifier, "tolerance": benchmark.tolerance, "gold": gold, "response": response}
    answer = VERIFIER.ask(at="response", request=request)
    if answer.get("error"):
        raise FieldErrors([FieldError("verifier_failed", str(answer["error"]), None)], 503)
    return {key: answer.get(key) for key in ("reward", "reason", "extracted", "seconds")}


def _text(value: object, most: int, missing: str) -> str:
    if not isinstance(value, str):
        raise values.ValueProblem("not_text", "Text is needed.")
    text = value.replace("\x00", "").replace("\r\n", "\n").encode("utf-8", "replace").decode()
    if not text.strip():
        raise values.ValueProblem("missing", missing)
    if len(text) > most:
        raise values.ValueProblem("too_long", f"At most {most:,} characters; these are {len(text):,}.")
    return text
