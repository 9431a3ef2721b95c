"""Home: live runs with their curves, what waits for the user, the queue, the newest result, and the first steps."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from hacrl_web.alerts.models import Alert
from hacrl_web.runs.models import Run, State
from tests.support.web import factories
from tests.support.web.leaderboard_help import by_name, finished_sweep
from tests.support.web.page_text import text_of
from tests.web.runs.workspace.test_run_list import evaluated


def home(web) -> str:
    return text_of(web.get("/"))


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def put(run: Run, state: str, **fields) -> Run:
    Run.objects.filter(pk=run.pk).update(state=state, **fields)
    return run


def with_scores(sweep) -> None:
    for run in sweep.runs.all():
        put(run, run.state, score=0.5, finished_at=timezone.now())


def test_live_run_is_a_card_with_curve_progress_eta_and_pause(web, user):
    run = evaluated(factories.make_run(user, name="swan"), (0, 2, 4), (2, 6, 8))
    put(run, "running", progress={"eta_s": 70}, step=2, total_steps=5)
    html = home(web)
    card = html.split("<article", 1)[1].split("</article>")[0]
    assert f'data-run="{run.pk}"' in card
    assert "0.300 → " in card
    assert "<polyline points=" in card
    assert "1 min 10 s" in card
    assert f"/runs/{run.pk}/pause" in card
    answer = web.post(f"/runs/{run.pk}/pause", {"from": "home"})
    assert answer.url == "/"


def test_newest_result_is_a_sentence_that_stays_beside_live_runs(web, user):
    with_scores(finished_sweep(user, {"hacpo": [0.7], "gspo": [0.4]}))
    text = plain(home(web))
    assert "hacpo +0.300 over gspo on benchmark" in text
    assert "One seed: no interval." in text
    live = put(factories.make_training_run(user), "running")
    html = home(web)
    assert "Newest result" in html
    assert f'hx-get="/runs/{live.pk}/lesson" hx-trigger="load, every 10s"' in html


def test_sentence_has_the_interval_of_several_seeds_and_the_podium_the_best_three(web, user):
    finals = {"hacpo": [0.7, 0.8, 0.6], "gspo": [0.4, 0.4, 0.4], "gspox2": [0.5, 0.5, 0.5], "signed": [0.3, 0.3, 0.3]}
    with_scores(finished_sweep(user, finals))
    html = home(web)
    assert "over 3 seeds" in plain(html)
    podium = html.split('<ol class="podium">')[1].split("</ol>")[0]
    assert re.findall(r"<li><span>([^<]*)<", podium) == ["hacpo", "gspox2", "gspo"]
    assert "± 0.248, 3 seeds" in podium  # standard deviation 0.1, t = 4.303: 4.303 * 0.1 / sqrt(3)


def test_failures_of_one_cause_are_one_matter_and_a_retried_one_is_none(web, user):
    now = timezone.now()
    for name in ("first", "second"):
        put(factories.make_run(user, name=name), "failed", finished_at=now, reason="no memory\ntraceback")
    other = put(factories.make_run(user, name="third"), "failed", finished_at=now, reason="disk full")
    again = put(factories.make_run(user, name="fourth"), "failed", finished_at=now, reason="gone")
    factories.make_run(user, name="fifth")
    Run.objects.filter(name="fifth").update(retry_of=again)
    put(factories.make_run(user, name="old"), "failed", finished_at=now - timedelta(hours=25), reason="old cause")
    html = home(web)
    needs = html.split('<ul class="needs">')[1].split("</ul>")[0]
    assert needs.count("<li") == 2
    assert "Show 2 runs" in needs
    assert "traceback" not in needs
    assert f'action="/runs/{other.pk}/retry"' in needs
    assert "gone" not in needs
    assert "old cause" not in needs


def test_failed_run_continues_from_its_checkpoint_where_it_has_one(web, user):
    runs = [factories.make_run(user, name=name) for name in ("saved", "not saved")]
    for run in runs:
        put(run, "failed", finished_at=timezone.now(), reason=f"reason of {run.name}")
    runs[0].events.create(seq=1, attempt=1, time=1.0, type="checkpoint", step=4, agent="", source="", payload={})
    html = home(web)
    assert f'href="/runs/{runs[0].pk}/checkpoints#continue-training"' in html
    assert html.count("#continue-training") == 1


def test_drafts_and_paused_runs_have_their_action(web, user):
    draft = put(factories.make_run(user, name="sketch"), State.DRAFT)
    paused = put(factories.make_run(user, name="asleep"), State.PAUSED, desired_state="pause")
    html = home(web)
    assert f'action="/runs/{draft.pk}/queue-draft"' in html
    assert f'action="/runs/{paused.pk}/resume"' in html
    assert web.post(f"/runs/{paused.pk}/resume", {"from": "home"}).url == "/"


def test_open_alerts_of_one_cause_are_one_line_with_the_fix(web, user):
    run = factories.make_training_run(user, name="swan")
    facts = {"attempt": 1, "number": 1.0, "text": "All below the band.", "raised_step": 3, "raised_at": timezone.now()}
    for seq, agent in enumerate("AB", 1):
        Alert.objects.create(run=run, kind="cross_clip", agent=agent, raised_seq=seq, **facts)
    html = home(web)
    assert "(2 alerts)" in html
    assert html.count("All below the band.") == 1
    assert "Clone with fix" in html


def test_recent_runs_show_what_they_reached(web, user):
    run = evaluated(factories.make_run(user, name="swan"), (0, 2, 4), (5, 6, 8))
    put(run, "completed", finished_at=timezone.now())
    html = home(web)
    assert "<strong>0.700</strong>" in html
    assert "Nothing is running" not in html


def test_empty_project_has_three_steps_and_the_command_of_the_demo(web, user):
    html = home(web)
    assert html.split('<ol class="start-list">')[1].split("</ol>")[0].count("<li") == 3
    assert '<code id="demo-command">./hacrl demo</code>' in html
    assert 'data-copy="demo-command"' in html
    assert "Start the first run" not in html
    factories.launch_request(user)  # registers models, a group and a benchmark
    assert "Start the first run" in home(web)


def test_viewer_sees_no_buttons(client, user):
    run = put(factories.make_run(user), "failed", finished_at=timezone.now(), reason="x")
    client.force_login(factories.make_member(run.project, role="viewer"))
    assert "/retry" not in text_of(client.get("/"))


@pytest.mark.parametrize("state", ["running", "failed", "completed", "queued"])
def test_number_of_queries_does_not_grow_with_the_runs(web, user, state):
    counts = []
    request = factories.launch_request(user)
    for number in range(3):
        for _ in range(1 + number):
            put(factories.make_run(user, **request), state, finished_at=timezone.now(), reason="x", attempt=1)
        with CaptureQueriesContext(connection) as queries:
            web.get("/")
        counts.append(len(queries))
    assert counts[1] == counts[2]


def test_board_of_home_is_that_of_the_newest_run_unless_it_compares_nothing(web, user):
    first = finished_sweep(user, {"hacpo": [0.7], "gspo": [0.4]}, name="first sweep")
    second = finished_sweep(user, {"hacpo": [0.6], "gspo": [0.5]}, name="second sweep")
    with_scores(second)
    with_scores(first)
    assert "+0.300" in home(web)
    put(by_name(second)["gspo", 1], "completed", finished_at=timezone.now() + timedelta(seconds=1))
    assert "+0.100" in home(web)
    alone = finished_sweep(user, {"signed": [0.9], "hacpo": [0.8]}, name="no baseline")
    with_scores(alone)
    assert "+0.100" in home(web)
    for run in Run.objects.exclude(sweep=alone):
        put(run, run.state, archived_at=timezone.now())
    assert "signed 0.900" in plain(home(web))
