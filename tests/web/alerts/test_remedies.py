"""What a rule proposes follows from the run's settings, and the form then holds it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hacrl_web.alerts.models import ENDED, Alert
from hacrl_web.alerts.rules.apply_rules import percent_text
from hacrl_web.runs.models import Run
from tests.support.web import factories


def alert_of(run: Run, kind: str, agent: str = "A", **more) -> Alert:
    times = {"raised_step": 3, "raised_at": datetime(2026, 1, 1, tzinfo=UTC)}
    seq = run.alerts.count() + 1
    return Alert.objects.create(
        run=run, kind=kind, agent=agent, attempt=1, number=1.0, text="swan", raised_seq=seq, **times, **more
    )


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("cross_clip", "algorithm.name", "signed"),
        ("off_diagonal", "algorithm.name", "signed"),
        ("zero_variance", "rollout.num_generations", "16"),  # twice 8
        ("length_blow_up", "algorithm.overlong_cache", "20"),  # a fifth of 100
        ("split", "algorithm.cross_weight", "0.5"),  # half of 1
        ("engine_mismatch", "rollout.engine", "transformers"),
    ],
)
def test_clone_with_fix_holds_the_change_of_the_rule(web, user, kind, path, value):
    run = factories.make_run(user, rollout={"engine": "vllm", "max_completion_length": 100})
    alert = alert_of(run, kind)
    page = web.get(alert.fix_url, follow=True)
    control = next(one for one in _controls(page.context) if one.path == path)
    assert control.value == value
    assert alert.fix in web.get("/alerts/").content.decode()


def _controls(context):
    return [context["fields"]["algorithm"], *context["common"], *(f for s in context["sections"] for f in s.fields)]


@pytest.mark.parametrize("kind", ["entropy_collapse", "kl_jump"])
def test_fix_halves_the_learning_rate_of_the_alerts_agent_alone(web, user, kind):
    run = factories.make_run(user, training={"learning_rate": 4e-6})
    run.agent_changes = {"A": {"seed": 7}, "B": {"seed": 8}}
    run.save()
    alert = alert_of(run, kind, agent="B")
    assert alert.fix == "learning rate 2e-06 for B"
    page = web.get(alert.fix_url, follow=True)
    assert page.context["fields"]["agents"].value == "A: seed = 7\nB: learning_rate = 2e-06; seed = 8"


def test_no_fix_is_offered_where_the_settings_have_it_already(user):
    run = factories.make_run(user, algorithm={"name": "signed"}, rollout={"engine": "transformers"})
    for kind in ("off_diagonal", "engine_mismatch", "omega_clamped", "no_progress", "verifier"):
        assert (alert_of(run, kind).fix_url, alert_of(run, kind, agent="B").fix) == ("", ""), kind


def test_alert_that_the_end_of_its_run_closed_is_not_called_cleared(web, user):
    run = factories.make_run(user)
    closed = {"cleared_step": 9, "cleared_at": datetime(2026, 1, 2, tzinfo=UTC)}
    alert_of(run, "kl_jump", cleared_reason=f"{ENDED}: completed", **closed)
    alert_of(run, "kl_jump", cleared_reason="1.2: at most 2.5 for 5 steps", **closed)
    page = web.get("/alerts/")
    assert [number for _, _, number in page.context["states"]] == [2, 0, 1, 1]
    assert [len(cause.alerts) for cause in page.context["causes"]] == [1, 1]
    assert "the run ended" not in page.content.decode()
    ended = web.get("/alerts/?state=ended").context["causes"]
    assert [cause.newest.ended_with_run for cause in ended] == [True]
    events = web.get(f"/runs/{run.pk}/events").content.decode()
    assert "ended with the run: KL jump" in events
    assert "cleared: KL jump" in events


def test_a_share_in_percent_says_when_it_is_tiny():
    assert [percent_text(share) for share in (0, 0.00001, 0.0123, 1)] == ["0 %", "less than 0.01 %", "1.23 %", "100 %"]
