"""The REST API's part for rollouts: the search of the Rollouts tab, and the queries that its users have named."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, QueryDict
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Schema, Status

from hacrl_web.insight.answers import RolloutsAnswer, SavedQueryAnswer
from hacrl_web.insight.models import MAX_QUERY, SavedQuery
from hacrl_web.insight.rollouts.filter import read_cursor, read_filter
from hacrl_web.insight.rollouts.search import search_rollouts
from hacrl_web.insight.rollouts.views import save_query
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.etags import check_version, edit_of, tagged
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["insight"])


class RolloutQuery(Schema):
    """The filters of the tab: step `12` or `10-20`, reward `1` or `0.2..0.8` or `none`, `q` a part of the text; the
    filters from `learner` on ask what a rollout taught, and find it once for each learner.
    """

    after: str = Query("", max_length=40)
    before: str = Query("", max_length=40)
    step: str = Query("", max_length=40)
    prompt: str = Query("", max_length=200)
    agent: str = Query("", max_length=200)
    source: str = Query("", max_length=200)
    reward: str = Query("", max_length=40)
    min_tokens: str = Query("", max_length=20)
    max_tokens: str = Query("", max_length=20)
    q: str = Query("", max_length=200)
    learner: str = Query("", max_length=200)
    sign: str = Query("", max_length=20)
    clip: str = Query("", max_length=20)
    lesson: str = Query("", max_length=40)
    min_advantage: str = Query("", max_length=40)
    max_advantage: str = Query("", max_length=40)


@router.get(
    "/runs/{run_id}/rollouts", response=RolloutsAnswer, summary="Rollouts that a filter finds, in the order of steps"
)
def find_rollouts(request: HttpRequest, run_id: UUID, query: Query[RolloutQuery]) -> Any:
    """`next` and `previous` go into `after` and `before`. A search that takes long stops at `stopped_at`: go on with
    `next`. What cannot be read of the filter is refused. The texts: /runs/{run_id}/rollout-text?seq=.
    """
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    parameters = {name: value for name, value in query.dict().items() if value}
    rollout_filter = read_filter(parameters, run.agent_names)
    after, before = read_cursor(query.after), read_cursor(query.before)
    cursors = (("after", after), ("before", before))
    odd = [f"{name} {parameters[name]!r}" for name, cursor in cursors if name in parameters and cursor is None]
    if odd or rollout_filter.ignored:
        message = f"This cannot be read, or is not known in this run: {', '.join([*odd, *rollout_filter.ignored])}."
        raise FieldErrors([FieldError("invalid", message, None)])
    page = (
        search_rollouts(run, rollout_filter, before, is_backward=True)
        if before
        else search_rollouts(run, rollout_filter, after)
    )
    return {
        "items": [asdict(hit) | {"taught": hit.taught._asdict() if hit.taught else None} for hit in page.hits],
        "next": str(page.after) if page.after else None,
        "previous": str(page.before) if page.before else None,
        "stopped_at": page.stopped_at,
    }


class SavedIn(StrictBody):
    """`run`: for this run only; without it for every run. `query` as in the address of the tab: step=3&agent=A."""

    name: Annotated[str, Field(max_length=60)]
    query: Annotated[str, Field(max_length=MAX_QUERY)]
    run: Annotated[str, Field(max_length=36)] | None = None


def saved(row: SavedQuery) -> dict[str, Any]:
    return {
        "id": row.pk,
        "name": row.name,
        "query": row.query,
        "run": str(row.run_id) if row.run_id else None,
        "created_at": row.created_at,
    }


def _mine(request: HttpRequest) -> Any:
    return SavedQuery.objects.all().visible_to(request.user)


@router.get("/saved-queries", response=PageOf[SavedQueryAnswer], summary="Your saved queries of the Rollouts tab")
def list_saved(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(_mine(request), query, saved)


@router.get("/saved-queries/{int:pk}", response=SavedQueryAnswer, summary="One of them, with its ETag")
def get_saved(request: HttpRequest, pk: int) -> Any:
    return tagged(request, saved(get_object_or_404(_mine(request), pk=pk)))


@router.post(
    "/saved-queries", response={201: SavedQueryAnswer}, summary="Save a query under a name; the same name replaces it"
)
def create_saved(request: HttpRequest, payload: SavedIn) -> Any:
    return Status(201, saved(_save(request, payload)))


@router.put(
    "/saved-queries/{int:pk}", response=SavedQueryAnswer, summary="Change a saved query; its ETag goes into If-Match"
)
def change_saved(request: HttpRequest, pk: int, payload: SavedIn) -> Any:
    with edit_of(SavedQuery, pk):
        row = get_object_or_404(_mine(request), pk=pk)
        check_version(request, saved(row))
        changed = _save(request, payload, instead_of=row)
        if changed.pk != row.pk:  # it has another name now
            row.delete()
    return tagged(request, saved(changed))


@router.delete("/saved-queries/{int:pk}", response={204: None}, summary="Forget a saved query")
def delete_saved(request: HttpRequest, pk: int) -> Any:
    get_object_or_404(_mine(request), pk=pk).delete()
    return Status(204, None)


def _save(request: HttpRequest, payload: SavedIn, instead_of: SavedQuery | None = None) -> SavedQuery:
    """Error: FieldErrors."""
    run = None
    if payload.run is not None:
        try:
            run = Run.objects.visible_to(request.user).filter(pk=UUID(payload.run)).first()
        except ValueError:
            run = None
        if run is None:
            raise FieldErrors([FieldError("not_found", "There is no such run.", "run")])
    try:
        parameters = {str(key): str(value) for key, value in QueryDict(payload.query).dict().items()}
    except ValueError:
        raise FieldErrors([FieldError("invalid", "This is no query of an address.", "query")]) from None
    # Which agents there are is known of a run only.
    agents = run.agent_names if run else [parameters.get(name, "") for name in ("agent", "source", "learner")]
    rollout_filter = read_filter(parameters, agents)
    odd = [*rollout_filter.ignored, *(name for name in parameters if name not in RolloutQuery.model_fields)]
    if odd:
        raise FieldErrors([FieldError("invalid", f"This cannot be read: {', '.join(odd)[:300]}.", "query")])
    return save_query(request.user, run, payload.name, rollout_filter, instead_of)
