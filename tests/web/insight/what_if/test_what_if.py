"""What-if: recorded numbers come back exactly at the recorded values, other values by hand, and odd requests."""

from __future__ import annotations

import itertools

import pytest
import torch
from django.urls import reverse

from hacrl_web.insight.rollouts.waterfall import LearnerContribution, equation, waterfalls
from hacrl_web.insight.what_if.rows import Rows, read
from hacrl_web.insight.what_if.sums import check_recorded, learner_step_of
from hacrl_web.insight.what_if.what_if import what_if_answer
from hacrl_web.runs.models import Run
from tests.support.web.insight_rows import contribution, insert, store
from tests.support.workers.tiny import GradedVerifier, HashVerifier, make_pair, make_spec, train
from workers.agents import ahead
from workers.agents.local import LocalAgent
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.hacpo import Hacpo
from workers.contract.advantages import RewardGroup
from workers.contract.events import Metrics
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter


@pytest.fixture(scope="module", params=[HashVerifier, GradedVerifier], ids=["binary", "graded"])
def trained(tmp_path_factory, request):
    """A real run: its spec and run directory."""
    root = tmp_path_factory.mktemp("trained")
    spec = make_spec(
        root,
        make_pair(root),
        rollout={"num_generations": 8},
        training={"steps": 5, "train_batch_size": 8, "mini_batch_size": 4},
        evaluation={"eval_interval": 100},
        algorithm={"capability_window": 2},
    )
    train(spec, root / "run", verifier=request.param())
    return spec, root / "run"


@pytest.fixture
def real(trained, make_run, user) -> Run:
    spec, run_dir = trained
    run = make_run(user)
    run.spec = spec.model_dump(mode="json")
    run.save()
    store(run, run_dir)
    return run


def test_recorded_values_give_the_recorded_shares_and_weights_exactly(web, real):
    query = {"first": 0, "last": 99, "alpha": 1.0, "delta": 0.8, "check": True}
    answer = web.get(reverse("api-1:what_if", args=[real.pk]), query).json()
    assert answer["steps"] == 5
    check = answer["check"]
    assert check["rows"] == check["weights"] == check["sides"] > 500
    assert (check["strengths"], check["capabilities"]) == (10, 10)
    assert check["advantage"] < 1e-6
    for pair in answer["pairs"]:
        assert pair["recorded"] == pair["hypothetical"]
    by_pair: dict[tuple[str, str], list[float]] = {}
    for payload, agent, source in real.events.filter(type="metrics").values_list("payload", "agent", "source"):
        for place, name in enumerate(("clip_lower_frac", "clip_upper_frac", "used_frac") if source else ()):
            sums = by_pair.setdefault((agent, source), [0.0] * 6)
            sums[2 * place] += payload["ratios"][name][0]
            sums[2 * place + 1] += payload["ratios"][name][1]
    names = real.agent_names
    for pair in answer["pairs"]:
        if pair["learner"] != pair["source"]:
            ours = pair["hypothetical"]
            shares = [ours["lower"], ours["evaluated"], ours["upper"], ours["evaluated"], ours["used"], ours["rows"]]
            assert shares == by_pair[names[pair["learner"]], names[pair["source"]]]


def test_importance_weights_are_a_factor_of_own_weights_here_and_in_the_waterfall(
    make_run, user, tmp_path, monkeypatch
):
    def in_this_process(spec, index, folder):
        return LocalAgent(spec.agents[index], spec, torch.device("cpu"), folder)

    monkeypatch.setattr(ahead, "RankedAgent", in_this_process)
    spec = make_spec(
        tmp_path,
        make_pair(tmp_path),
        rollout={"max_staleness": 1, "importance_cap": 1.1},
        training={"steps": 3},
        evaluation={"eval_interval": 100},
        algorithm={"name": "hacpo", "delta": 0.8},
    )
    train(spec, tmp_path / "run").close()
    run = make_run(user)
    run.spec = spec.model_dump(mode="json")
    run.save()
    store(run, tmp_path / "run")
    weighed = run.contributions.exclude(importance=None)
    assert weighed.exclude(weight=0).count() > 5
    assert all(row.agent == row.source and row.importance <= 1.1 for row in weighed)
    check = what_if_answer(run, 1, 3, {}, checks=True)["check"]
    assert check.rows == check.weights == check.sides > 20
    rows = [LearnerContribution(row.agent, 0, row, equation(spec.rule, row)) for row in weighed.exclude(weight=0)]
    assert all("· A · w = " in row.equation for row in rows)
    assert all(one.gap is not None and one.gap < 1e-6 for one in waterfalls(spec.rule, rows))
    # Another limit of the ratio changes A of some agent, and leaves the weights of importance.
    own = [
        pair for pair in what_if_answer(run, 1, 3, {"ratio_max": 1.01})["pairs"] if pair["learner"] == pair["source"]
    ]
    assert all(pair["hypothetical"]["weight"] > 0 for pair in own)
    assert any(pair["hypothetical"]["weight"] != pair["recorded"]["weight"] for pair in own)


@pytest.mark.parametrize("eos", ["map", "strip"])
def test_advantages_of_penalised_rewards_are_recomputed_too(web, user, make_run, tmp_path, eos):
    spec = make_spec(
        tmp_path,
        make_pair(tmp_path),
        rollout={"num_generations": 8},
        training={"steps": 2},
        algorithm={"overlong_cache": 5, "eos": eos},
    )
    train(spec, tmp_path / "run")
    run = make_run(user)
    run.spec = spec.model_dump(mode="json")
    run.save()
    store(run, tmp_path / "run")
    check = web.get(reverse("api-1:what_if", args=[run.pk]), {"first": 0, "last": 9, "check": True}).json()["check"]
    assert check["rows"] == check["weights"] > 100
    assert (check["strengths"], check["capabilities"]) == (4, 4)
    assert check["advantage"] < 1e-6


@pytest.mark.parametrize("cross_advantage", ["learner", "source"])
@pytest.mark.parametrize("modulate_gradient", [True, False])
def test_views_follow_quarantine_and_options(cross_advantage, modulate_gradient):
    n, num_prompts, per_prompt = 3, 12, 4
    algorithm = Hacpo(cross_advantage=cross_advantage, modulate_gradient=modulate_gradient)
    generator = torch.Generator().manual_seed(4)
    chance = torch.tensor([0.2, 0.5, 0.8])[:, None, None]
    rewards = (torch.rand(n, num_prompts, per_prompt, generator=generator) < chance).float()
    trusted = torch.tensor([[True, False, True], [True, True, True], [False, False, True]])
    tracker = CapabilityTracker(n)
    tracker.update(rewards)
    omega = tracker.ratio()
    of_trainer = algorithm.objective(rewards, torch.ones_like(rewards, dtype=torch.bool), omega, trusted=trusted)
    rows = Rows(n, steps=[1])
    rows.groups = {1: {q: RewardGroup({j: rewards[j, q].tolist() for j in range(n)}) for q in range(num_prompts)}}
    rows.quarantined = {(1, k, j) for k in range(n) for j in range(n) if not trusted[k, j]}
    ratio_of_pair = {(a, b): omega[a, b].item() for a in range(n) for b in range(n)}
    for k, j in itertools.product(range(n), range(n)):
        learner_step = learner_step_of(rows, 1, k, algorithm, ratio_of_pair)
        for q in range(num_prompts):
            advantages = learner_step.of(j, rewards[j, q].tolist(), [q] * per_prompt)
            assert advantages == pytest.approx(of_trainer.advantages[k][j, q].tolist(), rel=2e-6, abs=2e-6), (k, j, q)


def by_hand(run: Run) -> None:
    """One step, one prompt. A's rewards 0, 0, B's 1, 0; P[A] = .25, P[B] = .5 as the metrics say."""
    place = {"prompt": "p", "step": 1}
    rows = [
        # learner, source, sample, reward, A, s, m, omega, weight
        ("A", "A", 0, 0.0, -0.5, 1.0, 0, 1.0, -0.5),
        ("A", "A", 1, 0.0, -0.5, 1.0, 0, 1.0, -0.5),
        ("A", "B", 0, 1.0, 1.5, 0.9, 1, 2.0, 0.9**2 * 2 * 1.5),
        ("A", "B", 1, 0.0, -0.5, 0.5, 1, 2.0, 0.0),
        ("B", "B", 0, 1.0, 1.0, 1.0, 0, 1.0, 1.0),
        ("B", "B", 1, 0.0, 0.0, None, 0, 1.0, 0.0),
    ]
    records = [
        contribution(
            seq, place["step"], learner, source, place["prompt"], sample, reward=reward, advantage=a,
            sequence_ratio=s, clip_side="lower" if s == 0.5 else "none", omega=omega, mini_batch=m, weight=weight,
        )
        for seq, (learner, source, sample, reward, a, s, m, omega, weight) in enumerate(rows, start=1)
    ]  # fmt: skip
    for seq, (agent, strength) in enumerate((("A", 0.25), ("B", 0.5)), start=10):
        ratio = {"reward/mean": [4 * strength, 4.0]}
        body = {"values": {"capability": strength}, "ratios": ratio}
        records.append({"type": "metrics", "seq": seq, "attempt": 1, "time": 1.0, "step": 1, "agent": agent, **body})
    insert(run.pk, records)


def pairs_of(run: Run, **settings) -> dict[tuple[int, int], dict]:
    return {(p["learner"], p["source"]): p["hypothetical"] for p in what_if_answer(run, 0, 9, settings)["pairs"]}


def test_other_exponent_bound_and_mode_by_hand(make_run, user):
    run = make_run(user, algorithm={"name": "hacpo", "delta": 0.2, "delta_step": 0.025})
    by_hand(run)
    # Recorded: the band of m = 1 is [.825, 1]; .5 lies below and is not used.
    assert (pairs_of(run)[0, 1]["lower"], pairs_of(run)[0, 1]["used"]) == (1, 1)
    # alpha 0: .9 * 2 * 1.5 = 2.7.
    assert pairs_of(run, alpha=0.0)[0, 1]["weight"] == pytest.approx(2.7, rel=1e-6)
    # delta .8: the band is [.225, 1], both are inside: 2.43 + .25 * 2 * .5 = 2.68.
    wider = pairs_of(run, delta=0.8)[0, 1]
    assert (wider["lower"], wider["used"], wider["negative"]) == (0, 2, [1, 0, 0])
    assert wider["weight"] == pytest.approx(2.68, rel=1e-6)
    # keep: below the band too, at c = .825: 2.43 + .825^2 * 2 * .5 = 3.110625.
    outside = pairs_of(run, cross_clip_gradient="keep")[0, 1]
    assert (outside["lower"], outside["used"]) == (1, 2)
    assert outside["weight"] == pytest.approx(3.110625, rel=1e-6)
    # Shares of A's |weight|: own .5 + .5, of B 2.43.
    assert what_if_answer(run, 0, 9, {})["pairs"][1]["recorded"]["share"] == pytest.approx(2.43 / 3.43)


def test_steps_in_which_nobody_was_taught_say_so(make_run, user):
    run, other = make_run(user), make_run(user)
    same_rewards = [
        contribution(seq, 1, agent, agent, "p", 0, reward=1.0, advantage=0.0, weight=0.0)
        for seq, agent in enumerate("AB", start=1)
    ]
    insert(run.pk, same_rewards)
    by_hand(other)
    assert [text.split(",")[0] for text in what_if_answer(run, 0, 9, {})["cautions"]] == [
        "Every weight on record for these steps is 0"
    ]
    assert what_if_answer(other, 0, 9, {})["cautions"] == []


def test_clamp_by_hand_and_what_was_never_measured(make_run, user):
    run = make_run(user, algorithm={"name": "hacpo", "delta": 0.2, "delta_step": 0.025})
    by_hand(run)
    # omega(A, B) = .25 / .5 = .5 is clamped at .9: mu_A = (0 + 0 + .9 * 1 + 0) / 4 = .225. The rewards 0, 0, 1, 0 have
    # std .5 (ddof 1), so A is (1 - .225) / .5 = 1.55, and -.45 for a wrong one.
    # omega(B, A) = 2 is clamped at 1.2, the factor on B's rollouts: .81 * 1.2 * 1.55 = 1.5066.
    pairs = pairs_of(run, ratio_min=0.9, ratio_max=1.2)
    assert pairs[0, 1]["omega"] == pytest.approx(1.2)
    assert pairs[0, 1]["weight"] == pytest.approx(0.81 * 1.2 * 1.55, rel=3e-6)
    assert pairs[0, 0]["weight"] == pytest.approx(2 * 0.45, rel=3e-6)
    # B's own wrong rollout had A = 0 and no s on record: mu_B = (1.2 * 0 + 1) / 4 = .25, so it would have A = -.5.
    assert (pairs[1, 1]["unknown"], pairs[1, 1]["evaluated"]) == (1, 1)
    # A clamp that touches no omega changes nothing at all.
    assert pairs_of(run, ratio_min=0.2, ratio_max=9.0) == pairs_of(run)


def test_restart_of_a_capability_window_is_found(make_run, user, tmp_path):
    run = make_run(user)
    run_dir = tmp_path / "spool"
    run_dir.mkdir()
    writer = SpoolWriter(run_dir, 1)
    # Means .2, .4, .6, .8 with a restart at step 3: P = .2, .3, .6, .7.
    for step, (mean, strength) in enumerate(((0.2, 0.2), (0.4, 0.3), (0.6, 0.6), (0.8, 0.7)), start=1):
        for agent in ("A", "B"):
            values, share = {"capability": strength}, {"reward/mean": (mean, 1.0)}
            writer.emit(Metrics(step=step, agent=agent, values=values, ratios=share))
    writer.close()
    store(run, run_dir)
    insert(run.pk, [contribution(100 + step, step, "A", "A", "p", 0) for step in (1, 2, 3, 4)])
    rows = read(run, 1, 4, run.spec["algorithm"]["capability_window"])
    assert rows.restarts == [[3], [3]]
    assert rows.means_until(0, 4) == [0.6, 0.8]
    assert rows.means_until(0, 2) == [0.2, 0.4]


def test_too_many_rows_are_thinned_evenly(make_run, user, monkeypatch):
    monkeypatch.setattr("hacrl_web.insight.what_if.rows.MAX_STEPS", 4)
    run = make_run(user)
    insert(run.pk, [contribution(step, step, "A", "A", "p", 0) for step in range(1, 41)])
    rows = read(run, 1, 40, run.spec["algorithm"]["capability_window"])
    assert (rows.steps, rows.is_thinned) == ([1, 14, 27, 40], True)
    rows = read(run, 37, 40, run.spec["algorithm"]["capability_window"])
    assert (rows.steps, rows.is_thinned) == ([37, 38, 39, 40], False)


def test_page_weighs_all_recorded_steps_and_offers_the_first_and_the_last_ones(web, user, make_run):
    run = make_run(user)
    insert(run.pk, [contribution(step, step, "A", "A", "p", 0) for step in range(3, 25)])
    context = web.get(reverse("insight:run_what_if", args=[run.pk])).context
    assert (context["page_data"]["first"], context["page_data"]["last"]) == (3, 24)
    assert [(one["first"], one["last"]) for one in context["windows"]] == [(3, 24), (3, 12), (15, 24)]


ODD = [
    ("alpha=nan", 422), ("delta=1.5", 422), ("capability_window=101", 422), ("ratio_min=1.1", 422),
    ("cross_clip_gradient=none", 422), ("first=9&last=3", 422), ("last=x", 422), ("alpha=", 422),
    ("first=5&last=2147483647", 200), ("beta=7&seed=1", 422), ("alpha=2&alpha=3", 200),
]  # fmt: skip


@pytest.mark.parametrize(("query", "status"), ODD)
def test_odd_requests_are_refused_in_words(web, user, make_run, query, status):
    run = make_run(user)
    by_hand(run)
    answer = web.get(f"{reverse('api-1:what_if', args=[run.pk])}?{query}")
    assert answer.status_code == status, answer.content
    if status == 422:
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["gspo", "grpo", "naive_learner"])
def test_runs_that_share_nothing_by_these_rules_say_so(web, user, make_run, name):
    run = make_run(user, algorithm={"name": name})
    insert(run.pk, [contribution(1, 1, "A", "A", "p", 0)])
    assert "Nothing to change" in web.get(reverse("insight:run_what_if", args=[run.pk])).content.decode()
    answer = web.get(reverse("api-1:what_if", args=[run.pk])).json()
    assert (name in answer["nothing"], answer["pairs"]) == (True, [])


def test_run_without_rows_has_a_page_and_an_empty_answer(web, user, make_run):
    run = make_run(user)
    assert "No rollouts recorded yet" in web.get(reverse("insight:run_what_if", args=[run.pk])).content.decode()
    answer = web.get(reverse("api-1:what_if", args=[run.pk]), {"check": True}).json()
    assert (answer["steps"], answer["pairs"], answer["check"]) == (0, [], None)


def test_clone_opens_the_form_with_these_values_and_asks_about_a_delta_that_nobody_confirmed(web, user, make_run):
    run = make_run(user, algorithm={"name": "hacpo", "delta": 0.2}, name="first")
    by_hand(run)
    answer = web.get(
        reverse("api-1:what_if", args=[run.pk]),
        {"alpha": 2, "delta": 0.8, "capability_window": 3, "cross_clip_gradient": "keep"},
    ).json()
    assert "is a delta of 0.2" in answer["cautions"][0]
    form = web.get(f"{reverse('runs:run_clone', args=[run.pk])}?{answer['clone']}", follow=True)
    form_parts = form.context["fields"], form.context["sections"]
    settings = [*form.context["common"], *(f for section in form_parts[1] for f in section.fields)]
    values = {f.path: f.value for f in settings}
    assert (values["algorithm.alpha"], values["algorithm.delta"]) == ("2.0", "0.8")
    assert (values["algorithm.capability_window"], values["algorithm.cross_clip_gradient"]) == ("3", "keep")
    assert values["algorithm.delta_step"] == "0.025"
    assert form.context["confirmed"] == []


def test_check_would_see_a_weight_that_is_not_its_formulas(make_run, user):
    run = make_run(user, algorithm={"name": "hacpo", "delta": 0.2, "delta_step": 0.025})
    by_hand(run)
    check = check_recorded(
        read(run, 1, 1, run.spec["algorithm"]["capability_window"]), RunSpec.model_validate(run.spec).rule
    )
    # .9^2 * 3 by hand is not the trainer's float32 number, and own rows are exact.
    assert (check.rows, check.weights, check.sides) == (5, 4, 5)
    assert 0 < check.worst < 1e-6
    # mu_B = (2 * 0 + 2 * 0 + 1 + 0) / 4 = .25: B's right rollout has A = .75 / .5 = 1.5, and 1 is on record.
    assert check.advantage == pytest.approx(0.5, rel=1e-5)
