"""The page of a run's tags and notes."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from hacrl_web.runs.labels import MAX_NOTES, MAX_TAG, MAX_TAGS, set_labels, split_tags, tags_of
from hacrl_web.runs.models import Run
from hacrl_web.runs.models.requests import visible_run
from hacrl_web.web.errors import FieldError, FieldErrors


@require_http_methods(["GET", "HEAD", "POST"])
def run_labels(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Tags and notes of a run, for members to change and for viewers to read."""
    run = visible_run(request, run_id)
    tags, notes = ", ".join(run.tag_list), run.notes
    errors: list[FieldError] = []
    status = 200
    if request.method == "POST":
        tags, notes = request.POST.get("tags", ""), request.POST.get("notes", "")
        try:
            set_labels(run, split_tags(tags), notes)
            messages.info(request, "Tags and notes are saved.")
            return redirect(run)
        except FieldErrors as refused:
            errors, status = refused.errors, refused.status
    context = {
        "run": run,
        "tags": tags,
        "notes": notes,
        "tag_errors": [error.message for error in errors if error.field == "tags"],
        "note_errors": [error.message for error in errors if error.field == "notes"],
        "known": tags_of(Run.objects.visible_to(request.user).filter(project=run.project_id)),
        "limits": {"tags": MAX_TAGS, "tag": MAX_TAG, "notes": MAX_NOTES, "text": MAX_TAGS * (MAX_TAG + 2)},
    }
    return render(request, "runs/pages/run_labels.html", context, status=status)
