"""What a run takes on the disk, as a part of its page. Views parse, call and render; disk.py counts."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from hacrl_web.runs.archive.disk_use import disk_use
from hacrl_web.runs.models import Run


@require_GET
def run_disk(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """What the run takes; asked for by the page after it is shown, because counting takes time."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    return render(request, "runs/archive/_disk.html", {"run": run, "use": disk_use(run)})
