"""The WebSocket through a real server: no gap, no duplicate, in order."""

import asyncio
import json
import signal
import time
from uuid import uuid4

import pytest

from hacrl_web.runs.live import broadcaster, consumers, event_reader
from hacrl_web.runs.messages import pubsub
from hacrl_web.runs.models import Run, State, TelemetryEvent
from hacrl_web.runs.telemetry.shipper import Shipper
from tests.support.web.factories import metrics, write_spool
from tests.support.web.live import Browser, claimed, emit, emit_in_thread
from tests.support.web.live import owner as owner
from tests.support.web.live import rare_poll as rare_poll
from tests.support.web.live import real_redis as real_redis
from tests.support.web.live import server as server
from tests.support.web.live import tab as tab

pytestmark = pytest.mark.django_db(transaction=True)


def event_seqs(run: Run) -> list[int]:
    return list(TelemetryEvent.objects.filter(run=run).order_by("seq").values_list("seq", flat=True))


@pytest.mark.usefixtures("real_redis")
class TestStream:
    def test_backlog_then_synced_then_live_events(self, rare_poll, tab, owner):
        run = claimed(owner)
        emit(run, 3)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        assert (tab.seqs, tab.synced) == ([1, 2, 3], [3])
        assert tab.runs[0]["state"] == "running"
        emit(run, 2, start=3)
        tab.until(lambda: tab.cursor == 5)  # by the update: there is no poll for a minute
        assert tab.seqs == [1, 2, 3, 4, 5]
        assert tab.synced == [3]

    def test_frames_hold_the_stored_event(self, tab, owner):
        run = claimed(owner)
        write_spool(run.run_dir, 1, metrics(7, "A\u2028'", "B", omega=0.5))
        Shipper(run.pk, run.run_dir, 1).ship()
        tab.sub(run)
        frame = tab.receive()
        (event,) = frame["events"]
        stored = run.events.get()
        assert event == {
            "seq": 1,
            "attempt": 1,
            "type": "metrics",
            "step": 7,
            "agent": "A\u2028'",
            "source": "B",
            "time": stored.time,
            "payload": {"values": {"omega": 0.5}, "ratios": {}},
        }

    def test_every_change_of_the_run_is_told_after_its_events(self, tab, owner):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        emit(run, 2)
        run.transition_to(State.FAILED, reason="NaN in step 2", attempt=1)
        pubsub.publish_update(run.pk)
        tab.until(lambda: tab.runs[-1]["state"] == "failed")
        assert tab.seqs == [1, 2]
        assert tab.runs[-1]["reason"] == "NaN in step 2"
        assert set(tab.runs[-1]) == {
            "op",
            "run",
            "state",
            "desired_state",
            "step",
            "total_steps",
            "attempt",
            "progress",
            "reason",
        }

    def test_reconnects_while_events_stream_leave_no_gap_and_no_duplicate(self, tab, owner):
        run = claimed(owner)
        thread = emit_in_thread(run, batches=40, size=50, pause_s=0.02)
        tab.sub(run)
        for at_least in (200, 600, 1100, 1700):
            tab.until(lambda at_least=at_least: tab.cursor >= at_least)
            tab.socket.close()
            tab.open()
            tab.sub(run)
        tab.until(lambda: tab.cursor == 2000)
        thread.join()
        assert tab.seqs == event_seqs(run) == list(range(1, 2001))

    def test_subscribing_again_starts_from_the_given_cursor(self, tab, owner):
        run = claimed(owner)
        emit(run, 10)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        tab.cursor, tab.seqs = 4, []
        tab.sub(run, after=4)
        tab.until(lambda: tab.cursor == 10)
        assert tab.seqs == [5, 6, 7, 8, 9, 10]

    def test_unsubscribed_run_is_silent(self, tab, owner):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        tab.send(op="unsub", run=str(run.pk))
        tab.send(op="ping")
        assert tab.receive()["op"] == "pong"
        emit(run, 3)
        with pytest.raises(TimeoutError):
            tab.receive(0.5)

    @pytest.mark.slow
    def test_browser_that_does_not_read_costs_only_itself(self, tab, owner, server, client, monkeypatch):
        monkeypatch.setattr(broadcaster, "MAX_QUEUED_BATCHES", 2)
        monkeypatch.setattr(event_reader, "BATCH_EVENTS", 50)
        real, overflows = broadcaster.Subscription.offer, []

        def offer(subscription, batch):
            was_live = subscription.is_live
            real(subscription, batch)
            overflows.extend([subscription] * (was_live and not subscription.is_live))

        monkeypatch.setattr(broadcaster.Subscription, "offer", offer)
        run = claimed(owner)
        slow = Browser(server, owner, client, is_slow=True)
        slow.sub(run)
        slow.until(lambda: slow.synced)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        big = {f"{'x' * 190} {number}": 1.0 for number in range(100)}  # fills the slow one's socket
        for step in range(10):
            write_spool(run.run_dir, 1, *(metrics(step, x=1.0) for _ in range(40)))
            write_spool(run.run_dir, 1, *(metrics(step, x=1.0, **big) for _ in range(40)))
            Shipper(run.pk, run.run_dir, 1).ship()
            tab.until(lambda step=step: tab.cursor == (step + 1) * 80)
        assert tab.seqs == list(range(1, 801))
        assert overflows, "the slow one was never slow"
        slow.until(lambda: slow.cursor == 800)
        assert slow.seqs == tab.seqs
        slow.socket.close()

    def test_numbers_of_rollouts_between_events_are_no_gap(self, tab, owner):
        run = claimed(owner)
        Run.objects.filter(pk=run.pk).update(last_seq=30)
        for seq in (1, 10, 20):
            TelemetryEvent.objects.create(run=run, seq=seq, attempt=1, type="log", payload={}, time=0)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        assert tab.seqs == [1, 10, 20]
        TelemetryEvent.objects.create(run=run, seq=31, attempt=1, type="log", payload={}, time=0)
        Run.objects.filter(pk=run.pk).update(last_seq=35)
        pubsub.publish_update(run.pk)
        tab.until(lambda: tab.cursor == 31)
        assert tab.seqs == [1, 10, 20, 31]

    @pytest.mark.slow
    def test_socket_that_was_idle_for_six_seconds_is_still_live(self, rare_poll, tab, owner):
        """redis-py 8 closes a silent connection after 5 s by default."""
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        time.sleep(6)
        emit(run, 1)
        tab.until(lambda: tab.cursor == 1)

    def test_killed_redis_only_slows_the_news_to_the_poll(self, tab, owner, real_redis):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        real_redis.kill()
        real_redis.wait()
        emit(run, 3)
        assert tab.until(lambda: tab.cursor == 3) < broadcaster.POLL_S + 1.5
        tab.until(lambda: tab.delayed == [True])  # and the page says so

    @pytest.mark.slow
    def test_frozen_redis_is_told_to_the_page_and_its_return_too(self, tab, owner, real_redis):
        run = claimed(owner)
        tab.sub(run)
        tab.until(lambda: tab.synced)
        real_redis.send_signal(signal.SIGSTOP)
        try:
            emit(run, 3)
            tab.until(lambda: tab.cursor == 3)
            tab.until(lambda: tab.delayed == [True], timeout_s=20)
        finally:
            real_redis.send_signal(signal.SIGCONT)
        tab.until(lambda: tab.delayed == [True, False], timeout_s=30)


async def test_events_offered_while_the_backlog_is_read_are_read_too():
    """The feed moves from 3 to 5 during the read: switching to live then would lose 4 and 5."""
    one = broadcaster.Broadcaster()
    run_id = uuid4()
    watched = one.feeds[run_id] = broadcaster.Feed(run_id, event_reader.Status(3, ""))
    subscription = broadcaster.Subscription(run_id, 0, asyncio.Event())
    watched.subscriptions.add(subscription)
    calls = []

    async def read(function, run_id, after, up_to):
        calls.append((after, up_to))
        if len(calls) == 1:
            watched.read_to = 5
            for other in watched.subscriptions:
                other.offer(event_reader.EventBatch(5, "4,5", 2))
        return event_reader.EventBatch(up_to, "", up_to - after)

    one.read = read
    subscription.cursor = (await one.read_backlog(subscription)).seq
    assert (subscription.cursor, subscription.is_live, list(subscription.queue)) == (3, False, [])
    subscription.cursor = (await one.read_backlog(subscription)).seq
    assert (subscription.cursor, subscription.is_live) == (5, True)
    assert calls == [(0, 3), (3, 5)]
    one._reader.shutdown()


@pytest.mark.parametrize("is_live", [True, False])
async def test_end_is_told_after_the_last_event_of_a_queue_longer_than_a_frame(monkeypatch, is_live):
    """Two batches, a frame each: queued, or still to be read."""
    monkeypatch.setattr(broadcaster, "FRAME_CHARACTERS", 1)
    one, run_id, sent = broadcaster.Broadcaster(), uuid4(), []
    watched = one.feeds[run_id] = broadcaster.Feed(run_id, event_reader.Status(2, '{"op":"run"}', is_terminal=True))
    subscription = broadcaster.Subscription(run_id, 0, asyncio.Event())
    watched.subscriptions.add(subscription)
    batches = [event_reader.EventBatch(1, "1", event_reader.BATCH_EVENTS), event_reader.EventBatch(2, "2", 1)]
    if is_live:
        subscription.is_live = subscription.is_synced = True
        subscription.queue.extend(batches)
    socket_of_page = consumers.RunConsumer()
    socket_of_page.broadcaster, socket_of_page.subscriptions = one, {run_id: subscription}

    async def read(*_):
        return batches.pop(0)

    async def note(text):
        sent.append(json.loads(text)["op"])

    one.read, socket_of_page._send_text = read, note
    assert await socket_of_page._serve(subscription)
    assert sent == ["events"]
    assert not await socket_of_page._serve(subscription)
    assert sent == ["events", "events", "run"] + ["synced"] * (not is_live)
    one._reader.shutdown()
