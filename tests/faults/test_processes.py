"""Faults 1 to 5, 13 and 14: processes that are killed, frozen, deaf or terminated, in a whole product.

README.md of this folder lists all faults and where each is proven.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import time
from uuid import UUID

import pytest

from hacrl_web.ops.processes import is_alive
from tests.faults.apps import SHORT
from tests.faults.conftest import Report
from tests.faults.invariants import TERMINAL
from tests.faults.world import World, wait
from tests.support.marks import in_full
from workers.trainer.checkpoints import newest_checkpoint

pytestmark = pytest.mark.slow
GRACE_S = SHORT["hacrl_web.runs.worker.supervisor.STOP_GRACE_S"][1]
LEASE_S = SHORT["hacrl_web.runs.worker.dispatcher.LEASE_S"][1]
NOTIFY_S = SHORT["hacrl_web.runs.worker.dispatcher.NOTIFY_EVERY_S"][1]
TRAINER_GONE_S = 2.0  # promised, and no time-out shortens it
REQUEUED_S = 10.0  # promised
TASK = "hacrl.train"


def reasons(world: World, run_id, state: str = "queued") -> str:
    return " ".join(reason for to, reason in world.changes(run_id) if to == state)


@pytest.mark.parametrize("victim", ["worker", *in_full("pool child", "trainer")])
def test_killed_process_costs_seconds_and_no_event(world: World, report: Report, victim: str) -> None:
    """Fault 1."""
    browsers = world.browsers()
    run_id = world.launch()
    browsers.watch(run_id)
    world.until_step(run_id, 25)
    trainer = world.trainer(run_id)
    pid = {"worker": world.pid("worker"), "pool child": world.worker_pid(run_id), "trainer": trainer.pid}[victim]
    report.kills(victim)
    os.kill(pid, signal.SIGKILL)
    wait(lambda: not is_alive(trainer), "the trainer is gone", TRAINER_GONE_S, pause_s=0.01)
    saved, _ = newest_checkpoint(world.run_dir(run_id))
    assert saved is not None
    wait(lambda: "queued" in [to for to, _ in world.changes(run_id)[1:]], "the run is queued again", REQUEUED_S)
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    # It may have died between a save and its event, so the disk shows where the next one continues.
    saves = [step for _, attempt, kind, step in world.database.places(run_id) if kind == "checkpoint" and attempt == 1]
    assert world.starts(run_id)[2] == saved.step >= max(saves) >= 20
    words = {"trainer": "SIGKILL and reported no outcome"}.get(victim, "worker (process .* is gone|was killed)")
    found = re.search(words, reasons(world, run_id))
    assert found
    page = world.ask(f"/runs/{run_id}/events")
    assert page.status == 200
    assert found[0] in page.text
    world.until_step(run_id, world.step(run_id) + 5)
    world.end(run_id)
    report.ends(run_id, browsers, recovered_s)


@pytest.mark.full
def test_begun_run_goes_on_at_once_though_other_hosts_are_idle(world: World, report: Report) -> None:
    """Two hosts with other data folders take any message that is for all; those of a begun run are not for them."""
    run_id = world.launch()
    world.until_step(run_id, 12)
    names = ["elsewhere-1", "elsewhere-2"]
    for name in names:
        world.add_worker(HACRL_DATA=str(world.folder / name), HACRL_HOST=name)
    seen_hosts = "SELECT count(*) FROM runs_host WHERE name IN (?, ?) AND last_seen IS NOT NULL"
    wait(lambda: world.database.rows(seen_hosts, *names) == [(2,)], "the other hosts are up", 60)
    client = world.redis_client()
    wait(lambda: client.llen("celery") == 0, "a second message of the launch, which was for all, is taken")
    client.close()
    before = {name: len(world.log(name)) for name in ("worker2", "worker3")}
    for attempt in (2, 3, 4):
        report.kills(f"trainer {attempt - 1}, with two idle hosts beside its own")
        world.trainer(run_id).kill()
        world.until_attempt(run_id, attempt)
        recovered_s = report.seconds
    assert [name for name, length in before.items() if "received" in world.log(name)[length:]] == []
    world.end(run_id)
    report.ends(run_id, recovered_s=recovered_s)


@pytest.mark.full
def test_children_of_a_trainer_go_with_it(world: World, report: Report) -> None:
    """Fault 2: they ignore TERM and have their own minds; the trainer is killed, and later stopped."""
    run_id = world.launch("orphan")
    world.until_step(run_id, 12)
    born = world.processes(run_id)
    assert len(born) == 3
    report.kills("trainer with children")
    world.trainer(run_id).kill()
    wait(lambda: not any(map(is_alive, born)), "the children are gone", TRAINER_GONE_S, pause_s=0.01)
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    assert len(wait(lambda: len(p := world.processes(run_id)) == 3 and p, "it has children again")) == 3
    world.end(run_id)
    assert world.state(run_id) == "stopped"
    report.ends(run_id, recovered_s=recovered_s)


@pytest.mark.full
def test_deaf_trainer_is_killed_after_its_grace_and_only_then_stopped(world: World, report: Report) -> None:
    """Fault 3."""
    run_id = world.launch("deaf")
    world.until_step(run_id, 5)
    trainer = world.trainer(run_id)
    report.kills("nothing: a trainer that ignores TERM is stopped")
    world.stop_run(run_id)
    wait(lambda: not is_alive(trainer), "the trainer is gone", GRACE_S + 5)
    gone_s = report.seconds
    assert gone_s > GRACE_S - 0.5
    world.until_state(run_id, "stopped", seconds=10)
    assert "the trainer was killed" in reasons(world, run_id, "stopped")
    report.ends(run_id, recovered_s=gone_s)


@pytest.mark.full
def test_host_that_takes_no_runs_leaves_messages_to_another(world: World, report: Report) -> None:
    """It takes one message, passes it on, and none further, until it takes runs again."""
    here = {"name": socket.gethostname()}
    assert world.ask("/api/v1/hosts/drain", {**here, "drain": "finish"}).status == 200
    report.kills("the only host drained")
    before = len(world.log("worker"))
    first, second = world.launch(), world.launch()
    client = world.redis_client()
    wait(lambda: "this host takes no runs" in world.log("worker")[before:], "the message is passed on")
    time.sleep(3 * NOTIFY_S)
    assert world.log("worker")[before:].count("received") == 1
    assert client.llen("celery") >= 1
    client.close()
    world.add_worker(HACRL_DATA=str(world.folder / "roomy"), HACRL_HOST="roomy")
    wait(lambda: "roomy" in [host_of(world, run_id) for run_id in (first, second)], "the other host takes a run", 60)
    assert world.ask("/api/v1/hosts/drain", {**here, "drain": "no"}).status == 200
    wait(lambda: all(host_of(world, run_id) for run_id in (first, second)), "both hosts have a run", 30)
    assert world.log("worker")[before:].count("this host takes no runs") == 1
    for run_id in (first, second):
        world.end(run_id)
    report.ends(second)


def host_of(world: World, run_id: UUID) -> str:
    ((host,),) = world.database.rows("SELECT worker_host FROM runs_run WHERE id = ?", run_id)
    return str(host)


@pytest.mark.full
def test_thawed_supervisor_writes_nothing_and_ends_its_trainer(world: World, report: Report) -> None:
    """Fault 4: frozen past its lease while a second worker waits for the run."""
    run_id = world.launch()
    world.until_step(run_id, 15)
    world.add_worker()
    trainer = world.trainer(run_id)
    frozen = world.freeze_supervisor(run_id)
    report.kills("supervisor frozen past its lease")
    wait(lambda: "no heartbeat" in reasons(world, run_id), "its silence is noticed", 3 * LEASE_S)
    assert report.seconds > LEASE_S - 1
    before = world.database.run(run_id)
    time.sleep(2)
    assert is_alive(trainer)  # no worker may take the run while its directory is in use
    assert world.database.run(run_id).last_seq == before.last_seq
    report.kills("supervisor frozen past its lease, thawed")
    frozen.resume()
    wait(lambda: not is_alive(trainer), "its trainer is gone", TRAINER_GONE_S + 3)
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    # Between the loss and the next claim nothing was written to the run in the first attempt's name.
    states = ["queued", "starting", "running", "lost", "queued", "starting", "running"]
    wait(lambda: [to for to, _ in world.changes(run_id)] == states, f"its history is {states}", 20)
    world.until_step(run_id, world.step(run_id) + 5)
    world.end(run_id)
    report.ends(run_id, recovered_s=recovered_s)


def test_hundred_messages_are_one_claim_and_old_ones_are_dropped(world: World, report: Report) -> None:
    """Fault 5."""
    from celery import Celery

    address = world.redis_url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")
    sender = Celery(broker=address, set_as_current=False)  # the current app is the product's
    old = world.launch("complete", steps=3)
    world.until_state(old, "completed")
    run_id = world.launch("complete", steps=30)
    log_before = len(world.log("worker"))
    report.kills("nothing: 100 messages, and those of a finished run")
    with sender.connection_for_write() as connection:
        for _ in range(100):
            sender.send_task(TASK, args=[str(run_id)], connection=connection)
            sender.send_task(TASK, args=[str(old)], connection=connection)
    world.until_state(run_id, "completed")
    client = world.redis_client()
    wait(lambda: client.llen("celery") == 0, "all messages are taken")
    client.close()
    assert (world.attempt(run_id), world.attempt(old)) == (1, 1)
    assert [to for to, _ in world.changes(run_id)] == ["queued", "starting", "running", "completed"]
    assert len(world.changes(old)) == 4
    assert not re.search("ERROR|WARNING|Traceback", world.log("worker")[log_before:])
    report.ends(run_id, recovered_s=report.seconds)
    report.ends(old)


@pytest.mark.parametrize("moment", ["loading", *in_full("queued", "starting")])
def test_stop_before_the_first_step_leaves_no_trainer(world: World, report: Report, moment: str) -> None:
    """Fault 13."""
    busy = world.launch() if moment == "queued" else None
    if busy:
        world.until_state(busy, "running")
    run_id = world.launch("complete load=30" if moment == "loading" else "complete")
    if moment == "starting":
        wait(lambda: world.state(run_id) != "queued", "it is claimed", pause_s=0.005)
    elif moment == "loading":
        world.trainer(run_id)
    report.kills(f"nothing: stopped while {moment}")
    world.stop_run(run_id)
    world.until_state(run_id, "stopped", seconds=GRACE_S + 15)
    recovered_s = report.seconds
    assert world.processes(run_id) == []
    if moment == "queued":
        assert [to for to, _ in world.changes(run_id)] == ["queued", "stopped"]
        assert recovered_s < 2
    report.ends(run_id, recovered_s=recovered_s)


@pytest.mark.full
def test_stop_against_finish_leaves_one_end(world: World, report: Report) -> None:
    """Fault 13, through everything; test_run_states.py races the database alone."""
    chance = random.Random(60)
    report.kills("nothing: 60 stops against finish")
    ends = []
    for _ in range(60):
        run_id = world.launch("complete pace=0.02", steps=6)
        wait(lambda run_id=run_id: world.state(run_id) not in ("queued", "starting"), "it runs", pause_s=0.01)
        time.sleep(chance.uniform(0, 0.4))
        world.stop_run(run_id)
        ends.append(world.until_state(run_id, *TERMINAL))
        report.ends(run_id)
    report.lines[:-1] = []
    assert set(ends) <= {"stopped", "completed"}
    print(f"{ends.count('stopped')} stopped, {ends.count('completed')} completed")


@pytest.mark.parametrize("moment", ["running", pytest.param("loading", marks=pytest.mark.full)])
def test_deploy_ends_with_a_checkpoint_and_the_run_goes_on_from_it(world: World, report: Report, moment: str) -> None:
    """Fault 14: TERM to `up`, then another `up`. No interruption is counted."""
    browsers = world.browsers()
    run_id = world.launch("complete load=2" if moment == "loading" else "complete", save_steps=0)
    browsers.watch(run_id)
    if moment == "running":
        world.until_step(run_id, 15)
    else:
        world.trainer(run_id)
    report.kills(f"`up` by TERM while {moment}")
    world.stop()
    assert world.processes(run_id) == []
    state, interruptions, step = world.database.rows(
        "SELECT state, interruptions, step FROM runs_run WHERE id = ?", run_id
    )[0]
    assert (state, interruptions) == ("queued", 0)
    assert "the worker is restarting" in reasons(world, run_id)
    world.start()
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    assert world.starts(run_id)[2] == step
    world.until_step(run_id, step + 5)
    world.end(run_id)
    report.ends(run_id, browsers, recovered_s)
