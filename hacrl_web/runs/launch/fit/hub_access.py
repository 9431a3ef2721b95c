"""Whether a run's hub models can be downloaded for the user who launches it, before it is queued.

Who registered a gated or private model had access to it, which says nothing of others. The hub is not asked about open
models and those with which a run has trained. If it does not answer, nothing is held up: the download before the
trainer starts then says what is wrong.
"""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.registry.base.children import HUB_ACCESS
from hacrl_web.registry.hub_tokens.service import usable_hub_token
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.model_download import hub_models
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.run import RunSpec

FIELD = "group"


@sensitive_variables("token")
def require_hub_access(user: User, project: Project, spec: RunSpec) -> None:
    """Error: LaunchError where the hub refuses a model of the run to the user. Outside of transactions: it takes time.

    Also FieldErrors: 403 for a viewer, for whom the project's Hub token is not used; 409 for a token that cannot be
    read.
    """
    require(user, project, Role.MEMBER)
    doubtful = [model for model in hub_models(spec) if not _is_available(*model)]
    if not doubtful:
        return
    token = usable_hub_token(user, project)
    try:
        answer = HUB_ACCESS.ask(at=FIELD, request={"models": doubtful}, hub_token=token)
    except FieldErrors:  # too slow, too many at once, or no answer
        return
    if refusals := answer.get("refusals"):
        raise LaunchError(FieldError("no_hub_access", str(text), FIELD) for text in refusals)


def _is_available(hub_id: str, revision: str | None) -> bool:
    """Whether everybody may download a model, by its registration, or a host's cache should hold it from a run."""
    rows = LanguageModel.objects.filter(kind=LanguageModel.Kind.HUB, location=hub_id, revision=revision or "")
    if any(row.facts.get("is_restricted") is False for row in rows):
        return True
    return Run.objects.filter(group__agents__model__in=rows, step__gt=0, origin={}).exists()
