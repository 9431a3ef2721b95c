"""Faults 16 to 18 and 21: trainers that are killed while they save, diverge, run out of memory, or never come up.

README.md of this folder lists all faults and where each is proven.
"""

from __future__ import annotations

import random
import signal
import time

import pytest

from hacrl_web.ops.processes import is_alive
from tests.faults.conftest import Report
from tests.faults.invariants import TERMINAL
from tests.faults.world import World, wait
from workers.contract.trainer_log import allocated_bytes, limit_mib, read_output
from workers.trainer.checkpoints import FOLDER_NAME, newest_checkpoint

pytestmark = pytest.mark.full  # the trainer alone: tests/workers/trainer; its supervisor: tests/web/runs/worker


def test_kill_at_any_moment_of_a_save_leaves_a_sound_checkpoint(world: World, report: Report) -> None:
    """Fault 16: the real saver is killed; test_checkpoint.py damages files one by one."""
    kills = 40
    chance = random.Random(kills)
    report.kills(f"trainer in a save, {kills} times")
    for number in range(kills):
        if number % 3 == 0:  # a fourth interruption would end a run
            run_id = world.launch("complete pace=0.01 save=0.05", save_steps=2)
        attempt = number % 3 + 1
        world.until_attempt(run_id, attempt)
        root = world.run_dir(run_id) / FOLDER_NAME
        before = newest_checkpoint(world.run_dir(run_id))[0]
        wait(lambda root=root: list(root.glob(".building-*")), "it saves", pause_s=0.001)
        time.sleep(chance.uniform(0, 0.15))
        trainer = world.trainer(run_id)
        trainer.send_signal(signal.SIGKILL)
        wait(lambda trainer=trainer: not is_alive(trainer), "it is gone")
        found, problems = newest_checkpoint(world.run_dir(run_id))
        if attempt < 3 and number + 1 < kills:
            assert problems == []
            assert before is None or (found is not None and found.step >= before.step)
            continue
        world.until_attempt(run_id, attempt + 1)
        world.end(run_id)
        report.ends(run_id, recovered_s=report.seconds)


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_damaged_checkpoint_is_named_and_the_one_before_is_used(world: World, report: Report, damage: str) -> None:
    """Fault 16."""
    browsers = world.browsers()
    run_id = world.launch(save_steps=5)
    browsers.watch(run_id)
    world.until_step(run_id, 12)
    trainer = world.trainer(run_id)
    trainer.suspend()
    newest, before = sorted((world.run_dir(run_id) / FOLDER_NAME).glob("step-*"), reverse=True)[:2]
    file = next(newest.glob("agents/0-*/weights.bin"))
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content if damage == "flipped" else content[:-1])
    report.kills(f"trainer, and its newest checkpoint {damage}")
    trainer.kill()
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    assert world.starts(run_id)[2] == int(before.name.removeprefix("step-"))
    wait(lambda: any(f"{newest.name}: agents/0-" in m for m in world.messages(run_id)), "the file is named", 20)
    world.until_step(run_id, int(newest.name.removeprefix("step-")) + 6)
    world.end(run_id)
    report.ends(run_id, browsers, recovered_s)


@pytest.mark.parametrize(
    ("name", "reason"), [("nan@7", "diverged: the loss of step 7 is not finite"), ("memory@4", "MiB were not enough")]
)
def test_trainer_that_cannot_go_on_fails_with_its_own_words(
    world: World, report: Report, name: str, reason: str
) -> None:
    """Fault 17, from the trainer's last word to the page; test_guards.py proves what comes before it."""
    browsers = world.browsers()
    report.kills(f"nothing: {name}")
    run_id = world.launch(name)
    browsers.watch(run_id)
    world.until_state(run_id, *TERMINAL)
    assert world.changes(run_id)[-1][0] == "failed"
    assert reason in world.changes(run_id)[-1][1]
    assert reason in world.ask(f"/runs/{run_id}").text
    report.ends(run_id, browsers, report.seconds)


@pytest.mark.parametrize(
    ("name", "line"),
    [("dies", "dies at every start"), ("crash@6", "the last line before")],
)
def test_run_that_dies_each_time_fails_with_its_last_lines(world: World, report: Report, name: str, line: str) -> None:
    """Fault 18: three more tries, then the end."""
    report.kills(f"nothing: {name}")
    run_id = world.launch(name)
    world.until_state(run_id, "failed")
    assert world.attempt(run_id) == 4
    state, reason = world.changes(run_id)[-1]
    assert (state, reason.startswith("interrupted 4 times")) == ("failed", True)
    assert line in reason
    assert [to for to, _ in world.changes(run_id)].count("starting") == 4
    report.ends(run_id, recovered_s=report.seconds)


def test_hung_step_leaves_its_stacks_and_the_run_goes_on(world: World, report: Report) -> None:
    """Fault 18; test_pause.py proves when a trainer is considered hung."""
    browsers = world.browsers()
    run_id = world.launch("hang@12", save_steps=5, compute={"stall_timeout_s": 3})
    browsers.watch(run_id)
    world.until_step(run_id, 11)
    report.kills("nothing: step 12 hangs")
    world.until_attempt(run_id, 2)
    recovered_s = report.seconds
    assert world.starts(run_id)[2] == 10
    assert any("considered hung" in reason for to, reason in world.changes(run_id) if to == "queued")
    assert "_misbehave" in (world.run_dir(run_id) / "trainer.log").read_text()  # where it hung
    world.end(run_id)
    assert world.state(run_id) == "stopped"
    report.ends(run_id, browsers, recovered_s)


def test_trainer_killed_by_the_kernel_comes_back_where_it_was(world: World, report: Report) -> None:
    """Fault 17: out of memory ends a process without a word."""
    browsers = world.browsers()
    report.kills("trainer, by SIGKILL from nowhere, at step 14 of each attempt")
    run_id = world.launch("killed@14", save_steps=5)
    browsers.watch(run_id)
    world.until_state(run_id, "failed")
    assert world.starts(run_id) == {1: 0, 2: 10, 3: 10, 4: 10}
    report.ends(run_id, browsers, report.seconds)


def test_flood_of_lines_hides_nothing(world: World, report: Report) -> None:
    """Fault 21: more than 10,000 lines a second on its output, 12 MB in all, beside the events."""
    browsers = world.browsers()
    report.kills("nothing: 600,000 lines in a few seconds")
    run_id = world.launch("flood pace=0.1 lines=30000", steps=20)
    browsers.watch(run_id)
    world.until_state(run_id, "completed")
    assert world.ask(f"/runs/{run_id}").seconds < 5
    shown = list(read_output(world.run_dir(run_id)))
    assert shown[0] == "step 1 line 0"
    assert shown[-1] == "step 20 line 29999"
    assert sum(line.startswith("[cut: ") for line in shown) == 1
    assert allocated_bytes((world.run_dir(run_id) / "trainer.log").stat()) < (limit_mib() + 1) * 2**20
    report.ends(run_id, browsers, report.seconds)
