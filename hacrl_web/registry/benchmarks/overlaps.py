"""How many questions of one benchmark also stand in another, counted by a short child process."""

from __future__ import annotations

from typing import Any

from hacrl_web.registry.benchmarks import importing
from hacrl_web.registry.models import Benchmark


def compare_with(own: Benchmark, other: Benchmark) -> dict[str, Any]:
    """{num_asked, num_same, num_near, examples: [{question, other, is_same}]}. Error: FieldErrors."""
    request = {
        "verb": "compare",
        "own": {"paths": own.paths, "question_field": own.question_field},
        "other": {"paths": other.paths, "question_field": other.question_field},
    }
    return importing.ask_importer(request, "other")
