"""What-if on runs whose omega is by prompt or by subject: recorded numbers exactly, other values as the trainer's."""

from __future__ import annotations

import pytest
import torch
from django.urls import reverse

from hacrl_web.insight.what_if import what_if
from hacrl_web.insight.what_if.learner_step import learner_step_of, ratios, ratios_of_prompts
from hacrl_web.insight.what_if.rows import read
from hacrl_web.insight.what_if.sums import hypothetical, recorded
from hacrl_web.insight.what_if.what_if import with_hypothetical
from hacrl_web.runs.models import Run
from tests.support.web.insight_rows import contribution, insert, store
from tests.support.workers.tiny import make_pair, make_spec, train
from workers.algorithms.hacpo import CapabilityTracker
from workers.contract.spec.run import RunSpec

SCOPES = {
    "prompt": {"omega_scope": "prompt"},
    "prompt, overlong": {"omega_scope": "prompt", "overlong_cache": 4},  # omega is of the rewards without the penalty
    "subject": {"omega_scope": "subject"},
}


@pytest.fixture(scope="module", params=SCOPES)
def trained(tmp_path_factory, request):
    """A real run: its spec and run directory."""
    root = tmp_path_factory.mktemp("trained")
    spec = make_spec(
        root,
        make_pair(root),
        rollout={"num_generations": 8},
        training={"steps": 4, "train_batch_size": 8, "mini_batch_size": 4},
        evaluation={"eval_interval": 100},
        algorithm={"capability_window": 2, **SCOPES[request.param]},
    )
    train(spec, root / "run")
    return spec, root / "run"


@pytest.fixture
def real(trained, make_run, user) -> Run:
    spec, run_dir = trained
    run = make_run(user)
    run.spec = spec.model_dump(mode="json")
    run.save()
    store(run, run_dir)
    return run


def test_recorded_weights_come_back_exactly(web, real):
    scope = real.spec["algorithm"]["omega_scope"]
    answer = web.get(reverse("api-1:what_if", args=[real.pk]), {"check": True}).json()
    check = answer["check"]
    assert check["rows"] == check["weights"] == check["sides"] > 500
    assert (check["strengths"], check["capabilities"]) == (8, 8)
    assert (check["advantage"] is None) == (scope == "subject")
    assert scope == "subject" or check["advantage"] < 1e-6
    for pair in answer["pairs"]:
        assert pair["recorded"] == pair["hypothetical"]
        low, high = pair["recorded"]["omega_range"]
        assert (low < high) == (pair["learner"] != pair["source"])


def test_settings_of_omega_are_turned_by_prompt_alone(web, real):
    by_prompt = real.spec["algorithm"]["omega_scope"] == "prompt"
    sliders = web.get(reverse("insight:run_what_if", args=[real.pk])).context["sliders"]
    assert ({"capability_window", "omega_shrinkage"} <= {one["name"] for one in sliders}) == by_prompt
    for name, value in (("capability_window", 1), ("ratio_max", 1.1), ("omega_shrinkage", 1)):
        answer = web.get(reverse("api-1:what_if", args=[real.pk]), {name: value})
        assert answer.status_code == (200 if by_prompt else 422)
        assert by_prompt or answer.json()["errors"][0]["message"] == what_if.BY_SUBJECT


def test_setting_that_cannot_be_varied_says_why_in_this_run(tmp_path):
    def reason(name, **algorithm):
        spec = make_spec(tmp_path, make_pair(tmp_path), algorithm={"name": "hacpo", **algorithm})
        return what_if.why_constant(name, spec)

    assert reason("omega_shrinkage") == "It has no effect in this run."
    assert "the records hold no omega by subject" in reason("omega_shrinkage", omega_scope="subject")
    assert reason("scale_rewards", omega_scope="subject") == "What-if does not vary this setting."


@pytest.mark.parametrize("trained", ["prompt"], indirect=True)
def test_other_values_give_the_omegas_and_advantages_of_the_trainer(real, trained):
    spec, _ = trained
    changes = {"capability_window": 1, "omega_shrinkage": 1.5, "ratio_max": 1.75, "ratio_min": 0.4}
    rule = with_hypothetical(spec, changes).rule
    rows, step, n, per_prompt = read(real, 1, 4, 2, by_prompt=True), 3, 2, 8
    prompts = sorted(rows.groups[step])
    rewards = torch.stack(
        [torch.tensor([list(rows.groups[step][prompt].rewards[agent]) for prompt in prompts]) for agent in range(n)]
    )
    assert rewards.shape == (n, len(prompts), per_prompt)
    tracker = CapabilityTracker.of(n, rule.capability_options)
    tracker.update(rewards)
    omega = tracker.step_ratio()  # (n, n, B)
    overall, of_prompts = ratios(rows, step, rule), ratios_of_prompts(rows, step, rule)
    for place, prompt in enumerate(prompts):
        assert of_prompts[prompt] == {(a, b): omega[a, b, place].item() for a in range(n) for b in range(n)}
    objective = rule.objective(rewards, torch.ones_like(rewards, dtype=torch.bool), omega)
    compared = 0
    for block in (block for block in rows.blocks if block.step == step):
        learner_step = learner_step_of(rows, step, block.learner, rule, overall, of_prompts)
        for a, reward, prompt in zip(learner_step.advantages(block), block.rewards, block.prompts, strict=True):
            place = prompts.index(prompt)
            expected = objective.advantages[block.learner][block.source, place]
            of_reward = expected[rewards[block.source, place] == reward]
            assert a == pytest.approx(of_reward[0].item(), rel=2e-6, abs=2e-6)
            factor = rule.omega(omega, block.learner, block.source)[place].item()
            assert learner_step.omega(block, rule) == factor
            compared += factor != 1.0
    assert compared > 20
    before, after = recorded(rows, spec.rule), hypothetical(rows, spec.rule, rule)
    assert before[0, 1].weight != after[0, 1].weight
    assert {0.4, 1.75} <= {*after[0, 1].omegas, *after[1, 0].omegas}
    assert all(0.4 <= value <= 1.75 for value in after[0, 1].omegas)


def test_prompts_of_one_update_keep_their_own_omegas_by_hand(make_run, user):
    run = make_run(user, algorithm={"name": "hacpo", "delta": 0.5, "delta_step": 0.0, "omega_scope": "prompt"})
    rows = [
        # learner, source, prompt, reward, A, s, m, omega, weight
        ("A", "A", "p", 0.0, -1.0, 1.0, 0, 1.0, -1.0),
        ("A", "A", "q", 1.0, 1.0, 1.0, 0, 1.0, 1.0),
        ("A", "B", "p", 1.0, 1.0, 0.5, 1, 2.0, 0.5**2 * 2),
        ("A", "B", "q", 0.0, -1.0, 0.5, 1, 0.25, -(0.5**2) * 0.25),
    ]
    insert(
        run.pk,
        [
            contribution(
                seq, 1, learner, source, prompt, 0, reward=reward, advantage=a, sequence_ratio=s, omega=omega,
                mini_batch=m, weight=weight,
            )
            for seq, (learner, source, prompt, reward, a, s, m, omega, weight) in enumerate(rows, start=1)
        ],
    )  # fmt: skip
    spec = RunSpec.model_validate(run.spec)
    seen = read(run, 1, 1, 5, by_prompt=True)
    # alpha 0: .5 * 2 + .5 * .25 = 1.125 in place of .25 * 2 + .25 * .25 = .5625.
    assert recorded(seen, spec.rule)[0, 1].weight == 0.5625
    other = with_hypothetical(spec, {"alpha": 0.0}).rule
    pair = hypothetical(seen, spec.rule, other)[0, 1]
    assert (pair.weight, pair.used, sorted(pair.omegas)) == (1.125, 2, [0.25, 2.0])
