"""The Celery worker as designed: early ack, no prefetch, JSON only, time-outs to Redis."""

from types import SimpleNamespace

import pytest
from celery import Celery, current_app

from hacrl_web.celery import app
from hacrl_web.runs.models import Drain, Host, Run
from hacrl_web.runs.worker import tasks
from hacrl_web.runs.worker.hosts import data_folder_id, host_name
from tests.support.web.factories import make_run


def test_messages_are_acknowledged_early_and_carry_json_only():
    assert tasks.train.acks_late is False
    assert tasks.train.ignore_result is True
    conf = app.conf
    assert (conf.task_acks_late, conf.task_serializer, conf.accept_content) == (False, "json", ("json",))
    assert (conf.worker_prefetch_multiplier, conf.worker_disable_prefetch) == (1, True)
    assert conf.result_backend is None
    assert not conf.task_publish_retry
    assert current_app.main == app.main


def test_redis_that_is_frozen_cannot_hold_a_sender_for_ever():
    options = app.conf.broker_transport_options
    assert options["socket_timeout"] <= 5
    assert options["socket_connect_timeout"] <= 5
    assert app.conf.broker_connection_max_retries is None  # the worker comes back, however long Redis is away


def test_worker_consumes_the_messages_for_all_and_those_for_its_own_folder():
    worker = SimpleNamespace(app=Celery("worker", set_as_current=False))
    tasks._consume_queue_of_folder(worker)
    assert set(worker.app.amqp.queues.consume_from) == {"celery", f"celery.{data_folder_id()}"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("fake_trainer")
def test_message_of_a_run_that_has_ended_is_dropped_quietly(caplog):
    run = make_run()
    run.request_stop()
    before = run.status_changes.count()
    caplog.clear()  # Redis, which is not there, is named once in 5 s
    tasks.train(str(run.pk))
    assert run.status_changes.count() == before
    assert not caplog.records


@pytest.mark.django_db(transaction=True)
def test_worker_that_shuts_down_claims_nothing(monkeypatch):
    run = make_run()
    monkeypatch.setattr(tasks, "_shutting_down", bytearray(b"\x01"))
    tasks.train(str(run.pk))
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("queued", 0)
    assert tasks.supervise(run.pk, is_shutting_down=lambda: True) is False


@pytest.mark.django_db
@pytest.mark.parametrize("why", ["full", "drained"])
def test_worker_of_a_host_that_takes_no_runs_passes_its_message_on_and_waits(monkeypatch, why):
    run = make_run()
    Run.objects.filter(pk=run.pk).update(data_folder="of here")
    host = Host.objects.create(name=host_name(), drain=Drain.FINISH if why == "drained" else Drain.NO)
    happened = []

    def sleep(_):
        happened.append("wait")
        if len(happened) == 3:
            Host.objects.filter(pk=host.pk).update(drain=Drain.NO)

    monkeypatch.setattr(tasks, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(tasks, "full_disk", lambda: "Full." if why == "full" and len(happened) < 3 else "")
    monkeypatch.setattr(tasks.worker_queue, "notify_worker", lambda *message: happened.append(message))
    monkeypatch.setattr(tasks, "supervise", lambda run_id, **_: happened.append(run_id))
    tasks.train(str(run.pk))
    assert happened == [(run.pk, "of here"), "wait", "wait", run.pk]


@pytest.mark.django_db
def test_worker_that_ends_does_not_wait_for_room(monkeypatch):
    run = make_run()
    monkeypatch.setattr(tasks, "full_disk", lambda: "Full.")
    monkeypatch.setattr(tasks, "_shutting_down", bytearray(b"\x00"))
    monkeypatch.setattr(tasks.worker_queue, "notify_worker", lambda *_: tasks._note_shutdown())
    tasks.train(str(run.pk))
    assert Run.objects.get().state == "queued"
