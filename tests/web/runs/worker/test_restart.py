"""A worker that takes no messages is restarted, and one that handles a message never is."""

import multiprocessing
import os

import pytest
from celery.worker import state

from hacrl_web.runs.messages import worker_queue
from hacrl_web.runs.worker import restart
from hacrl_web.runs.worker.restart import NUM_LOOKS, ConsumerCheck, handled_message


@pytest.fixture
def restarts(monkeypatch, settings):
    """One entry for each restart; a message waits in the queue for all."""
    done: list[int] = []
    monkeypatch.setattr(restart, "_replace_process", lambda: done.append(1))
    monkeypatch.setattr(worker_queue, "waiting", lambda folder: 0 if folder else 1)
    monkeypatch.setattr(state, "all_total_count", [0])
    return done


def looks(check: ConsumerCheck, count: int = NUM_LOOKS) -> None:
    for _ in range(count):
        check.look()


def test_idle_worker_that_leaves_a_message_waiting_is_restarted(restarts):
    check = ConsumerCheck(lambda: False)
    looks(check)  # the first has nothing to compare with
    assert restarts == []
    check.look()
    assert restarts == [1]


@pytest.mark.parametrize("answer", [0, None], ids=["empty queue", "no Redis"])
def test_worker_without_a_waiting_message_is_not_restarted(restarts, monkeypatch, answer):
    monkeypatch.setattr(worker_queue, "waiting", lambda folder: answer)
    looks(ConsumerCheck(lambda: False), 10)
    assert restarts == []


def test_worker_that_takes_messages_or_shuts_down_is_not_restarted(restarts):
    check = ConsumerCheck(lambda: False)
    for _ in range(10):
        check.look()
        state.all_total_count[0] += 1
    looks(ConsumerCheck(lambda: True), 10)
    assert restarts == []


def hold(begun, end) -> None:
    with handled_message():
        begun.set()
        end.wait(60)
    os._exit(0)


def test_worker_whose_child_handles_a_message_is_not_restarted_until_it_is_done(restarts):
    fork = multiprocessing.get_context("fork")
    begun, end = fork.Event(), fork.Event()
    child = fork.Process(target=hold, args=(begun, end))
    child.start()
    assert begun.wait(60)
    check = ConsumerCheck(lambda: False)
    looks(check, 10)
    assert restarts == []
    end.set()
    child.join(60)
    looks(check)
    assert restarts == [1]
