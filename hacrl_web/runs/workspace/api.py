"""The API's part for the list of runs, its saved views, and the search by name."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, Query, Router, Status
from typing_extensions import TypedDict

from hacrl_web.runs.models import RunView
from hacrl_web.runs.workspace.saved_views import MAX_NAME, MAX_QUERY, delete_view, save_view
from hacrl_web.runs.workspace.search import rows_named
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import PageOf, StrictBody

router = Router(tags=["runs"])


class SearchResult(TypedDict):
    kind: str
    name: str
    url: str


class SearchAnswer(TypedDict):
    found: list[SearchResult]


@router.get("/find", response=SearchAnswer, summary="Find runs, sweeps, models, groups, benchmarks by name")
def find(request: HttpRequest, q: Annotated[str, Query(max_length=200)] = "") -> Any:
    return {"found": rows_named(request.user, q)}


class RunViewAnswer(TypedDict):
    """query: of the address of the list, such as `tag=best&by=algorithm`."""

    id: int
    name: str
    query: str
    owner: str
    project: int


class RunViewBody(StrictBody):
    name: str = Field(max_length=MAX_NAME)
    query: str = Field(max_length=MAX_QUERY)


def _row(view: RunView) -> dict[str, Any]:
    return {
        "id": view.pk, "name": view.name, "query": view.query, "owner": view.owner.username, "project": view.project_id,
    }  # fmt: skip


@router.get("/run-views", response=PageOf[RunViewAnswer], summary="Saved views of the list of runs")
def list_run_views(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(RunView.objects.visible_to(request.user).select_related("owner"), query, _row)


@router.post("/run-views", response={201: RunViewAnswer}, summary="Save a view of the list of runs for the project")
def create_run_view(request: HttpRequest, payload: RunViewBody) -> Any:
    """Save a view, in place of any view of this name. Parts of `query` that the list ignores are dropped."""
    return Status(201, _row(save_view(request.user, payload.name, payload.query)))


@router.delete("/run-views/{int:pk}", response={204: None}, summary="Delete a saved view; its runs stay")
def remove_run_view(request: HttpRequest, pk: int) -> Any:
    delete_view(request.user, get_object_or_404(RunView.objects.visible_to(request.user), pk=pk))
    return Status(204, None)
