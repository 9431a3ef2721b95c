"""The API's part for presets: what each sets, and what it needs with the agents of a group."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router
from typing_extensions import TypedDict

from hacrl_web.registry.models import AgentGroup
from hacrl_web.runs.launch.presets import memory_of_presets, presets, sections_of
from hacrl_web.web.page_query import MAX_ID

router = Router(tags=["runs"])


class PresetMemoryAnswer(TypedDict):
    """text: the estimate on the machine for which the preset is made, or why it does not fit there."""

    text: str
    fits: bool


class PresetAnswer(TypedDict):
    """settings: sections as in the body of POST /runs.  confirm: codes of the cautions that it confirms.

    memory: null without a group, where the size of one of its models is unknown, and for presets of no machine.
    """

    name: str
    label: str
    settings: dict[str, dict[str, Any]]
    confirm: list[str]
    memory: PresetMemoryAnswer | None


class PresetsAnswer(TypedDict):
    items: list[PresetAnswer]


@router.get("/presets", response=PresetsAnswer, summary="Presets, and the memory that each needs with a group")
def list_presets(request: HttpRequest, group: Annotated[int | None, Query(ge=0, le=MAX_ID)] = None) -> Any:
    """`name` goes into `preset` of POST /runs or /sweeps: settings that the body has itself take precedence."""
    agents = []
    if group is not None:
        row = get_object_or_404(AgentGroup.objects.visible_to(request.user), pk=group)
        agents = list(row.agents.select_related("model"))
    memory = {one.name: {"text": one.text, "fits": one.fits} for one in memory_of_presets(agents)}
    return {"items": [_answer(row) | {"memory": memory.get(row["name"])} for row in presets()]}


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": row["name"],
        "label": row["label"],
        "settings": sections_of(row["values"]),
        "confirm": row["codes"],
    }
