"""Who may start the demo in the browser or by API, and when."""

from __future__ import annotations

from typing import Any

from hacrl_web.accounts.projects import require_here
from hacrl_web.demo.tasks import request_demo
from hacrl_web.runs.demo_state import preparation
from hacrl_web.runs.models import Host
from hacrl_web.web.errors import FieldErrors


def start_demo(user: Any) -> None:
    """Ask a worker to make and launch the demo. Error: FieldErrors (403 for all but staff; 409; 503)."""
    if not user.is_staff:
        message = "Only staff may run the demo here, for its models lie in this server's model folder."
        raise FieldErrors.single("not_allowed", message, status=403)
    require_here(user)
    if preparation() is not None:
        raise FieldErrors.single("under_way", "The demo is being prepared already.", status=409)
    if all(host.is_silent or host.is_drained for host in Host.objects.with_now()):
        message = "No worker is running that takes work: see Workers and queue. ./hacrl up starts one."
        raise FieldErrors.single("no_worker", message, status=409)
    if not request_demo(user):
        raise FieldErrors.single("no_redis", "The message queue (Redis) does not answer: try again.", status=503)
