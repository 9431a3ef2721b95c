"""The search by name among runs, sweeps and what is registered."""

from __future__ import annotations

from typing import Any

from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.web.page_query import clean_text

MOST_OF_A_KIND = 6
KINDS: dict[str, Any] = {
    "run": Run,
    "sweep": Sweep,
    "model": LanguageModel,
    "agent group": AgentGroup,
    "benchmark": Benchmark,
}


def rows_named(user: Any, text: str) -> list[dict[str, str]]:
    """Kind, name and address of the newest rows of each kind with this text in their name."""
    results: list[dict[str, str]] = []
    if words := clean_text(text):
        for kind, model in KINDS.items():
            rows = model.objects.visible_to(user).filter(name__icontains=words)
            newest = rows.only("pk", "name").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
            results += [{"kind": kind, "name": row.name, "url": row.get_absolute_url()} for row in newest]
    return results
