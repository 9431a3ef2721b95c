"""What a destination is told of a run: its name, address, tags and settings."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from hacrl_web.runs.models import Run


def facts_of(run: Run) -> dict[str, Any]:
    """As workers.mirrors.messages.MirroredRun."""
    return {
        "id": str(run.pk),
        "name": run.name,
        "project": str(run.project),
        "url": f"{settings.PUBLIC_URL}{run.get_absolute_url()}" if settings.PUBLIC_URL else "",
        "tags": run.tag_list,
        "created": run.created_at.timestamp(),
        "settings": _flat(run.spec),
    }


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Settings by dotted path; lists of plain values as text."""
    if isinstance(value, dict):
        parts = (_flat(item, f"{path}.{key}" if path else str(key)) for key, item in value.items())
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        parts = (_flat(item, f"{path}.{place}") for place, item in enumerate(value))
    else:
        return {path: value if isinstance(value, bool | int | float | str) else str(value)}
    return {name: item for part in parts for name, item in part.items()}
