"""The System and Events tabs: sums by hand, interruptions marked, one list by time with nothing passed over."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django.urls import reverse

from hacrl_web.alerts.models import Alert
from hacrl_web.insight.run_tabs import event_list, system
from hacrl_web.runs.models import Run
from tests.support.web.factories import make_run, make_user
from tests.support.web.insight_help import evaluation, store, stored
from workers.contract.events import Checkpoint, Finished, LeftOut, Log, Progress, Started

pytestmark = pytest.mark.django_db


def progress(step: int, elapsed_s: float, tokens: int, rollouts: int, **more: Any) -> Progress:
    counts = {"rollouts_generated": rollouts, "tokens_generated": tokens}
    return Progress(step=step, total_steps=9, elapsed_s=elapsed_s, eta_s=0, **counts, **more)


def started(step: int) -> Started:
    return Started(step=step, total_steps=9, agents=["A", "B"], device="cpu", versions={"torch": "2.13"})


@pytest.fixture
def run(client):
    """Steps 1 to 3, a kill, and a second attempt from the checkpoint of step 2."""
    owner = make_user()
    client.force_login(owner)
    found = stored(
        owner,
        started(0),
        progress(1, 12, 100, 8, phase_s={"generate": 1, "update": 3}, resident_bytes=2**30),
        progress(2, 17, 300, 16, phase_s={"generate": 2, "update": 2}, resident_bytes=3 * 2**30, device_peak_bytes=5),
        progress(3, 99, 900, 24, phase_s={"generate": 9}),
    )
    again = progress(2, 17, 300, 16, phase_s={"evaluate": 7})  # totals once more: it has made no step
    store(found, started(2), again, progress(3, 25, 500, 24, phase_s={"generate": 2, "update": 4}), attempt=2)
    found.refresh_from_db()
    return found


class TestResume:
    def test_header_and_events_say_which_steps_are_done_again(self, client, run):
        """The second attempt continues from step 2 where the first had reached 3; then from 2 where 6 were reached."""
        store(run, started(2), progress(2, 17, 300, 16), progress(6, 60, 900, 48), attempt=3)
        store(run, started(2), progress(2, 17, 300, 16), attempt=4)
        sentence = "Resumed from the checkpoint of step 2; repeats 4 steps."
        for tab in ("runs:run_detail", "insight:run_config"):
            assert sentence in client.get(reverse(tab, args=[run.pk])).content.decode()
        page = client.get(reverse("insight:run_events", args=[run.pk])).content.decode()
        assert f"from step 2. {sentence}" in page
        assert "Resumed from the checkpoint of step 2; repeats 1 step." in page  # attempts 2 and 3
        store(run, progress(6, 70, 900, 48), attempt=4)
        assert "; repeats " not in client.get(reverse("runs:run_detail", args=[run.pk])).content.decode()

    def test_attempt_without_a_checkpoint_says_so(self, client, run):
        store(run, started(0), attempt=3)
        page = client.get(reverse("insight:run_events", args=[run.pk])).content.decode()
        assert "Attempt 3 restarted without a checkpoint and repeats 3 steps." in page


class TestSystem:
    def test_steps_by_hand(self, run):
        """Step 1: 4 s of phases (the 12 s hold the loading). Step 2: 5 s, of which 1 in no phase. Step 3, attempt 2:
        8 s, of which 2 in none, 200 tokens, 8 rollouts."""
        found, breaks = system.timed_steps(run)
        numbers = [(one.first, one.seconds, one.tokens, one.rollouts) for one in found]
        assert numbers == [(1, 4, 100, 8), (2, 5, 200, 8), (3, 8, 200, 8)]
        assert [one.phase_s["other"] for one in found] == [0, 1, 2]
        assert breaks == [3]
        [whole] = system.buckets(found, 1)
        assert (whole.first, whole.last, whole.seconds, whole.tokens_per_s) == (1, 3, 17, 500 / 17)
        assert whole.phases[:3] == [5 / 3, 0, 9 / 3]
        assert (whole.resident_bytes, whole.device_peak_bytes) == (3 * 2**30, 5)

    def test_figures_mark_the_interruption_and_leave_unmeasured_memory_out(self, run):
        found = system.figures(system.buckets(system.timed_steps(run)[0]), [3])
        assert [trace["name"] for trace in found["phases"]["data"]] == ["generate", "update", "other"]
        assert [shape["x0"] for shape in found["phases"]["layout"]["shapes"]] == [2.5]
        assert [trace["name"] for trace in found["memory"]["data"]] == ["process, in RAM", "GPU tensors, peak"]
        assert found["phases"]["layout"]["xaxis"]["dtick"] == 1, "there is no half step"
        bare = [system.TimeBucket(1, 1, 1.0, {"update": 1.0}, 1, 1)]
        assert "memory" not in system.figures(bare, [])

    def test_page_names_attempts_and_their_hosts(self, client, run):
        Run.objects.get(pk=run.pk).requeue(reason="the worker died", attempt=2, is_interruption=True)
        page = client.get(reverse("insight:run_system", args=[run.pk])).content.decode()
        assert "before step 3." in page
        assert "queued: the worker died" in page
        assert page.count("torch 2.13") == 2
        empty = client.get(reverse("insight:run_system", args=[make_run(run.owner).pk])).content.decode()
        assert "No step is complete yet" in empty


class TestEvents:
    def whats(self, run, *kinds: str) -> list[str]:
        return [entry.what for entry in event_list.event_page(run, kinds or event_list.KINDS, None)[0]]

    def test_all_kinds_stand_in_one_list_by_time(self, client):
        owner = make_user()
        run = stored(
            owner,
            started(0),
            evaluation(0, "A", 0.5),
            Checkpoint(step=1, path="checkpoints/step-000001", size_bytes=2048),
            Log(level="warning", message="3 times <b>", incident="verifier", step=1),
            Log(message="no event"),
            LeftOut(counts={"log": 1234}, reason="too many"),
            Finished(step=1, outcome="failed", reason="diverged"),
        )
        at = datetime.now(UTC) + timedelta(seconds=5)
        marks = {"raised_seq": 1, "raised_step": 1, "raised_at": at, "number": 1.0, "attempt": 1}
        cleared = {"cleared_at": at + timedelta(seconds=5), "cleared_step": 2, "cleared_reason": "better"}
        run.events.update(time=F("time") + 1)  # clocks of a few milliseconds: surely after the changes of state
        Alert.objects.create(run=run, kind="zero_variance", agent="A", text="all alike", **marks, **cleared)
        assert self.whats(run)[0].startswith("cleared: ")
        assert self.whats(run)[1].startswith("alert: ")
        assert self.whats(run)[2:8] == ["trainer failed", "events skipped", "verifier", "checkpoint", "evaluation",
                                        "trainer started"]  # fmt: skip
        assert self.whats(run)[8:] == ["queued → starting", "queued"]
        assert self.whats(run, "incident", "left_out") == ["events skipped", "verifier"]
        client.force_login(owner)
        address = reverse("insight:run_events", args=[run.pk])
        page = client.get(address).content.decode()
        assert "3 times &lt;b&gt;" in page
        assert "0.500 (50 of 100, b)" in page
        assert "1,234 of type log (too many)" in page
        part = client.get(address, {"kind": "checkpoint"}, headers={"HX-Request": "true"}).content.decode()
        assert re.findall(r'data-kind="(\w+)"', part) == ["checkpoint"]
        assert "<html" not in part

    def test_pages_together_hold_every_event_once_though_moments_are_shared(self, client, monkeypatch):
        """25 evaluations in 5 moments and pages of 7: no moment is cut, none is listed twice."""
        monkeypatch.setattr(event_list, "PAGE", 7)
        run = stored(make_user(), *(evaluation(step, "A", 0.5) for step in range(25)))
        for event in run.events.filter(type="evaluation"):
            run.events.filter(pk=event.pk).update(time=1000.0 + event.step // 5)
        seen: list[int | None] = []
        before = None
        for _ in range(10):
            entries, before = event_list.event_page(run, ["evaluation"], before)
            seen += [entry.step for entry in entries]
            if before is None:
                break
        assert sorted(seen) == list(range(25))
        assert [step // 5 for step in seen] == sorted((step // 5 for step in seen), reverse=True)
