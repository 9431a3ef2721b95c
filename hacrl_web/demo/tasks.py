"""The demo that somebody starts in the browser: a worker makes its models, for it has the libraries."""

from __future__ import annotations

import logging

from hacrl_web.accounts.models import User
from hacrl_web.accounts.roles.projects import require_here
from hacrl_web.celery import app
from hacrl_web.demo.launch import DemoFailed, make_and_launch
from hacrl_web.runs.messages.worker_queue import send
from hacrl_web.runs.models import Host
from hacrl_web.runs.worker.restart import handled_message
from hacrl_web.runs.worker.tasks import worker_is_ending
from hacrl_web.runs.workspace.demo_state import note_failure, preparation
from hacrl_web.web.errors import FieldErrors
from workers.contract.demo_recipe import ENGINES, TINY

TASK_NAME = "hacrl.demo"
STOPPED = "HACRL Web was stopped while the models were made."
log = logging.getLogger(__name__)


def request_demo(user: User) -> bool:
    """Ask a worker to make the demo of a user; False if Redis does not answer."""
    return send(TASK_NAME, str(user.pk))


@app.task(name=TASK_NAME, acks_late=False, ignore_result=True)
def run_requested_demo(user_id: str) -> None:
    """Make, register and launch the demo; a message that comes while one is made starts no second one."""
    with handled_message():
        user = User.objects.filter(pk=user_id, is_active=True, is_staff=True).first()
        if user is None or preparation() is not None:
            return
        try:
            make_and_launch(user, TINY, "", [0], TINY.algorithms, ENGINES[0], is_new=False, check=_end_at_shutdown)
        except DemoFailed as failure:
            log.warning("%s", failure)
            note_failure(str(failure))
        except Exception:
            note_failure("An unexpected error; the worker's log has it.")
            raise


def _end_at_shutdown() -> None:
    if worker_is_ending():
        raise DemoFailed(STOPPED)


def start_demo(user: User) -> None:
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
