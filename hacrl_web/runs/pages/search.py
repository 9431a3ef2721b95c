"""What the search of every page asks for: runs and what they are made of, by a part of their name."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Run, Sweep

MOST_OF_A_KIND = 6
KINDS: dict[str, Any] = {
    "run": Run,
    "sweep": Sweep,
    "model": LanguageModel,
    "agent group": AgentGroup,
    "benchmark": Benchmark,
}


@require_GET
def find_page(request: HttpRequest) -> JsonResponse:
    """`q` is the part of the name; the newest of each kind that the user may see."""
    results = found_for(request.user, request.GET.get("q", ""))
    return JsonResponse({"found": results}, headers={"Cache-Control": "no-store"})


def found_for(user: Any, text: str) -> list[dict[str, str]]:
    """Kind, name and address of what has this text in its name."""
    words = text.replace("\x00", "").strip()[:200]
    return [
        {"kind": kind, "name": row.name, "url": row.get_absolute_url()}
        for kind, model in KINDS.items()
        for row in (_rows(model, user, words) if words else ())
    ]


def _rows(model: Any, user: Any, words: str) -> Any:
    rows = model.objects.visible_to(user).filter(name__icontains=words)
    return rows.only("pk", "name").order_by("-created_at", "-pk")[:MOST_OF_A_KIND]
