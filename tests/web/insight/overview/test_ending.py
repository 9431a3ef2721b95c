"""The card of a failed, stopped or interrupted run: what happened, the likely cause, and the ways onward."""

from __future__ import annotations

import pytest
from django.utils import timezone

from hacrl_web.alerts.models import ENDED, Alert
from hacrl_web.insight.overview.ending import ending_of
from hacrl_web.leaderboard.board.row_settings import all_settings
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.sweeps.state import state_of
from tests.support.web.factories import make_member, make_run
from tests.support.web.insight_help import add_checkpoint, claimed
from tests.support.web.page_text import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(owner):
    """In its first attempt, at step 4 of 5, with checkpoints of steps 2 and 3."""
    run = claimed(owner)
    for step in (2, 3):
        add_checkpoint(run, step)
    (run.run_dir / "trainer.log").write_text("".join(f"line {number}\n" for number in range(30)))
    assert run.transition_to(State.RUNNING, reason="training", attempt=1, step=4)
    Run.objects.filter(pk=run.pk).update(total_steps=5)
    run.refresh_from_db()
    return run


def kill(run: Run) -> None:
    """As its supervisor does when the trainer is gone."""
    reason = "the trainer was killed by SIGKILL and reported no outcome\nline 29"
    assert run.requeue(reason=reason, attempt=run.attempt, is_interruption=True)


def test_run_killed_four_times_says_what_when_why_and_goes_on_from_its_checkpoint(run, web):
    Run.objects.filter(pk=run.pk).update(interruptions=3)
    run.refresh_from_db()
    kill(run)
    ending = ending_of(run)
    assert ending.headline == "The trainer was killed 4 times (SIGKILL), most recently at step 4."
    assert ending.reason == ""
    assert ending.cause.startswith("Often the machine ran out of memory")
    assert (ending.checkpoint_step, ending.steps_left, ending.is_over) == (3, 2, True)
    assert ending.lines.splitlines() == [f"line {number}" for number in range(10, 30)]
    page = text_of(web.get(run.get_absolute_url()))
    assert "Continue from step 3" in page
    assert "Edit and rerun" in page
    assert "Clone with fix" not in page
    web.post(f"/runs/{run.pk}/checkpoints/extend", {"step": 3, "steps": 2})
    child = Run.objects.get(cloned_from=run)
    assert (child.start_step, child.spec["training"]["steps"]) == (3, 5)


def test_trainer_killed_while_it_starts_again_is_not_dated_to_the_last_step(run):
    kill(run)
    Run.objects.filter(pk=run.pk).update(state=State.STARTING, attempt=2)
    run.refresh_from_db()
    kill(run)
    assert ending_of(run).headline == "The trainer was killed (SIGKILL) while it started again after step 4."


def test_continued_run_takes_the_place_of_the_failed_one_on_home_in_its_sweep_and_on_the_board(run, owner, web):
    sweep = Sweep.objects.create(owner=owner, project=run.project, name="both")
    Run.objects.filter(pk=run.pk).update(sweep=sweep, variant="hacpo", interruptions=3)
    run.refresh_from_db()
    kill(run)
    assert "Needs your attention" in text_of(web.get("/"))
    web.post(f"/runs/{run.pk}/checkpoints/extend", {"step": 3, "steps": 2})
    child = run.retries.get()
    assert (child.sweep, child.variant) == (sweep, "hacpo")
    assert "Needs your attention" not in text_of(web.get("/"))
    assert state_of(sweep).counts == {"queued": 1}
    assert "training.start_step" not in all_settings(child)
    page = web.get(child.get_absolute_url()).content.decode()
    assert "Continued from" in page
    assert "Retry of" not in page


def test_run_continued_beyond_its_end_is_a_run_of_its_own_and_the_failed_one_needs_nobody(run, web):
    Run.objects.filter(pk=run.pk).update(interruptions=3)
    run.refresh_from_db()
    kill(run)
    web.post(f"/runs/{run.pk}/checkpoints/extend", {"step": 3, "steps": 9})
    child = Run.objects.get(cloned_from=run)
    assert child.retry_of is None
    assert all_settings(child)["training.start_step"] == 3
    assert "Needs your attention" not in text_of(web.get("/"))


def test_failed_run_has_one_primary_button_and_delete_stands_last_in_its_menu(run, web):
    assert run.transition_to(State.FAILED, reason="ValueError: odd")
    page = web.get(run.get_absolute_url()).content.decode()
    header, rest = page.split('<details class="menu run-menu">')
    assert rest.split('aria-label="How it ended"')[1].split("</section>")[0].count("button-primary") == 1
    shown = header.split('<div class="run-primary"')[1]
    assert "button-primary" not in shown.split('id="continue"')[1]
    menu = rest.split("</header>")[0]
    assert menu.rindex("Delete…") > max(menu.rindex(act) for act in ("Archive…", "Retry…", "Export…"))


def test_interrupted_run_says_that_it_continues_by_itself(run, web):
    kill(run)
    ending = ending_of(run)
    assert (run.state, ending.headline) == ("queued", "The trainer was killed (SIGKILL) at step 4.")
    assert "it continues by itself" in text_of(web.get(run.get_absolute_url()))
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING)
    run.refresh_from_db()
    assert ending_of(run) is None


def test_damaged_checkpoint_is_not_offered(run):
    next((run.run_dir / "checkpoints" / "step-000003").rglob("weights.bin")).write_bytes(b"")
    assert run.transition_to(State.FAILED, reason="ValueError: odd")
    assert ending_of(run).checkpoint_step == 2


def test_stopped_run_names_who_and_no_cause(run):
    assert run.transition_to(State.STOPPED, reason="stopped by ada")
    ending = ending_of(run)
    assert (ending.headline, ending.reason, ending.cause) == ("Stopped at step 4.", "stopped by ada", "")


def test_alert_that_was_open_at_the_end_offers_its_fix(run, web):
    assert run.transition_to(State.STOPPED, reason="stopped by ada")
    now = timezone.now()
    about = {"run": run, "agent": "A", "attempt": 1, "number": 1.0, "raised_at": now, "cleared_at": now}
    Alert.objects.create(**about, kind="cross_clip", raised_seq=1, raised_step=1, cleared_reason="the number fell")
    assert "Clone with fix" not in text_of(web.get(run.get_absolute_url()))
    Alert.objects.create(**about, kind="cross_clip", raised_seq=2, raised_step=2, cleared_reason=f"{ENDED}: stopped")
    page = text_of(web.get(run.get_absolute_url()))
    fix = page.partition('class="ending-actions"')[2].partition("Clone with fix")[0]
    assert f'href="/runs/{run.pk}/clone?algorithm.name=' in fix
    assert " data-can-clone" in page  # for the alerts' line
    web.force_login(make_member(run.project, "viewer"))
    for path in (run.get_absolute_url(), "/alerts/", "/"):
        page = text_of(web.get(path))
        assert "Clone with fix" not in page
        assert " data-can-clone" not in page


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", "Memory ran out"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("no sign of work for 1900 s while training", "The trainer hung"),
        ("ValueError: 0 training questions cannot fill a batch of 8", "Too few questions"),
        ("ValueError: no training question has at most 9 tokens for every agent: raise", "Too few questions"),
        ("ValueError: odd", ""),
    ],
)
def test_cause_follows_from_the_reason(run, reason, cause):
    assert run.transition_to(State.FAILED, reason=reason)
    ending = ending_of(run)
    assert (ending.headline, ending.reason) == ("Failed at step 4.", reason)
    assert ending.cause.startswith(cause)
    assert bool(ending.cause) == bool(cause)


def test_run_that_failed_before_its_first_step_says_so_also_in_rollouts(owner, web):
    run = make_run(owner)
    assert "No rollouts recorded yet" in text_of(web.get(f"/runs/{run.pk}/rollouts"))
    assert run.transition_to(State.FAILED, reason="ValueError: odd")
    assert ending_of(run).headline == "Failed before the first step."
    assert "Failed before the first step" in text_of(web.get(f"/runs/{run.pk}/rollouts"))
    page = text_of(web.get(run.get_absolute_url()))
    assert "Continue from step" not in page.partition('id="ending"')[2].partition("</section>")[0]
