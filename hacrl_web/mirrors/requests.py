"""What pages and API read of a request: the mirror that it names."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import project_for
from hacrl_web.mirrors.models import Mirror


def mirror_of(request: HttpRequest, project_id: int, mirror_id: int) -> Mirror:
    """A mirror of a project, for its admins. Errors: Http404, FieldErrors (403)."""
    project = project_for(request, project_id, Role.ADMIN)
    return get_object_or_404(Mirror.objects.filter(project=project), pk=mirror_id)
