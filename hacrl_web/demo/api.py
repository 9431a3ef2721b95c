"""The API's part for the demo: start it, and see how far it is."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.models import User
from hacrl_web.demo.launch import demo_sweeps
from hacrl_web.demo.tasks import start_demo
from hacrl_web.runs.workspace.demo_state import failure_text, preparation
from workers.contract.demo_recipe import TINY

router = Router(tags=["demo"])


class DemoAnswer(TypedDict):
    """activity: what is prepared now, empty if nothing is; sweep: the address of your newest demo."""

    activity: str
    percent: int | None
    failure: str
    sweep: str | None


def _answer(user: User) -> dict[str, Any]:
    now = preparation() if user.is_staff else None
    sweep = demo_sweeps(user, TINY).first()
    return {
        "activity": now.activity if now else "",
        "percent": now.percent if now else None,
        "failure": failure_text() if user.is_staff else "",
        "sweep": sweep.get_absolute_url() if sweep else None,
    }


@router.get("/demo", response=DemoAnswer, summary="What a demo prepares now, and your newest demo")
def get_demo(request: HttpRequest) -> Any:
    return _answer(request.user)


@router.post("/demo", response={202: DemoAnswer}, summary="Make the demo's models and launch it, for staff")
def post_demo(request: HttpRequest) -> Any:
    """A worker registers the models and queues the runs. 409 while one is prepared."""
    start_demo(request.user)
    return Status(202, _answer(request.user))
