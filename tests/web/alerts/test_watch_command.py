"""`manage.py watch`, the process itself: from stored metrics to a message that is sent, until TERM."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import OperationalError

from hacrl_web.alerts.models import Delivery, NotificationSettings
from hacrl_web.ops.loop import repeat
from hacrl_web.runs.models import Run, State, TelemetryEvent
from tests.support.waiting import wait_until
from tests.support.web.factories import make_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def tell_of_a_trap(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, last_seq=6)
    for step in (1, 2, 3):
        common = {"run": run, "attempt": 1, "step": step, "time": time.time()}
        payload = {"values": {}, "ratios": {"clip_lower_frac/positive": [9, 10]}}
        TelemetryEvent.objects.create(
            seq=2 * step - 1, type="metrics", agent="A", source="B", payload=payload, **common
        )
        TelemetryEvent.objects.create(seq=2 * step, type="progress", payload={}, **common)


def watch_until(condition) -> None:
    """Run the command here, and send it TERM once the condition holds (or 20 s are over)."""
    held = []

    def end():
        held.append(wait_until(condition))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=end)
    thread.start()
    call_command("watch", interval=0.05)
    thread.join()
    assert held == [True]


def test_trap_in_the_metrics_ends_as_a_mail(user):
    NotificationSettings.objects.create(user=user, email_enabled=True, email="a@b.test")
    tell_of_a_trap(make_run(user, name="swan"))
    watch_until(lambda: len(mail.outbox) == 1)
    assert mail.outbox[0].subject == "Delta trap, at step 3 of swan"
    assert wait_until(lambda: Delivery.objects.get().state == "sent")


def test_failed_act_ends_neither_the_loop_nor_the_next_act():
    ended, looks = threading.Event(), []

    def fail():
        looks.append("first")
        raise (OperationalError if len(looks) > 2 else RuntimeError)("gone")

    def note():
        looks.append("second")
        if len(looks) == 4:
            ended.set()

    repeat([fail, note], ended, 0.0)
    assert looks == ["first", "second"] * 2
