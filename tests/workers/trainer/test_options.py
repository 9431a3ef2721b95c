"""Options of a run that change its path through the trainer: more agents, passes, precisions, ends of sequence."""

from __future__ import annotations

import pytest
import torch

from tests.support.workers.tiny import make_spec, records, train, weights
from workers.agents.local import LocalAgent
from workers.agents.messages import LearnerRow, Response
from workers.agents.updates import Inputs, MiniBatchSize, gather_gradients, prepare_rows, run_updates
from workers.algorithms.registry import algorithms
from workers.model.policy import Policy
from workers.questions.dataset import split_questions


def values(run_dir, agent: str, source: str | None, name: str) -> list[float]:
    found = records(run_dir, "metrics")
    return [record["values"][name] for record in found if (record["agent"], record["source"]) == (agent, source)]


def test_three_agents_end_at_the_bound_of_two(tmp_path, trio):
    spec = make_spec(tmp_path, trio, algorithm={"delta": 0.2, "delta_step": 0.05})
    # M = 1, n = 3: the last update is number 2 instead of 1; the step is halved, .05 * 1 / 2.
    assert spec.rule.delta_step == pytest.approx(0.025)
    assert spec.rule.shared_band(spec.last_update)[0] == pytest.approx(0.85)
    run_dir = tmp_path / "run"
    train(spec, run_dir)
    below = [
        row for row in records(run_dir, "contribution") if row["clip_side"] == "lower" and row["agent"] != row["source"]
    ]
    assert below
    for row in below:
        assert row["clipped_ratio"] == pytest.approx({1: 0.825, 2: 0.85}[row["mini_batch"]])


def test_second_pass_moves_weights_and_is_recorded_once(tmp_path, trio):
    run_dir = tmp_path / "run"
    twice = train(make_spec(tmp_path, trio[:2], training={"num_iterations": 2, "steps": 1}), run_dir)
    once = train(make_spec(tmp_path, trio[:2], training={"steps": 1}), tmp_path / "once")
    assert not torch.equal(weights(twice, 0)["model.norm.weight"], weights(once, 0)["model.norm.weight"])
    rows = records(run_dir, "contribution")
    assert len(rows) == 2 * 2 * 16
    assert {row["mini_batch"] for row in rows} == {0, 2}
    (told,) = [r for r in records(run_dir, "metrics") if (r["agent"], r["source"]) == ("Qwen", "Llama")]
    assert told["ratios"]["used_frac"][1] == 32  # the metric counts both visits


@pytest.mark.parametrize("name", ["gspo", "grpo"])
def test_bfloat16_scores_its_own_rollouts_again(tmp_path, trio, monkeypatch, name):
    run_dir = tmp_path / "run"
    # Off by a tenth: ten times what other shapes of batches change in bfloat16, on whatever processor.
    exact = LocalAgent._score
    monkeypatch.setattr(
        LocalAgent,
        "_score",
        lambda self, rows: [[value + 0.1 for value in row] for row in exact(self, rows)],
    )
    changes = {"compute": {"dtype": "bfloat16"}, "training": {"mini_batch_size": 2}}
    spec = make_spec(tmp_path, trio[:1], algorithm={"name": name}, **changes)
    trainer = train(spec, run_dir)
    assert next(iter(weights(trainer, 0).values())).dtype == torch.bfloat16
    own = [row for row in records(run_dir, "contribution") if row["sequence_ratio"] is not None]
    # Before the first update of a step the weights are those that sampled, so s = 1 whatever the score.
    assert max(abs(row["sequence_ratio"] - 1) for row in own if row["mini_batch"] == 0) < 1e-6
    assert max(abs(row["sequence_ratio"] - 1) for row in own if row["mini_batch"] == 1) > 1e-3
    told = values(run_dir, "Qwen", None, "sampling_logp_difference/max")
    assert told == pytest.approx([0.1] * 3, abs=0.03)
    resumed = train(spec, run_dir, attempt=2)
    for name, master in resumed.agents[0].policy.optimizer.masters.items():  # type: ignore[attr-defined]
        assert torch.equal(master, trainer.agents[0].policy.optimizer.masters[name])  # type: ignore[attr-defined]


@pytest.mark.parametrize("changes", [{"eos": "strip"}, {"eos": "literal"}, {"ratio_length": "source"}, {"beta": 0.1}])
def test_every_option_of_the_loss_trains(tmp_path, trio, changes):
    run_dir = tmp_path / "run"
    train(make_spec(tmp_path, trio[:2], algorithm=changes, training={"steps": 2}), run_dir)
    rows = [row for row in records(run_dir, "contribution") if row["weight"]]
    assert {row["agent"] == row["source"] for row in rows} == {True, False}
    difference = [value for value in values(run_dir, "Qwen", None, "sampling_logp_difference/max") if value is not None]
    assert max(difference) < 5e-6
    kl = values(run_dir, "Qwen", None, "kl")
    assert (kl[0] is not None) == ("beta" in changes)
    if "beta" in changes:
        assert kl[0] == pytest.approx(0.0, abs=1e-6)  # the first update starts at the reference
        assert kl[1] > 1e-6


def test_rollouts_are_recorded_every_so_many_steps(tmp_path, trio):
    train(make_spec(tmp_path, trio[:1], telemetry={"rollout_interval": 2}), tmp_path / "run")
    assert {record["step"] for record in records(tmp_path / "run", "rollout")} == {2}
    train(make_spec(tmp_path, trio[:1], telemetry={"rollout_interval": 0}), tmp_path / "none")
    assert not records(tmp_path / "none", "rollout")


def test_sampled_evaluation_repeats_itself(tmp_path, trio):
    spec = make_spec(tmp_path, trio[:1], evaluation={"temperature": 1.0}, training={"steps": 1})
    trainers = [train(spec, tmp_path / name) for name in ("a", "b")]
    questions = split_questions(spec.data).held_out
    texts = [trainer.agents[0].evaluate(1, questions) for trainer in trainers]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 2
    assert trainers[0].agents[0].evaluate(2, questions) != texts[0]  # sampled: another step, other texts


@pytest.mark.parametrize("name", [*algorithms()])
def test_gradients_of_any_micro_batch_size_are_the_same_in_float64(tmp_path, trio, name):
    own = {"delta": 0.2} if name == "hacpo" else {}
    spec = make_spec(tmp_path, trio[:2], algorithm={"name": name, "beta": 0.05, **own})
    policy = Policy(spec.agents[0], spec, torch.device("cpu"))
    policy.model.double()
    policy.reference.double()
    shares = algorithms()[name].can_share
    response = Response("1", "1", "stop", 2, 2, -1.0)
    rows, inputs = [], []
    for number in range(32):  # prompts and responses of 1 to 4 and 1 to 7 tokens
        prompt, ids = (
            [2 + number % 9] * (1 + number % 4),
            [2 + (number * 5 + place) % 16 for place in range(1 + number % 7)],
        )
        with torch.no_grad():
            logps, _ = policy.token_logps([prompt], [ids])
        is_self = number % 2 == 0 or not shares
        old = [value + 0.1 * (number % 3) for value in logps[0].tolist()]
        advantage = (-1.0) ** number * (0.3 + number % 5)
        rows.append(LearnerRow(0, 0 if is_self else 1, number, is_self, advantage, 1.5, None if is_self else response))
        inputs.append(Inputs(prompt, ids, sum(old) / len(ids), len(ids), old))
    found = []
    for size in (32, 8, 1, 5):
        policy.micro_batch_size = size
        results, active = prepare_rows(rows, lambda row: inputs[row.sample], spec.rule, {})
        gathered = gather_gradients(policy, spec.rule, active, 1, MiniBatchSize(40, 128, 9), [])
        found.append((gathered.loss, torch.cat([part.flatten() for part in policy.optimizer.pop_gradients()])))
        assert len(active) == 32
        assert any(result.gradient_flows for result in results)
    assert found[0][1].dtype == torch.float64
    assert found[0][1].abs().max() > 1e-2
    for loss, gradient in found[1:]:
        assert loss == pytest.approx(found[0][0], abs=1e-6)
        torch.testing.assert_close(gradient, found[0][1], rtol=0, atol=1e-6)


def test_missing_rollouts_stay_in_the_denominator(tmp_path, trio):
    # Planned: 4 prompts x 4 rollouts = 16 rows; 2 are here. Their old log-probability is the present one: s = 1, so
    # the loss is -(2 - 1) / 16, whether the others were unscorable, dropped or had advantage 0.
    spec = make_spec(tmp_path, trio[:1])
    policy = Policy(spec.agents[0], spec, torch.device("cpu"))
    with torch.no_grad():
        logps, _ = policy.token_logps([[2, 3]], [[4, 5, 1]])
    given = Inputs([2, 3], [4, 5, 1], logps.mean().item(), 3)
    rows = [LearnerRow(0, 0, number, True, advantage, 1.0) for number, advantage in enumerate([2.0, -1.0, 0.0])]
    rows.append(LearnerRow(0, 0, 9, True, 5.0, 1.0))
    report = run_updates(policy, spec, [rows], lambda row: "empty" if row.sample == 9 else given, 1e-3, 0)
    assert report.losses == [pytest.approx(-1 / 16, abs=1e-6)]
    assert [result.drop_reason for result in report.results[0]] == [None, None, None, "empty"]
    assert [result.sequence_ratio is None for result in report.results[0]] == [False, False, True, True]
