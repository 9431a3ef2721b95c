"""seed_demo_data: generated runs are marked, learn as trained ones do, and every page of them opens."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import get_resolver, reverse

from hacrl_web.accounts.roles.projects import project_of_new
from hacrl_web.runs.models import (
    TERMINAL,
    AnswerChunk,
    Contribution,
    QuestionChunk,
    RolloutSample,
    Run,
    StatusChange,
    TelemetryEvent,
)
from tools.generated_runs import runs as generated_runs
from tools.generated_runs.command import Command
from tools.generated_runs.runs import NOT_TRAINED, Plan, generated_events, new_run, store_run
from workers.contract import events
from workers.contract.spec.run import RunSpec

PLAN = Plan(2, 4, 2, 8, 4, 1, seed=3, variants=(("hacpo", 0.8),))
AGENTS = [(f"Generated {letter}", f"/none/{letter}") for letter in "ABC"]


def spec_of(algorithm: str, delta: float, num_agents: int) -> RunSpec:
    return replace(PLAN, variants=((algorithm, delta),)).spec(0, AGENTS[:num_agents])


@pytest.mark.parametrize(("algorithm", "delta", "agents"), [("hacpo", 0.8, 2), ("hacpo", 0.2, 3), ("gspo", 0.2, 2)])
def test_recorded_weights_follow_the_formula_that_pages_use(algorithm, delta, agents) -> None:
    """The pages' formula is workers.algorithms.base.contribution, written without torch."""
    spec = spec_of(algorithm, delta, agents)
    sides = set()
    for _, event in generated_events(PLAN, 0, spec, 4):
        if not isinstance(event, events.Contribution) or event.sequence_ratio is None:
            continue
        is_self = event.agent == event.source
        sides.add((is_self, event.clip_side))
        factors = ([event.sequence_ratio], [event.advantage], event.omega)
        ((side,), (weight,)) = spec.rule.weigh(is_self, event.mini_batch, *factors)
        assert event.clip_side == ("none", "upper", "lower")[side]
        assert event.weight == pytest.approx(weight, rel=1e-6)
        if event.mini_batch == 0 and is_self:
            assert event.sequence_ratio == 1.0
    assert {(True, "none"), (True, "upper"), (True, "lower")} <= sides
    assert algorithm == "gspo" or (False, "lower" if delta == 0.2 else "none") in sides


def seed(**options: Any) -> None:
    small = {"runs": 5, "steps": 3, "prompts": 4, "generations": 2}
    call_command(Command(), **{**small, **options})


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    spec = spec_of("hacpo", 0.8, 2)
    first, second = ([*generated_events(PLAN, 0, spec, 4)] for _ in range(2))
    assert first == second
    other = [*generated_events(replace(PLAN, seed=4), 0, spec, 4)]
    rewards = [[e.reward for _, e in timed if isinstance(e, events.Rollout)] for timed in (first, other)]
    assert rewards[0] != rewards[1]


def test_large_delta_learns_and_small_delta_is_the_trap() -> None:
    of_delta = {}
    for delta in (0.8, 0.2):
        plan = replace(PLAN, steps=40, questions=60, variants=(("hacpo", delta),))
        of_delta[delta] = [event for _, event in generated_events(plan, 0, plan.spec(0, AGENTS[:2]), 40)]

    def accuracy(delta: float, step: int) -> float:
        return fmean(
            e.value
            for e in of_delta[delta]
            if isinstance(e, events.Evaluation) and e.step == step and e.benchmark == NOT_TRAINED
        )

    def clipped(delta: float) -> float:
        metrics = [e for e in of_delta[delta] if isinstance(e, events.Metrics) and e.source]
        pairs = [e.ratios["clip_lower_frac/positive"] for e in metrics]
        return sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)

    assert accuracy(0.8, 40) > accuracy(0.8, 0) + 0.25
    assert accuracy(0.8, 40) > accuracy(0.2, 40) + 0.15
    assert clipped(0.8) < 0.05 < 0.8 < clipped(0.2)


@pytest.mark.django_db
def test_seeded_runs_have_ended_are_marked_and_their_rows_are_whole(capsys) -> None:
    seed()
    runs = list(Run.objects.all())
    assert len(runs) == 5
    assert {run.state for run in runs} <= TERMINAL
    for run in runs:
        assert NOT_TRAINED in run.name
        assert run.reason == NOT_TRAINED == run.group.name[: len(NOT_TRAINED)] == run.benchmark.name
        assert run.is_generated
        assert run.started_at < run.finished_at
        assert "eta_s" not in run.progress
        RunSpec.model_validate(run.spec)
        stored = [
            m.objects.filter(run=run).values_list("seq", flat=True)
            for m in (TelemetryEvent, RolloutSample, Contribution, QuestionChunk, AnswerChunk)
        ]
        assert sorted(seq for found in stored for seq in found) == list(range(1, run.last_seq + 1))
        assert run.contributions.filter(agent="Generated A").exists()
    assert StatusChange.objects.count() == 5
    with pytest.raises(CommandError, match="exist already"):
        seed()
    assert "5 runs (generated, not trained)" in capsys.readouterr().out


@pytest.mark.django_db
def test_each_twentieth_run_did_not_complete() -> None:
    seed(runs=40, steps=2, rollout_interval=0)
    ended = list(Run.objects.exclude(state="completed").values_list("state", "step", "total_steps"))
    assert sorted(ended) == [("failed", 1, 2), ("stopped", 1, 2)]
    assert not RolloutSample.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_run_larger_than_a_batch_is_a_draft_until_it_is_whole_and_leaves_nothing_when_cut_off(
    monkeypatch, user
) -> None:
    monkeypatch.setattr(generated_runs, "BATCH_ROWS", 50)
    spec = PLAN.spec(0, AGENTS[:2])

    def cut_off() -> Any:
        for number, timed in enumerate(generated_events(PLAN, 0, spec, 4)):
            if number == 130:
                raise KeyboardInterrupt
            yield timed

    related = {"owner": user, "project": project_of_new(user)}
    with pytest.raises(KeyboardInterrupt):
        store_run(new_run(PLAN, 0, spec, **related), cut_off(), "completed")
    run = Run.objects.get()
    assert (run.state, run.last_seq) == ("draft", 100)
    run.delete()
    num_rows = store_run(new_run(PLAN, 0, spec, **related), generated_events(PLAN, 0, spec, 4), "completed")
    run = Run.objects.get()
    assert (run.state, run.step) == ("completed", 4)
    assert run.last_seq == num_rows == len([*generated_events(PLAN, 0, spec, 4)])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "--runs 0 is out of bounds: it must be 1 to 20,000"),
        ({"agents": 9}, "--agents 9 is out of bounds"),
        ({"runs": 20_000, "steps": 100_000}, "at most 20,000,000"),
        ({"algorithms": "hacpo,magic"}, "'magic'"),
        ({"deltas": "small"}, "takes numbers"),
        ({"deltas": "7"}, "less than or equal to 1"),
        ({"prompts": 3, "algorithms": "gspox2"}, "must be even"),
    ],
)
def test_absurd_numbers_are_refused_in_plain_words_and_nothing_is_written(options, message) -> None:
    with pytest.raises(CommandError, match=message.replace("(", r"\(")):
        seed(**options)
    assert not Run.objects.exists()


def run_paths(patterns: Any = None, before: str = "/") -> list[str]:
    """Every address of the product whose one parameter is a run."""
    found = []
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        path = before + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            found += run_paths(pattern.url_patterns, path)
        elif path.count("<") == 1 and "run_id>" in path:
            found.append(re.sub("<.*>", "{}", path))
    return found


@pytest.mark.django_db
def test_every_page_of_a_generated_run_opens_and_nobody_can_train_it(client, user) -> None:
    user.is_staff = True
    user.save()
    client.force_login(user)
    seed(runs=4)
    run = Run.objects.filter(algorithm="hacpo").first()
    paths = [path.format(run.pk) for path in run_paths()]
    assert len(paths) > 30
    paths += [reverse("runs:run_list"), reverse("home"), reverse("leaderboard:index"), run.sweep.get_absolute_url()]
    paths += [run.group.get_absolute_url(), run.benchmark.get_absolute_url()]
    for path in paths:
        response = client.get(path, follow=True)
        # 405: it takes no GET. The API asks for what it needs (422), and knows no checkpoint of this run (404).
        allowed = {200, 405} | ({404, 422} if path.startswith("/api/") else set())
        assert response.status_code in allowed, path
        if response.streaming:
            assert b"".join(response.streaming_content)
    assert b"no run directory" in client.get(reverse("runs:run_disk", args=[run.pk])).content
    refused = client.post(f"/api/v1/runs/{run.pk}/retry", content_type="application/json")
    assert refused.status_code == 422
    assert "no such file or folder" in refused.json()["error"]["message"]


@pytest.mark.django_db
def test_what_if_without_a_choice_is_over_all_recorded_steps(client, user) -> None:
    user.is_staff = True
    user.save()
    client.force_login(user)
    seed(runs=1)
    answer = client.get(f"/api/v1/runs/{Run.objects.get().pk}/what-if?alpha=2").json()
    # 3 steps; 2 learners from 2 sources, 4 prompts, 2 rollouts each, less what could not be scored
    assert (answer["first"], answer["last"], answer["steps"]) == (1, 3, 3)
    assert answer["rows"] == Contribution.objects.count() <= 3 * 32


@pytest.mark.django_db
def test_what_if_offers_the_first_and_the_last_ten_recorded_steps(client, user) -> None:
    user.is_staff = True
    user.save()
    client.force_login(user)
    seed(runs=1, steps=72, rollout_interval=3, algorithms="hacpo")
    page = client.get(reverse("insight:run_what_if", args=[Run.objects.get().pk])).context
    windows = [(one["label"], one["first"], one["last"]) for one in page["windows"]]
    assert windows == [("all", 3, 72), ("first 10", 3, 30), ("last 10", 45, 72)]
