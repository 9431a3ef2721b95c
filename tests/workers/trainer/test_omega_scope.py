"""Runs whose omega is by prompt or by subject: what they record, n = 3, quarantine, and an exact resume."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.support.workers.endings import assert_same_end
from tests.support.workers.tiny import HashVerifier, make_agent, make_pair, make_spec, records, train, weights
from workers.agents.messages import GeneratedRollouts, Response
from workers.algorithms.base.capability import CapabilityTracker
from workers.contract.spec.run import RunSpec
from workers.trainer.replay import Replay
from workers.trainer.scoring import Scores
from workers.trainer.step import plan_step
from workers.trainer.trust import Trust

SCOPES = ("prompt", "subject")


@pytest.fixture(scope="module")
def trio(tmp_path_factory) -> list[dict]:
    root = tmp_path_factory.mktemp("trio")
    return [*make_pair(root), {"name": "Third", "model": str(make_agent(root / "third", "llama", seed=9))}]


def spec_of(root: Path, agents: list[dict], **algorithm) -> RunSpec:
    return make_spec(
        root,
        agents,
        algorithm=algorithm,
        training={"steps": 4},
        checkpoint={"save_steps": 2},
        evaluation={"eval_interval": 0},
    )


class StopsInStepFour(HashVerifier):
    calls = 0

    def score(self, completions, answers):
        self.calls += 1  # of three agents: an evaluation, three steps, then the fourth
        if self.calls > self.limit:
            raise KeyboardInterrupt
        return super().score(completions, answers)

    limit = 10**9


@pytest.mark.parametrize("scope", SCOPES)
def test_resumed_run_of_three_agents_ends_as_the_uninterrupted_one(tmp_path, trio, scope):
    spec = spec_of(tmp_path, trio, omega_scope=scope)
    whole = StopsInStepFour()
    train(spec, tmp_path / "whole", verifier=whole)
    broken = StopsInStepFour()
    broken.limit = whole.calls - 4  # the last evaluation's three calls, and that of step 4
    with pytest.raises(KeyboardInterrupt):
        train(spec, tmp_path / "broken", verifier=broken)
    assert [record["step"] for record in records(tmp_path / "broken", "checkpoint")] == [2]
    resumed = train(spec, tmp_path / "broken", attempt=2)
    assert records(tmp_path / "broken", "started")[-1]["step"] == 2
    assert ("subjects" in resumed.state_dict()["tracker"]) == (scope == "subject")
    assert_same_end(tmp_path / "broken", tmp_path / "whole")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, trio) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    for scope in ("run", *SCOPES):
        train(spec_of(root, trio, omega_scope=scope, omega_shrinkage=2.0), root / scope)
    return {scope: root / scope for scope in ("run", *SCOPES)}


@pytest.mark.parametrize("scope", SCOPES)
def test_recorded_omega_is_the_quotient_of_recorded_rewards(trained, scope):
    rows = records(trained[scope], "contribution")
    subject_of = {f"q{index}": f"s{index % 2}" for index in range(24)}
    rewards = defaultdict(list)  # by agent, and prompt in the step or subject so far (the window is longer)
    for row in rows:
        if row["agent"] == row["source"]:
            places = (
                [(row["step"], row["prompt_id"])]
                if scope == "prompt"
                else [(step, subject_of[row["prompt_id"]]) for step in range(row["step"], 5)]
            )
            for place in places:
                rewards[row["agent"], *place].append(row["reward"])
    spread = defaultdict(list)
    for row in rows:
        if row["agent"] == row["source"]:
            assert row["omega"] == 1.0
            continue
        place = (row["step"], row["prompt_id"] if scope == "prompt" else subject_of[row["prompt_id"]])
        own, theirs = rewards[row["agent"], *place], rewards[row["source"], *place]
        strength = (sum(theirs) + 2 * row["source_capability"]) / (len(theirs) + 2)
        expected = strength / ((sum(own) + 2 * row["capability"]) / (len(own) + 2))
        assert row["omega"] == pytest.approx(min(max(expected, 0.1), 10.0), rel=1e-9)
        spread[row["step"], row["agent"], row["source"]].append(row["omega"])
    pairs = [record for record in records(trained[scope], "metrics") if record["source"]]
    assert len(pairs) == 4 * 6
    for record in pairs:
        of_pair = spread[record["step"], record["agent"], record["source"]]
        assert (record["values"]["omega/min"], record["values"]["omega/max"]) == (min(of_pair), max(of_pair))
    assert any(record["values"]["omega/min"] < record["values"]["omega/max"] for record in pairs)


def test_scope_of_the_run_records_no_spread_and_keeps_no_subjects(trained):
    pairs = [record for record in records(trained["run"], "metrics") if record["source"]]
    assert not [record for record in pairs if {"omega/min", "omega/max"} & record["values"].keys()]
    by_step = defaultdict(set)
    for row in records(trained["run"], "contribution"):
        by_step[row["step"], row["agent"], row["source"]].add(row["omega"])
    assert {len(omegas) for omegas in by_step.values()} == {1}


def test_each_scope_changes_what_is_learnt(trained):
    weights_of_rows = [
        [r["weight"] for r in records(folder, "contribution") if r["agent"] != r["source"]]
        for folder in trained.values()
    ]
    assert weights_of_rows[0] != weights_of_rows[1] != weights_of_rows[2] != weights_of_rows[0]


def test_without_sharing_the_scope_changes_no_bit(tmp_path, trio):
    runs = [
        train(spec_of(tmp_path, trio[:2], sharing=False, omega_scope=scope), tmp_path / scope)
        for scope in ("run", "subject")
    ]
    assert "subjects" not in runs[1].state_dict()["tracker"]
    for agent in range(2):
        ours, theirs = (weights(run, agent) for run in runs)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_quarantined_source_has_its_omega_by_prompt_and_no_part_in_the_baseline(tmp_path, trio, monkeypatch):
    monkeypatch.setattr(Trust, "trusted_sources", lambda self, learner: [True, learner != 0, True])
    spec = spec_of(tmp_path, trio, omega_scope="prompt")
    response = Response("1", "1", "stop", 2, 2, -1.0)
    generated = [GeneratedRollouts([[response] * 2] * 2, (0.0, 0.0))] * 3
    # P: 1/2, 1/4, 3/4. With c = 4, by prompt: (2 + 2) / 6, (0 + 2) / 6;  (1 + 1) / 6, (0 + 1) / 6;  5/6, 4/6.
    rewards = torch.tensor([[[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]]])
    valid = torch.ones_like(rewards, dtype=torch.bool)
    tracker = CapabilityTracker.of(3, spec.algorithm.capability_options)
    tracker.update(rewards, valid)
    trust = Trust([agent.name for agent in spec.agents], spec.sharing)
    scores = Scores(rewards, valid, [0] * 3)
    plan = plan_step(spec, 0, generated, scores, tracker.step_ratio(), trust, Replay(spec))
    quarantined = {(row.source, row.prompt): row.omega for row in plan.quarantined[0]}
    assert quarantined == pytest.approx({(1, 0): 1 / 2, (1, 1): 1 / 2})
    used = {(row.source, row.prompt): row.omega for batch in plan.mini_batches[0] for row in batch}
    assert used == pytest.approx({(0, 0): 1.0, (0, 1): 1.0, (2, 0): 5 / 4, (2, 1): 2.0})
    # Eq. (7) over the first and the third agent: all 1, so 1; and (0 + 1/2 * 1) / 4.
    assert plan.objective.baselines[0].tolist() == pytest.approx([1.0, 1 / 8])
