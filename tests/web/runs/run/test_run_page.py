"""Pages of one run: what is drawn of it, its numbers as CSV, its texts, which are never markup, and its stop button."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from hacrl_web.alerts.rules.signals import Facts
from hacrl_web.runs.models import Contribution, RolloutSample, Run
from hacrl_web.web.streaming import csv_cell
from tests.support.web import factories
from tests.support.web.leaderboard_help import finished_sweep
from tests.support.web.page_text import add_event, text_of
from workers.contract.spec.run import RunSpec


@pytest.mark.parametrize(
    ("algorithm", "shares", "can_trap"),
    [
        ({"name": "hacpo"}, True, True),
        ({"name": "hacpo", "cross_clip_gradient": "sided"}, True, False),
        ({"name": "hacpo", "clip_cross": False}, True, False),
        ({"name": "hacpo", "sharing": False}, False, False),
        ({"name": "naive_source"}, True, False),
        ({"name": "naive_learner"}, True, False),
        ({"name": "grpo"}, False, False),
        ({"name": "gspo"}, False, False),
    ],
)
def test_run_page_draws_pairs_where_rollouts_are_shared_and_warns_where_the_papers_clip_acts(
    web, user, algorithm, shares, can_trap
):
    run = factories.make_run(user, algorithm=algorithm)
    response = web.get(reverse("runs:run_detail", args=[run.pk]))
    assert response.context["page_data"]["shares"] == shares
    # The warning is an alert: its rule knows where the paper's clip acts.
    assert Facts.of(RunSpec.model_validate(run.spec)).can_trap == can_trap
    assert ("so there are no charts of pairs" in text_of(response)) is not shares


@pytest.mark.parametrize(
    ("state", "step", "without", "told"),
    [
        # Ten steps in a row are said at once, fewer only where they were the whole run and it has ended.
        ("running", 30, {"A": 10}, "A: no rollout had weight in the last 10 steps, so it has learned nothing"),
        ("running", 30, {"A": 9}, ""),
        ("running", 3, {"A": 3}, ""),
        ("completed", 3, {"B": 3}, "B: no rollout had weight in any of 3 steps, so it has learned nothing"),
        ("completed", 3, {"B": 2}, ""),
        ("completed", 3, {}, ""),
    ],
)
def test_run_that_has_learned_nothing_says_so(web, user, state, step, without, told):
    run = factories.make_run(user)
    run.state, run.step, run.progress = state, step, {"steps_without_weight": without}
    run.save()
    answer = web.get(f"/api/v1/runs/{run.pk}").json()["learned_nothing"]
    assert answer.startswith(told)
    assert bool(answer) is bool(told)
    assert ("no rollout had weight" in text_of(web.get(run.get_absolute_url()))) is bool(told)


@pytest.mark.parametrize(
    ("changes", "unmeasured"),
    [
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 5}}, []),
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 6}}, ["gradient_alignment"]),  # 5 steps
        ({"algorithm": {"name": "hacpo"}, "telemetry": {"alignment_interval": 0}}, ["gradient_alignment"]),
        ({"algorithm": {"name": "hacpo", "beta": 0}, "telemetry": {"alignment_interval": 1}}, ["kl"]),
        ({"algorithm": {"name": "naive_source"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        ({"algorithm": {"name": "naive_learner"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        ({"algorithm": {"name": "gspo"}, "telemetry": {"alignment_interval": 1}}, ["omega"]),
        # the paper's -omega still weighs its baseline by it; without both, nothing reads it
        ({"algorithm": {"modulate_gradient": False}, "telemetry": {"alignment_interval": 1}}, []),
        (
            {"algorithm": {"modulate_gradient": False, "advantage": "plain"}, "telemetry": {"alignment_interval": 1}},
            ["omega"],
        ),
    ],
)
def test_run_page_has_no_chart_of_what_the_run_does_not_measure_or_use(web, user, changes, unmeasured):
    changes = changes | {"rollout": {"engine": "transformers"}, "algorithm": {"beta": 0.001, **changes["algorithm"]}}
    run = factories.make_run(user, **changes)
    told = web.get(run.get_absolute_url()).context["page_data"]["unmeasured"]
    # The trainer itself samples, so there is nothing to compare; no resting prompts, no penalty for length, no tool.
    of_turns = ["turns/mean", "tool_calls/mean", "tool_calls/failed_frac"]
    of_training = ["curriculum/resting_frac", "overlong_penalty/mean"]
    of_engine = ["engine_logp_difference", "engine_logp_difference/max"]
    assert told == [*unmeasured, *of_engine, *of_training, *of_turns]


def test_run_page_has_the_charts_of_an_engine_that_samples_of_a_penalty_and_of_turns(web, user):
    changes = {
        "rollout": {"engine": "vllm", "environment": "calculator"},
        "algorithm": {"overlong_cache": 2, "beta": 0.001},
    }
    run = factories.make_run(user, **changes, telemetry={"alignment_interval": 1})
    factories.as_of_earlier_version(run, training={"curriculum_rest": 3})
    assert web.get(run.get_absolute_url()).context["page_data"]["unmeasured"] == []


def test_run_page_and_config_show_what_the_trainer_decided_of_settings_left_to_the_machine(web, user):
    run = factories.make_run(user, algorithm={"beta": 0.001}, telemetry={"alignment_interval": 1})
    config = reverse("insight:run_config", args=[run.pk])

    def shown(path: str) -> str:
        page = text_of(web.get(config, {"only": "all"}))
        return re.search(rf'class="mono">{re.escape(path)}</th><td class="mono">(.*?)</td>', page)[1].strip()

    def has_chart() -> bool:
        return "engine_logp_difference" not in web.get(run.get_absolute_url()).context["page_data"]["unmeasured"]

    assert (shown("rollout.engine"), shown("compute.gradient_checkpointing"), has_chart()) == ("auto", "–", True)
    assert shown("checkpoint.save_steps") == "1"  # of 5 steps
    settled = {"rollout": {"engine": "transformers"}, "compute": {"gradient_checkpointing": True}}
    body = {"type": "started", "step": 0, "settled": settled}
    run.events.create(seq=1, attempt=1, time=1.0, type="started", step=0, agent="", source="", payload=body)
    assert (shown("rollout.engine"), shown("compute.gradient_checkpointing")) == ("transformers", "yes")
    assert not has_chart()


def test_stop_needs_a_post_and_repeats_harmlessly(web, user):
    run = factories.make_run(user)
    address = reverse("runs:run_stop", args=[run.pk])
    opened = web.get(address)
    assert (opened.status_code, opened["Allow"]) == (405, "POST")
    assert "Go back to the page with the form" in text_of(opened)
    assert web.head(address).content == b""
    assert web.post(address).status_code == 302
    run.refresh_from_db()
    assert (run.state, run.reason) == ("stopped", f"stopped by {user.username}")
    assert "already ended" in text_of(web.post(address, follow=True))


def test_stop_says_that_a_run_that_nobody_began_loses_nothing(web, user):
    run = factories.make_run(user)
    hidden = re.compile(r'data-started="(no|yes)"( hidden)?>')
    assert dict(hidden.findall(text_of(web.get(run.get_absolute_url())))) == {"no": "", "yes": " hidden"}
    Run.objects.filter(pk=run.pk).update(attempt=1)  # back in the queue with what it has learnt
    assert dict(hidden.findall(text_of(web.get(run.get_absolute_url())))) == {"no": " hidden", "yes": ""}


def test_csv_cells_are_no_formulas(web, user):
    run = factories.make_run(user)
    add_event(run, 1, "metrics", {"values": {"@sum": -1.0}, "ratios": {}}, agent="=cmd")
    lines = b"".join(web.get(reverse("runs:metrics_csv", args=[run.pk])).streaming_content).decode().splitlines()
    assert lines[1] == "1,'=cmd,,'@sum,-1.0"
    assert [csv_cell(f"{first}1") for first in "=+-@\t\r"] == [f"'{first}1" for first in "=+-@\t\r"]


def test_rollout_text_is_never_markup_and_its_weight_is_shown(web, user):
    run = factories.make_run(user)
    common = {"run": run, "attempt": 1, "step": 2, "prompt_id": "q1", "sample": 0, "num_tokens": 4}
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    RolloutSample.objects.create(
        **common,
        seq=1,
        agent="A",
        prompt=attack,
        completion=attack,
        answer=attack,
        reward=1.0,
        finish_reason="stop",
        mean_logp=-0.5,
    )
    Contribution.objects.create(
        **common,
        seq=2,
        agent="B",
        source="A",
        advantage=0.5,
        sequence_ratio=0.9,
        clipped_ratio=0.9,
        clip_side="none",
        omega=1.25,
        weight=0.50625,
        mini_batch=1,
    )
    html = text_of(web.get(reverse("insight:run_rollouts", args=[run.pk])))
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "0.506" in html


def test_weight_of_a_shared_rollout_shows_its_equation(web, user):
    run = factories.make_run(user, algorithm={"name": "hacpo", "cross_weight": 0.5})
    place = {"run": run, "attempt": 1, "step": 1, "prompt_id": "q", "sample": 0, "num_tokens": 4}
    RolloutSample.objects.create(**place, seq=1, agent="A", prompt="p", completion="c", finish_reason="stop")
    numbers = {"advantage": 0.5, "sequence_ratio": 0.9, "clipped_ratio": 0.9, "omega": 1.25, "alpha": 1.0}
    # .9^(1 + 1) * 1.25 * .5 * .5 = .253125
    taught = {"weight": 0.253125, "capability": 0.4, "source_capability": 0.5, "source_num_tokens": 6}
    Contribution.objects.create(**place, seq=2, agent="B", source="A", clip_side="none", **numbers, **taught)
    html = text_of(web.get(reverse("insight:run_rollouts", args=[run.pk])))
    assert "c^(1+α) · ω · A · cross_weight = 0.9^2 · 1.25 · 0.5 · 0.5" in html
    assert "P of the source 0.5, of the learner 0.4" in html
    assert "over 4 tokens of the learner, 6 of the source" in html


def test_settings_are_shown_in_words(web, user):
    run = factories.make_run(user)
    shown = text_of(web.get(reverse("insight:run_config", args=[run.pk]), {"only": "all"})).partition("As JSON")[0]
    assert '<th scope="row" class="mono">algorithm.sharing</th><td class="mono">yes</td>' in shown
    assert not re.search(r">(True|False|None|{})<", shown)


def test_no_time_is_left_to_tell_after_the_last_step(web, user):
    """The final evaluation and checkpoint still run then; their time is not estimated."""
    run = factories.make_run(user)
    Run.objects.filter(pk=run.pk).update(state="running", step=9, progress={"step": 9, "total_steps": 9, "eta_s": 0.0})
    for page in (reverse("runs:run_detail", args=[run.pk]), "/"):
        assert 'data-show="eta">–</span>' in web.get(page).content.decode(), page


def test_ended_sweep_shows_no_estimate(web, user):
    sweep = finished_sweep(user, {"gspo": [0.5]})
    assert "<div hidden><dt>ETA</dt>" in web.get(sweep.get_absolute_url()).content.decode()
    Run.objects.filter(sweep=sweep).update(state="running")
    assert "<div><dt>ETA</dt>" in web.get(sweep.get_absolute_url()).content.decode()
