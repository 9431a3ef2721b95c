"""Whether a run's hub models can be downloaded for the user who launches it, before it is queued.

Who registered a gated or private model had access to it, which says nothing of others. The question is short and
bounded: models that are known to be open, or with which a run has trained before, are not asked about, and a hub that
does not answer holds nothing up. The download before the trainer starts then says what is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django.core.cache import cache
from django.views.decorators.debug import sensitive_variables

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import require
from hacrl_web.registry.children import HUB_ACCESS
from hacrl_web.registry.hub_tokens import usable_hub_token
from hacrl_web.registry.models import AgentGroup, LanguageModel
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.model_download import hub_models
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import MAX_ID, whole_number
from workers.contract.spec.run import RunSpec

FIELD = "group"
SILENCE_S = 60  # after a hub that did not answer, in which it is not asked again
ACCESS_S = 600  # in which an answer without a refusal holds
SILENT = "hub-access-silent"
HubModel = tuple[str, str | None]  # hub id and revision


def require_hub_access(user: Any, project: Project, spec: RunSpec) -> None:
    """Error: LaunchError where the hub refuses a model of the run to the user. Outside of transactions: it takes time.

    Also FieldErrors: 403 for a viewer, for whom the project's Hub token is not used; 409 for a token that cannot be
    read.
    """
    _require(user, project, hub_models(spec))


def require_hub_access_to_group(user: Any, group_id: Any) -> None:
    """The same for the group of a request; nothing where the user sees no such group: planning the run says so."""
    pk = whole_number(group_id, MAX_ID)
    group = None if pk is None else AgentGroup.objects.visible_to(user).filter(pk=pk).first()
    if group is not None:
        rows = LanguageModel.objects.filter(agents__group=group, kind=LanguageModel.Kind.HUB).distinct()
        _require(user, group.project, [(row.location, row.revision) for row in rows])


@sensitive_variables("token")
def _require(user: Any, project: Project, models: Sequence[HubModel]) -> None:
    require(user, project, Role.MEMBER)
    pairs = {(hub_id, revision or "") for hub_id, revision in models}
    doubtful = [model for model in sorted(pairs) if not _is_available(*model)]
    if not doubtful or cache.get(SILENT):
        return
    token = usable_hub_token(user, project)
    key = f"hub-access-{hashlib.sha256(repr((token, doubtful)).encode()).hexdigest()}"
    if cache.get(key):
        return
    request = {"models": [(hub_id, revision or None) for hub_id, revision in doubtful]}
    try:
        answer = HUB_ACCESS.ask(at=FIELD, request=request, hub_token=token)
    except FieldErrors as failure:  # too slow, too many at once, or no answer: none of them holds the launch up
        if failure.errors[0].code != "too_slow":
            return
        answer = {"silent": True}
    if answer.get("silent"):
        cache.set(SILENT, True, SILENCE_S)
    refusals = answer.get("refusals")
    if isinstance(refusals, list) and refusals:
        raise LaunchError(FieldError("no_hub_access", str(text), FIELD) for text in refusals)
    if not answer.get("silent"):
        cache.set(key, True, ACCESS_S)


def _is_available(hub_id: str, revision: str) -> bool:
    """Whether everybody may download a model, by its registration, or a host's cache should hold it from a run."""
    named = {"kind": LanguageModel.Kind.HUB, "location": hub_id, "revision": revision}
    rows = LanguageModel.objects.filter(**named)
    if any(row.facts.get("is_restricted") is False for row in rows):
        return True
    return Run.objects.filter(group__agents__model__in=rows, step__gt=0, origin={}).exists()
