"""seed_demo_data: generated numbers follow the trainer's own formulas, are marked, and no page stumbles over them."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from django.core.management import CommandError, call_command
from django.urls import get_resolver, reverse

from hacrl_web.accounts.projects import project_of_new
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
from tools.generated_runs.metrics import StepEvents
from tools.generated_runs.runs import NOT_TRAINED, Plan, Store, end_of, new_run, records
from tools.generated_runs.step import StepFacts, Stepper, Visit
from tools.generated_runs.world import World
from workers.agents.messages import GeneratedRollouts, Response, RowResult, UpdateReport
from workers.agents.objective import objective_of
from workers.algorithms import gspo, hacpo
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.trainer import step_events
from workers.trainer.step import build_mini_batches

PLAN = Plan(2, 4, 2, 8, 4, 1, seed=3, variants=(("hacpo", 0.8),))
AGENTS = [(f"Generated {letter}", f"/none/{letter}") for letter in "ABC"]
# What has no rows behind it: made up.
MADE_UP = {"entropy", "kl", "grad_norm", "learning_rate", "sampling_logp_difference/mean"}
MADE_UP |= {"sampling_logp_difference/max", "gradient_alignment", "loss"}


def spec_of(algorithm: str, delta: float, num_agents: int) -> RunSpec:
    return replace(PLAN, variants=((algorithm, delta),)).spec(0, AGENTS[:num_agents], NOT_TRAINED)


def result_of(visit: Visit) -> RowResult:
    return RowResult(
        visit.num_tokens,
        visit.ratio,
        visit.clipped,
        visit.side,
        visit.flows,
        visit.weight,
        visit.drop_reason,
        float(visit.side < 0 and not visit.flows),
        float(visit.side > 0 and not visit.flows),
    )


def trainer_record(spec: RunSpec, facts: StepFacts, tracker: Any) -> step_events.StepRecord:
    """The same step in the trainer's own words; judged by its rules, the updates' results taken from `facts`."""
    n = len(facts.answers)
    rewards = torch.tensor([[[a.reward or 0.0 for a in g] for g in own] for own in facts.answers], dtype=torch.double)
    valid = torch.tensor([[[a.reward is not None for a in g] for g in own] for own in facts.answers])
    tracker.update(rewards, valid)
    generated = [
        GeneratedRollouts(
            [
                [
                    Response(a.text, a.text, "length" if a.is_cut else "stop", a.num_tokens, a.num_tokens, a.mean_logp)
                    for a in group
                ]
                for group in own
            ],
            (1.0, 1.0),
        )
        for own in facts.answers
    ]
    judged = objective_of(spec.algorithm, rewards, valid, tracker.ratio())
    plans, reports = [], []
    for learner in range(n):
        ratio, advantages = tracker.ratio(), judged.advantages[learner]
        plans.append(build_mini_batches(spec, facts.step, learner, generated, advantages, valid, ratio))
        by_place = {(v.source, v.prompt, v.sample): v for v in facts.visits[learner]}
        if n == 2 or not spec.algorithm.shares_rollouts:  # else the shuffled order is the generator's own
            assert [[(r.source, r.prompt, r.sample) for r in rows] for rows in plans[-1]] == grouped(
                facts.visits[learner]
            )
        else:
            rows = {(r.source, r.prompt, r.sample): r for batch in plans[-1] for r in batch}
            plans[-1] = [[rows[place] for place in batch] for batch in grouped(facts.visits[learner])]
        results = [[result_of(by_place[r.source, r.prompt, r.sample]) for r in batch] for batch in plans[-1]]
        reports.append(UpdateReport(results=results, losses=[0.0], grad_norms=[0.0]))
    return step_events.StepRecord(
        step=facts.step,
        names=[agent.name for agent in spec.agents],
        questions=[Question(q.id, q.text, str(q.answer), "") for q in facts.questions],
        generated=generated,
        rewards=rewards,
        valid=valid,
        tracker=tracker,
        timeouts=[0] * n,
        objective=judged,
        plans=plans,
        reports=reports,
        sharing=spec.algorithm.shares_rollouts,
        alpha=spec.algorithm.alpha if spec.algorithm.name == "hacpo" else None,
    )


def grouped(visits: list[Visit]) -> list[list[tuple[int, int, int]]]:
    found: dict[int, list[tuple[int, int, int]]] = {}
    for visit in visits:
        found.setdefault(visit.mini_batch, []).append((visit.source, visit.prompt, visit.sample))
    return list(found.values())


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in record.items() if key != "values"}
    body["source"] = body.get("source") or ""
    if "values" in record:
        body |= {key: value for key, value in record["values"].items() if key not in MADE_UP}
    if "ratios" in body:
        body |= body.pop("ratios")
    return body


@pytest.mark.parametrize(
    ("algorithm", "delta", "agents"),
    [("hacpo", 0.8, 2), ("hacpo", 0.2, 3), ("gspo", 0.2, 2), ("gspox2", 0.2, 2), ("hacpo", 0.2, 1)],
)
def test_generated_events_equal_what_the_trainer_would_tell_of_the_same_step(algorithm, delta, agents) -> None:
    spec, chance = spec_of(algorithm, delta, agents), random.Random(1)
    stepper, events = Stepper(spec, World(spec, chance)), StepEvents(spec, chance)
    tracker = hacpo.CapabilityTracker(agents)
    for step in (1, 2, 3):
        facts = stepper.make(step)
        ours = list(events.of(facts, with_rollouts=True))
        theirs = step_events.step_events(trainer_record(spec, facts, tracker), with_rollouts=True)
        assert len(ours) == len(theirs) > 50
        for mine, other in zip(ours, theirs, strict=True):
            expected = comparable(other.model_dump())
            for name, value in comparable(mine).items():
                wanted = expected.pop(name)
                is_number = isinstance(value, float | tuple)
                assert value == (pytest.approx(wanted, rel=1e-9, abs=1e-12) if is_number else wanted), name
            assert set(expected) <= {"quarantined"}


@pytest.mark.parametrize(("algorithm", "delta", "agents"), [("hacpo", 0.8, 2), ("hacpo", 0.2, 3), ("gspo", 0.2, 2)])
def test_generated_weights_sides_and_losses_are_the_trainers(algorithm, delta, agents) -> None:
    spec, chance = spec_of(algorithm, delta, agents), random.Random(2)
    stepper, events = Stepper(spec, World(spec, chance)), StepEvents(spec, chance)
    sides = set()
    for step in (1, 2):
        facts = stepper.make(step)
        for learner in range(agents):
            told = events.agent_metrics(facts, learner)["values"]
            losses = []
            for m in sorted({visit.mini_batch for visit in facts.visits[learner]}):
                rows = [v for v in facts.visits[learner] if v.mini_batch == m and v.ratio is not None]
                sides |= {(v.source == learner, v.side) for v in rows}
                losses.append(check_rows(spec, rows, learner, m))
            # Beside the policy's term each own update carries beta times the step's mean KL.
            own = spec.updates_per_block
            expected = (sum(losses) + own * spec.rule.beta * told["kl"]) / len(losses)
            assert told["loss"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert {(True, 0), (True, 1), (True, -1)} <= sides
    assert algorithm == "gspo" or (False, -1 if delta == 0.2 else 0) in sides


def check_rows(spec: RunSpec, rows: list[Visit], learner: int, m: int) -> float:
    column = lambda values: torch.tensor(list(values), dtype=torch.double)  # noqa: E731
    # One token a row, whose log-probability is log s above the source's.
    logps = column(v.ratio for v in rows).log()[:, None]
    common = (logps, torch.ones_like(logps), torch.zeros(len(rows), dtype=torch.double))
    advantages, planned = column(v.advantage for v in rows), float(spec.mini_batch_prompts * spec.num_generations)
    if spec.algorithm.shares_rollouts:
        is_self = torch.tensor([v.source == learner for v in rows])
        omega = column(v.omega for v in rows)
        loss, stats = hacpo.loss(*common, advantages, is_self, omega, m, spec.rule, denominator=planned)
    else:
        loss, stats = gspo.loss(*common, advantages, spec.rule, denominator=planned)
    assert stats["clip_side"].tolist() == [v.side for v in rows]
    assert stats["gradient_flows"].tolist() == [v.flows for v in rows]
    assert stats["weight"].tolist() == pytest.approx([v.weight for v in rows], rel=1e-12)
    assert stats["clipped_ratio"].tolist() == pytest.approx([v.clipped for v in rows], rel=1e-12)
    return loss.item()


def seed(**options: Any) -> None:
    small = {"runs": 5, "steps": 3, "prompts": 4, "generations": 2}
    call_command(Command(), **{**small, **options})


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    spec = spec_of("hacpo", 0.8, 2)
    first, second = ([*records(PLAN, 0, spec, 4)] for _ in range(2))
    assert first == second
    other = [*records(replace(PLAN, seed=4), 0, spec, 4)]
    rewards = [[r["reward"] for r in found if r["type"] == "rollout"] for found in (first, other)]
    assert rewards[0] != rewards[1]


def test_large_delta_learns_and_small_delta_is_the_trap() -> None:
    told = {}
    for delta in (0.8, 0.2):
        plan = replace(PLAN, steps=40, variants=(("hacpo", delta),))
        told[delta] = [*records(plan, 0, plan.spec(0, AGENTS[:2], NOT_TRAINED), 40)]

    def accuracy(delta: float, step: int) -> float:
        found = [r["value"] for r in told[delta] if r["type"] == "evaluation" and r["step"] == step]
        return sum(found) / len(found)

    def lost(delta: float) -> float:
        pairs = [r["ratios"]["clip_lower_frac/positive"] for r in told[delta] if r["type"] == "metrics" and r["source"]]
        return sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs)

    assert accuracy(0.8, 40) > accuracy(0.8, 0) + 0.25
    assert accuracy(0.8, 40) > accuracy(0.2, 40) + 0.15
    assert lost(0.8) < 0.05 < 0.8 < lost(0.2)


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
    with pytest.raises(CommandError, match="there already"):
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
    spec = PLAN.spec(0, AGENTS[:2], NOT_TRAINED)

    def cut_off() -> Any:
        for number, record in enumerate(records(PLAN, 0, spec, 4)):
            if number == 130:
                raise KeyboardInterrupt
            yield record

    with pytest.raises(KeyboardInterrupt):
        Store().add(
            new_run(PLAN, 0, spec, owner=user, project=project_of_new(user)), cut_off(), *end_of(PLAN, 0)[:1], 0.0
        )
    run = Run.objects.get()
    assert (run.state, run.last_seq) == ("draft", 100)
    run.delete()
    store = Store()
    store.add(
        new_run(PLAN, 0, spec, owner=user, project=project_of_new(user)), records(PLAN, 0, spec, 4), "completed", 0.0
    )
    store.flush()
    run = Run.objects.get()
    assert (run.state, run.step) == ("completed", 4)
    assert run.last_seq == store.num_rows == len([*records(PLAN, 0, spec, 4)])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "--runs 0 is out of bounds: 1 to 20,000"),
        ({"agents": 9}, "--agents 9 is out of bounds"),
        ({"runs": 20_000, "steps": 100_000}, "at most 20,000,000"),
        ({"algorithms": "hacpo,magic"}, "'magic'"),
        ({"deltas": "small"}, "wants numbers"),
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
