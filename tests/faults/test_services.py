"""Faults 6 and 8 to 12: Redis, the database, the web and the clock fail under a whole product.

README.md of this folder lists all faults and where each is proven.
"""

from __future__ import annotations

import os
import re
import signal
import time
from uuid import UUID

import psutil
import pytest

from hacrl_web.runs.live.broadcaster import POLL_S
from hacrl_web.runs.worker.restart import NUM_LOOKS
from tests.faults.apps import SHORT
from tests.faults.conftest import Report
from tests.faults.invariants import ledger
from tests.faults.records import numbers
from tests.faults.world import World, wait

pytestmark = pytest.mark.slow
NOTIFY_S = SHORT["hacrl_web.runs.worker.dispatcher.NOTIFY_EVERY_S"][1]
LEASE_S = SHORT["hacrl_web.runs.worker.dispatcher.LEASE_S"][1]
HOST_HEARTBEAT_S = SHORT["hacrl_web.runs.worker.hosts.HEARTBEAT_S"][1]
SUBMIT_S = 2.0  # promised
START_S = 30.0  # promised after Redis is back
NOTIFIED_WITHIN_S = NOTIFY_S + 5.0  # promised: 15 s, with a message every 10 s


def away(world: World, how: str) -> None:
    """Redis goes."""
    if how == "killed":
        world.redis.kill()
    else:
        world.redis.signal(signal.SIGSTOP)


def back(world: World, how: str) -> None:
    if how == "killed":
        world.redis.start()
    else:
        world.redis.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("how", "away_s"),
    [
        ("killed", 6),
        pytest.param("frozen", 9, marks=pytest.mark.full),
        pytest.param("killed", 30, marks=pytest.mark.full),
        pytest.param("frozen", 60, marks=pytest.mark.full),
    ],
)
def test_training_and_pages_go_on_without_redis(world: World, report: Report, how: str, away_s: float) -> None:
    """Fault 6."""
    browsers = world.browsers()
    run_id = world.launch()
    browsers.watch(run_id)
    world.until_step(run_id, 5)
    report.kills(f"Redis {how} for {away_s:g} s")
    away(world, how)
    step, cursor = world.step(run_id), browsers.cursors(run_id)[0]
    submitted = world.ask("/api/v1/runs", world.request("complete", 3))
    assert submitted.status == 201
    assert submitted.seconds < SUBMIT_S
    queued = UUID(submitted.body["id"])
    world.runs.append(queued)
    longest_s = _longest_silence(world, run_id, browsers, away_s)
    assert longest_s < POLL_S + 1.5
    assert world.step(run_id) > step + away_s  # 20 steps a second, were the machine idle
    assert browsers.cursors(run_id)[0] > cursor
    wait(lambda: browsers.all[0].link[-1:] == [True], "the page says that updates are delayed", 20)
    back(world, how)
    report.kills(report.killed)
    wait(lambda: browsers.all[0].link[-1:] == [False], "the page says that they are not", 30)
    world.end(run_id)
    world.until_state(queued, "completed", seconds=START_S)
    report.ends(run_id, browsers, report.seconds)
    report.ends(queued)


def _longest_silence(world: World, run_id: UUID, browsers, seconds: float) -> float:
    """The longest time in which the browser was shown nothing while more was stored."""
    started = since = time.monotonic()
    longest, cursor = 0.0, browsers.cursors(run_id)[0]
    while time.monotonic() - started < seconds:
        time.sleep(0.05)
        now = browsers.cursors(run_id)[0]
        stored = world.database.value(
            "SELECT max(seq) FROM runs_telemetryevent WHERE run_id = ? AND seq > ?", run_id, cursor
        )
        if now != cursor or stored is None:
            cursor, since = now, time.monotonic()
        longest = max(longest, time.monotonic() - since)
    return longest


@pytest.mark.full
def test_worker_that_takes_no_messages_restarts_once_it_is_idle(world: World, report: Report) -> None:
    """Fault 6: what Celery's consumer sometimes comes to after it; here it does for certain."""
    busy = world.launch()
    world.until_step(busy, 5)
    trainer, pid = world.trainer(busy), world.pid("worker")
    silence = world.data / "silence"
    silence.write_text("")
    queued = world.launch("complete", steps=3)
    log_before = len(world.log("worker"))
    step = world.step(busy)
    time.sleep((NUM_LOOKS + 1) * HOST_HEARTBEAT_S)  # an idle worker would be restarted by now
    assert world.trainer(busy) == trainer
    assert world.step(busy) > step
    world.end(busy)
    wait(lambda: not silence.exists(), "the consumer is silent", 5)
    report.kills("the worker's requests for messages")
    world.until_state(queued, "starting", "running", "completed", seconds=START_S)
    taken_s = report.seconds
    assert "restarting it" in world.log("worker")[log_before:]
    assert world.pid("worker") == pid  # in its place, so that a worker without `up` comes back too
    world.until_state(queued, "completed")
    assert world.attempt(busy) == world.attempt(queued) == 1
    report.ends(busy)
    report.ends(queued, recovered_s=taken_s)


@pytest.mark.full
def test_redis_restarted_again_and_again_starts_every_run(world: World, report: Report) -> None:
    """Fault 6: ten times, empty each time."""
    report.kills("Redis, ten times")
    runs = []
    for number in range(10):
        if number % 3 == 0:
            runs.append(world.launch("complete", steps=5))
        world.redis.kill()
        time.sleep(0.3)
        world.redis.start()
        time.sleep(0.7)
    report.kills(report.killed)
    for run_id in runs:
        world.until_state(run_id, "completed", seconds=START_S + 10)
        report.ends(run_id, recovered_s=report.seconds)
    report.lines[:-1] = []


@pytest.mark.parametrize("away_s", [7, pytest.param(30, marks=pytest.mark.full)])
def test_database_that_nobody_can_write_stops_no_trainer(world: World, report: Report, away_s: float) -> None:
    """Fault 8: SQLite locked (its writers wait 4 s here), PostgreSQL out of reach."""
    browsers = world.browsers()
    run_id = world.launch()
    browsers.watch(run_id)
    world.until_step(run_id, 10)
    trainer = world.trainer(run_id)
    report.kills(f"database locked or away for {away_s:g} s")
    with world.locked_database():
        emitted = len(ledger(world.run_dir(run_id)))
        refused = world.ask("/api/v1/runs", world.request("complete", 3))
        assert refused.status == 503
        assert "database is busy" in refused.text.lower()
        assert refused.body["error"]["code"] == "database_busy"
        time.sleep(max(0.0, away_s - report.seconds))
        assert len(ledger(world.run_dir(run_id))) > emitted + 11 * away_s  # 220 a second, were the machine idle
        behind = len(ledger(world.run_dir(run_id)))
    report.kills(report.killed)
    wait(lambda: world.database.run(run_id).last_seq >= behind, "the spool is drained")
    recovered_s = report.seconds
    assert world.trainer(run_id) == trainer
    assert world.attempt(run_id) == 1
    assert world.launch("complete", steps=3)  # and the web writes again
    world.end(run_id)
    report.ends(run_id, browsers, recovered_s)


@pytest.mark.parametrize("point", ["after-commit", pytest.param("in-transaction", marks=pytest.mark.full)])
def test_supervisor_that_dies_while_it_stores_loses_and_repeats_nothing(
    world: World, report: Report, point: str
) -> None:
    """Fault 9: between the commit and what it remembers of it, and in the middle of the transaction."""
    browsers = world.browsers()
    run_id = world.launch("complete", steps=80)
    browsers.watch(run_id)
    for attempt in (1, 2):
        world.until_attempt(run_id, attempt)
        world.until_step(run_id, 10 * attempt)
        report.kills(f"supervisor {point}")
        path = world.crash_at(point)
        wait(lambda path=path: not path.exists(), "it has come to the point")
        world.until_attempt(run_id, attempt + 1)
    recovered_s = report.seconds
    world.until_state(run_id, "completed")
    assert world.attempt(run_id) == 3
    report.ends(run_id, browsers, recovered_s)


def test_run_that_no_worker_was_notified_of_is_started_all_the_same(world: World, report: Report) -> None:
    """Fault 9: the web is killed between the commit of a launch and its message to the workers."""
    report.kills("web between commit and message")
    path = world.crash_at("before-notify")
    before = set(world.database.states())
    with pytest.raises(OSError):
        world.ask("/api/v1/runs", world.request("complete", 5))
    assert not path.exists()
    (run_id,) = set(world.database.states()) - before
    world.runs.append(run_id)
    wait(lambda: world.state(run_id) != "queued", "the dispatcher has notified a worker", NOTIFIED_WITHIN_S)
    started_s = report.seconds
    world.until_state(run_id, "completed")
    wait(lambda: _serves(world), "the web is back")
    report.ends(run_id, recovered_s=started_s)


def _serves(world: World) -> bool:
    try:
        return world.ask("/login").status == 200
    except OSError:
        return False


def test_fifty_browsers_outlive_the_web_without_a_gap(world: World, report: Report) -> None:
    """Fault 10."""
    browsers = world.browsers(50)
    run_id = world.launch("complete pace=0.2")  # their one thread has all their frames to read
    browsers.watch(run_id)
    wait(lambda: min(browsers.cursors(run_id)) > 100, "all are shown events")
    report.kills("web under 50 browsers")
    world.kill("web")
    killed_at = world.database.run(run_id).last_seq
    wait(lambda: min(browsers.cursors(run_id)) > killed_at, "all are shown what came after")
    recovered_s = report.seconds
    assert min(browser.connections for browser in browsers.all) >= 2
    world.end(run_id)
    report.ends(run_id, browsers, recovered_s)


@pytest.mark.parametrize("steps", [150, pytest.param(1500, marks=pytest.mark.full)])
def test_browser_that_takes_nothing_costs_no_memory_and_misses_nothing(
    world: World, report: Report, steps: int
) -> None:
    """Fault 11."""
    browsers = world.browsers(3)
    deaf = browsers.all[0]
    run_id = world.launch("complete pace=0.01", steps=steps)
    browsers.watch(run_id)
    wait(lambda: min(browsers.cursors(run_id)) > 20, "all are shown events")
    web = psutil.Process(world.pid("web"))
    before = web.memory_info().rss
    report.kills("nothing: a browser stops to take its frames")
    browsers.read(on=False, browser=deaf)
    world.until_state(run_id, "completed", seconds=240)
    last = world.database.places(run_id)[-1][0]
    wait(lambda: min(browsers.cursors(run_id)[1:]) == last, "the others are shown all", POLL_S + 10)
    grown_mib = (web.memory_info().rss - before) / 2**20
    assert grown_mib < 30
    browsers.read(on=True, browser=deaf)
    wait(lambda: deaf.cursors[run_id] == last, "it is shown all too")
    report.ends(run_id, browsers, report.seconds)


@pytest.mark.full
def test_update_that_is_lost_costs_one_poll(world: World, report: Report) -> None:
    """Fault 11: Redis is slow to the point that no update comes in time; no event waits longer than the poll."""
    browsers = world.browsers()
    run_id = world.launch()
    browsers.watch(run_id)
    world.until_step(run_id, 5)
    report.kills("the updates: Redis is cut off")
    world.redis_proxy.cut()
    longest_s = _longest_silence(world, run_id, browsers, 6)
    assert longest_s < POLL_S + 1.5
    world.redis_proxy.mend()
    world.end(run_id)
    report.ends(run_id, browsers, longest_s)


@pytest.mark.full
def test_tab_that_was_idle_for_long_is_still_live(world: World, report: Report) -> None:
    """Fault 11: longer than the pings of the server and every time-out on the way."""
    browsers = world.browsers()
    run_id = world.launch("complete load=75", steps=5)
    browsers.watch(run_id)
    report.kills("nothing: a tab without frames for 75 s")
    world.until_state(run_id, "completed", seconds=150)
    wait(lambda: browsers.all[0].states[run_id][-1] == "completed", "the tab shows it", POLL_S + 5)
    assert browsers.all[0].connections == 1
    report.ends(run_id, browsers, report.seconds)


@pytest.mark.full
@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_clock_that_jumps_loses_no_run(world: World, report: Report, ahead_s: int) -> None:
    """Fault 12."""
    run_id = world.launch()
    world.until_step(run_id, 10)
    trainer = world.trainer(run_id)
    report.kills(f"the clock: {ahead_s:+} s")
    (world.data / "clock").write_text(str(ahead_s))
    time.sleep(LEASE_S + 3)
    step = world.step(run_id)
    wait(lambda: world.step(run_id) > step, "it continues")
    assert world.trainer(run_id) == trainer
    assert [to for to, _ in world.changes(run_id)] == ["queued", "starting", "running"]
    world.end(run_id)
    report.ends(run_id, recovered_s=0.0)


@pytest.mark.full
def test_run_goes_on_at_once_after_a_reboot(world: World, report: Report) -> None:
    """Fault 12: everything dies in the same moment; the lease is not waited for."""
    browsers = world.browsers()
    run_id = world.launch()
    browsers.watch(run_id)
    world.until_step(run_id, 15)
    family = [*world.family(), *world.processes(run_id)]
    for process in family:
        process.suspend()
    for process in reversed(family):
        os.kill(process.pid, signal.SIGKILL)
    assert world.up is not None
    world.up.wait()
    world.redis.kill()
    assert world.up.stdout is not None
    world.up.stdout.close()
    assert world.state(run_id) == "running"  # no process could write otherwise
    report.kills("all at once, as in a power cut")
    world.redis.start()
    world.start()
    up_s = report.seconds
    wait(lambda: world.state(run_id) == "running" and world.attempt(run_id) == 2, "it runs", up_s + LEASE_S)
    recovered_s = report.seconds
    assert re.search("worker process .* is gone", " ".join(reason for _, reason in world.changes(run_id)))
    assert world.starts(run_id)[2] >= 10
    world.until_step(run_id, world.step(run_id) + 5)
    world.end(run_id)
    assert numbers(world.database.run(run_id).places)
    report.ends(run_id, browsers, recovered_s)
