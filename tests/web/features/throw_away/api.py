from typing import Any

from django.http import HttpRequest
from ninja import Router

from tests.web.features.throw_away.models import Note

router = Router(tags=["notes"])


@router.get("/notes", response=list[str])
def list_notes(request: HttpRequest) -> Any:
    return list(Note.objects.values_list("text", flat=True))
