"""From stored metrics to alert rows: once, whatever is repeated, and seen by whoever sees the run."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf

import pytest
from django.conf import settings
from django.db import IntegrityError

from hacrl_web.alerts.evaluate import Evaluator
from hacrl_web.alerts.models import Alert, Cursor
from hacrl_web.alerts.rules.signals import StepMetrics
from hacrl_web.alerts.rules.table import RULES
from hacrl_web.runs.models import Run, State, TelemetryEvent
from tests.support.web.factories import make_run, make_training_run, make_user
from workers.contract.spec.algorithm import RECOMMENDED

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(user):
    return make_training_run(user, name="swan")


def tell(run: Run, *shares: float | None, step: int = 1, attempt: int = 1) -> None:
    """Store steps with this share of B's encouraging rollouts clipped; None: metrics of a step that never ended."""
    seq = run.last_seq
    for number, share in enumerate(shares, start=step):
        ratios = {} if share is None else {"clip_lower_frac/positive": [share * 10, 10]}
        seq += 1
        common = {"run": run, "attempt": attempt, "step": number, "time": 1000.0 + seq}
        TelemetryEvent.objects.create(
            seq=seq, type="metrics", agent="A", source="B", payload={"values": {}, "ratios": ratios}, **common
        )
        if share is not None:
            seq += 1
            TelemetryEvent.objects.create(seq=seq, type="progress", payload={"elapsed_s": 1.0}, **common)
    Run.objects.filter(pk=run.pk).update(last_seq=seq, step=step + len(shares) - 1)
    run.refresh_from_db()


def rows(run: Run) -> list[tuple[int, int | None]]:
    return list(run.alerts.order_by("pk").values_list("raised_step", "cleared_step"))


def test_stored_steps_raise_and_clear_an_alert(run):
    tell(run, 0.9, 0.8)
    Evaluator().tick()
    assert rows(run) == []
    tell(run, 0.85, step=3)
    Evaluator().tick()
    alert = run.alerts.get()
    assert (alert.kind, alert.agent, alert.source, alert.raised_step, alert.number) == ("cross_clip", "A", "B", 3, 0.85)
    assert alert.raised_at == datetime.fromtimestamp(1005.0, tz=UTC)  # when the event says, not when we looked
    assert alert.text == (
        "85 % of the rollouts of B with positive advantage lie below the clip band of A: it learns nothing from them."
    )
    assert alert.is_open
    tell(run, 0.5, 0.5, 0.5, step=4)
    Evaluator().tick()
    alert.refresh_from_db()
    assert (alert.cleared_step, alert.cleared_reason) == (6, "0.5: at most 0.6 for 3 steps")


def test_steps_one_by_one_or_all_at_once_give_the_same_alerts(user):
    shares = [0.9, 0.8, 1.0, 0.7, 0.6, 0.5, 0.4, 0.9, 0.9, 0.9, 0.2]
    one, other = make_run(user), make_run(user)
    Run.objects.filter(pk__in=(one.pk, other.pk)).update(state=State.RUNNING)
    for number, share in enumerate(shares, start=1):
        one.refresh_from_db()
        tell(one, share, step=number)
        Evaluator().tick()  # each time a fresh process
    tell(other, *shares)
    Evaluator().tick()
    fields = ("kind", "agent", "source", "number", "text", "raised_seq", "raised_at", "cleared_step", "cleared_reason")
    assert list(one.alerts.values_list(*fields)) == list(other.alerts.values_list(*fields))
    assert rows(one) == [(3, 7), (10, None)]


def test_replay_from_the_first_event_is_a_no_op(run):
    tell(run, *[0.9] * 4, *[0.1] * 3, *[0.9] * 3)
    Evaluator().tick()
    before = list(Alert.objects.order_by("pk").values())
    assert rows(run) == [(3, 7), (10, None)]
    Cursor.objects.filter(run=run).update(seq=0, state={})
    Evaluator().tick()
    assert list(Alert.objects.order_by("pk").values()) == before


def test_state_of_another_version_is_made_anew_from_the_first_event(run):
    tell(run, 0.9, 0.9)
    Evaluator().tick()
    Cursor.objects.filter(run=run).update(state={"version": 0})
    tell(run, 0.9, step=3)
    Evaluator().tick()
    assert rows(run) == [(3, None)]


def test_second_process_with_an_old_view_writes_nothing(run, monkeypatch):
    tell(run, *[0.9] * 3)
    taken = Evaluator._changes

    def late(self, *arguments):
        found = taken(self, *arguments)
        Cursor.objects.filter(run=run).update(seq=6)  # meanwhile the other one was here
        return found

    monkeypatch.setattr(Evaluator, "_changes", late)
    Evaluator().tick()
    assert rows(run) == []


def test_crash_between_cursor_and_rows_leaves_neither(run, monkeypatch):
    tell(run, *[0.9] * 3)
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "_write", lambda *_: 1 / 0)
        Evaluator().tick()
    assert Cursor.objects.get(run=run).seq == 0
    Evaluator().tick()
    assert rows(run) == [(3, None)]


def test_step_that_an_attempt_did_not_live_to_end_does_not_count(run):
    tell(run, 0.9, 0.9, None)
    tell(run, 0.1, step=3, attempt=2)
    Evaluator().tick()
    assert rows(run) == []


def test_end_of_the_run_closes_its_alerts_and_ends_the_watch(run):
    tell(run, *[0.9] * 3)
    Evaluator().tick()
    run.transition_to(State.COMPLETED, reason="", attempt=1)
    Evaluator().tick()
    alert = run.alerts.get()
    assert (alert.cleared_step, alert.cleared_reason) == (3, "the run ended: completed")
    assert alert.cleared_at == run.finished_at
    assert Cursor.objects.get(run=run).is_done
    assert Evaluator().tick() == 0


def test_run_without_news_is_not_looked_at_again(run):
    """A paused run's last event is no end of a step: the cursor never gets there."""
    tell(run, *[0.9] * 3)
    TelemetryEvent.objects.create(run=run, seq=7, type="finished", attempt=1, time=1.0, payload={"outcome": "paused"})
    Run.objects.filter(pk=run.pk).update(last_seq=7, state=State.PAUSED)
    evaluator = Evaluator()
    assert [evaluator.tick() for _ in range(3)] == [1, 0, 0]
    Run.objects.filter(pk=run.pk).update(state=State.RUNNING, attempt=2)
    run.refresh_from_db()
    tell(run, *[0.1] * 3, step=4, attempt=2)
    assert evaluator.tick() == 1
    assert rows(run) == [(3, 6)]
    run.transition_to(State.STOPPED, reason="", attempt=2)
    assert [evaluator.tick(), evaluator.tick()] == [1, 0]


def test_run_that_ended_before_anybody_looked_is_looked_at(run):
    tell(run, *[0.9] * 3)
    run.transition_to(State.FAILED, reason="x", attempt=1)
    Evaluator().tick()
    assert rows(run) == [(3, 3)]


def test_long_run_is_taken_in_batches(run, monkeypatch):
    monkeypatch.setattr("hacrl_web.alerts.evaluate.BATCH_EVENTS", 7)  # cuts a step in two
    tell(run, *[0.9] * 9)
    Evaluator().tick()
    assert rows(run) == [(3, None)]
    assert Cursor.objects.get(run=run).seq == 18


def test_demo_like_run_with_an_unreadable_spec_gets_no_alerts_and_stops_nobody(run, user):
    other = make_run(user)
    Run.objects.filter(pk=other.pk).update(state=State.RUNNING, spec={"agents": "none"})
    tell(other, *[0.9] * 3)
    tell(run, *[0.9] * 3)
    Evaluator().tick()
    assert (rows(other), rows(run)) == ([], [(3, None)])


@pytest.mark.parametrize("error", [AttributeError, IntegrityError])
def test_run_that_cannot_be_evaluated_holds_up_no_other_and_is_tried_again(run, user, monkeypatch, error):
    other = make_training_run(user, name="duck")
    tell(other, *[0.9] * 3)
    tell(run, *[0.9] * 3)
    real, tried = Evaluator.evaluate_batch, []

    def evaluate(self, facts):
        if facts["pk"] == other.pk:
            tried.append(facts["last_seq"])
            raise error("of a payload that no trainer of ours writes")
        return real(self, facts)

    monkeypatch.setattr(Evaluator, "evaluate_batch", evaluate)
    evaluator = Evaluator()
    assert [evaluator.tick(), evaluator.tick()] == [2, 0]
    assert (rows(run), tried) == ([(3, None)], [6])
    monkeypatch.setattr(Evaluator, "evaluate_batch", real)
    evaluator._next_sweep = 0.0  # a minute later it is tried again
    evaluator.tick()
    assert rows(other) == [(3, None)]


def test_infinite_numbers_are_none():
    """They are valid JSON, but the state of a run's alerts is stored as JSON too."""
    step = StepMetrics({("A", ""): {"values": {"kl": inf}, "ratios": {"used_frac": [inf, 1.0]}}})
    assert (step.value("kl", "A"), step.ratio("used_frac", "A")) == (None, None)


# ---- where they are shown -------------------------------------------------------------------------------------------


def raise_one(run: Run, **changes) -> Alert:
    values = {"kind": "cross_clip", "agent": "A", "source": "B", "attempt": 1, "number": 0.9, "text": "90 % lost."}
    values |= {"raised_seq": 1, "raised_step": 3, "raised_at": datetime(2026, 1, 1, tzinfo=UTC)}
    return Alert.objects.create(run=run, **{**values, **changes})


def test_alerts_are_seen_by_the_owner_and_staff_alone(client, run, user):
    raise_one(run, text="swan text")
    places = ["/alerts/", "/api/v1/alerts", "/", f"/api/v1/runs/{run.pk}/alerts", f"/runs/{run.pk}/events"]
    for viewer, sees in ((user, True), (make_user(is_staff=True), True), (make_user(), False)):
        client.force_login(viewer)
        pages = [client.get(place) for place in places]
        assert ["swan text" in page.content.decode() for page in pages] == [sees, sees, sees, sees, sees]
        assert ("open alert" in pages[2].content.decode()) is sees
        assert [page.status_code for page in pages] == [200, 200, 200] + ([200, 200] if sees else [404, 404])


def test_list_filters_by_state_and_kind(web, run):
    raise_one(run, text="trap that is open")
    raise_one(
        run, raised_seq=2, text="trap that is closed", cleared_at=datetime(2026, 1, 2, tzinfo=UTC), cleared_step=9
    )
    raise_one(run, kind="kl_jump", source="", text="jump that is open")
    texts = ("trap that is open", "trap that is closed", "jump that is open")
    for query, shown in {
        "": (True, True, True),
        "?state=open": (True, False, True),
        "?state=cleared": (False, True, False),
        "?kind=kl_jump": (False, False, True),
        "?state=open&kind=cross_clip": (True, False, False),
        "?state=odd&kind=%00&page=-1": (True, True, True),
    }.items():
        page = web.get("/alerts/" + query).content.decode()
        assert tuple(text in page for text in texts) == shown, query
        if "odd" in query:
            continue
        found = web.get("/api/v1/alerts" + query).json()
        assert found["count"] == sum(shown)
        assert [alert["text"] for alert in found["items"] if alert["text"] not in texts] == []


def test_numbers_of_the_list_count_what_their_links_show(web, run):
    raise_one(run)
    raise_one(run, raised_seq=2, cleared_at=datetime(2026, 1, 2, tzinfo=UTC), cleared_step=9)
    raise_one(run, kind="kl_jump", source="")
    shown = web.get("/alerts/?state=cleared&kind=kl_jump").context
    assert [number for _, _, number in shown["states"]] == [1, 1, 0, 0]
    assert {one["rule"].kind: one["count"] for one in shown["kinds"]} == {"cross_clip": 1, "kl_jump": 0}
    assert (shown["total"], shown["num_open"]) == (3, 2)


def test_run_with_many_alerts_tells_the_open_ones_first_and_counts_all(web, run):
    """The oldest is still open; three later ones are closed, the second of them last."""
    raise_one(run, text="open")
    for seq, minute in ((2, 1), (3, 9), (4, 5)):
        raise_one(
            run, raised_seq=seq, text=f"closed {seq}", cleared_at=datetime(2026, 1, 2, 0, minute, tzinfo=UTC),
            cleared_step=9, raised_at=datetime(2026, 1, 1, 23, seq, tzinfo=UTC),
        )  # fmt: skip
    found = web.get(f"/api/v1/runs/{run.pk}/alerts?limit=3").json()
    assert [alert["text"] for alert in found["items"]] == ["open", "closed 3", "closed 4"]
    assert (found["count"], found["num_open"]) == (4, 1)


def test_api_refuses_what_it_does_not_know(web):
    for query in ("state=odd", "kind=odd", "limit=0", "limit=1000000000", "offset=-1"):
        answer = web.get(f"/api/v1/alerts?{query}")
        assert answer.status_code == 422, query
        assert answer.json()["error"]["field"] == query.partition("=")[0]


def test_alert_links_to_its_chart_and_says_what_to_do(web, run):
    raise_one(run)
    (alert,) = web.get(f"/api/v1/runs/{run.pk}/alerts").json()["items"]
    assert (alert["chart"], alert["url"]) == ("clipping", f"/runs/{run.pk}#chart-clipping")
    assert alert["advice"].startswith("Clone the run with the recommended rule, which has no clip band; or raise")
    form = web.get(alert["fix_url"], follow=True)
    assert form.context["fields"]["algorithm"].value == RECOMMENDED


def test_every_rule_names_a_chart_of_the_run_page_and_measured_metrics():
    series = (settings.BASE_DIR / "frontend/static/js/charts/series.js").read_text()
    charts = set(re.findall(r'\bkey: "([\w-]+)"', series))
    defined = (settings.BASE_DIR / "docs/metrics.md").read_text()
    assert len(charts) > 10
    for rule in RULES:
        assert rule.chart in charts, rule.kind
        for metric in rule.metric.split(", "):
            assert f"`{metric}`" in defined, metric


def test_alerts_of_one_run_and_kind_are_one_row_of_the_list(client, run):
    """Two pairs in the delta trap from step 3 and 5 on; a cleared one of the same kind is a row of its own."""
    client.force_login(run.owner)
    common = {"run": run, "attempt": 1, "number": 0.9, "raised_seq": 1, "raised_at": datetime.now(UTC)}
    for agent, source, step in (("A", "B", 3), ("B", "A", 5)):
        Alert.objects.create(kind="cross_clip", agent=agent, source=source, raised_step=step, text="low", **common)
    cleared = {"cleared_step": 2, "cleared_at": datetime.now(UTC)}
    Alert.objects.create(kind="cross_clip", agent="C", raised_step=1, text="old", **common, **cleared)
    causes = client.get("/alerts/").context["causes"]
    assert [(len(cause.alerts), cause.steps) for cause in causes] == [(1, (1, 1)), (2, (3, 5))]
    page = client.get("/alerts/?state=open").content.decode()
    assert page.count("×2") == 1
    assert "steps 3 to 5" in page
    assert "B ← A<br>A ← B" in page
