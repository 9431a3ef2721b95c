"""The soft overlong penalty in real runs: long answers get lower advantages, and nothing else changes its words."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.support.workers.tiny import make_spec, records, train
from workers.contract.advantages import OverlongPenalty
from workers.verifiers.scoring.verdicts import Verdict

pytestmark = pytest.mark.slow
LIMIT, CACHE = 6, 5


class OneReward:
    """Every answer gets the same reward."""

    def __init__(self, reward: float) -> None:
        self.reward = reward

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        return [Verdict(self.reward, "same")] * len(completions)

    def doubts(self, answers: list[str]) -> list[str]:
        return [""] * len(answers)

    def close(self) -> None: ...


def spec_of(root, pair, cache: int = CACHE, steps: int = 2, **algorithm: Any):
    return make_spec(
        root,
        pair,
        algorithm={"overlong_cache": cache, **algorithm},
        rollout={"max_completion_length": LIMIT},
        training={"steps": steps},
        checkpoint={"save_steps": 2, "keep": 2},
    )


@pytest.mark.parametrize(
    ("name", "eos"),
    [("gspo", "map"), ("hacpo", "strip"), pytest.param("signed", "map", marks=pytest.mark.full)],
)
def test_longer_answer_has_a_lower_advantage_by_its_sources_tokens_and_the_reward_on_record_is_the_verifiers(
    tmp_path, pair, name, eos
):
    train(spec_of(tmp_path, pair, name=name, eos=eos), tmp_path / "run", verifier=OneReward(1.0))
    rollouts = records(tmp_path / "run", "rollout")
    assert {one["reward"] for one in rollouts} == {1.0}
    tokens = {(one["step"], one["agent"], one["prompt_id"], one["sample"]): one["num_tokens"] for one in rollouts}
    by_prompt = defaultdict(list)
    for row in records(tmp_path / "run", "contribution"):
        assert row["reward"] == 1.0
        assert row["capability"] == 1.0
        length = tokens[row["step"], row["source"], row["prompt_id"], row["sample"]]
        by_prompt[row["step"], row["agent"], row["prompt_id"]].append((length, row["advantage"], row["source"]))
    compared = crossed = 0
    for rows in by_prompt.values():
        for length, advantage, source in rows:
            for other_length, other_advantage, other_source in rows:
                # Of 1 token there is no penalty yet: 6 - 5 - 1 = 0.
                assert (advantage < other_advantage) == (length > other_length)
                compared += length > other_length
                crossed += length > other_length and source != other_source
    assert compared > 20
    assert (crossed > 20) == (name != "gspo")


def test_mean_penalty_is_a_metric_and_the_rewards_are_the_verifiers(tmp_path, pair):
    train(spec_of(tmp_path, pair), tmp_path / "run")
    rollouts = records(tmp_path / "run", "rollout")
    for metrics in [one for one in records(tmp_path / "run", "metrics") if not one.get("source")]:
        own = [one for one in rollouts if (one["step"], one["agent"]) == (metrics["step"], metrics["agent"])]
        total, count = metrics["ratios"]["overlong_penalty/mean"]
        # (6 - 5 - L) / 5
        assert total == pytest.approx(sum((1 - one["num_tokens"]) / 5 for one in own), abs=1e-5)
        assert count == len(own) == 16
        assert total < 0
        assert metrics["ratios"]["reward/mean"] == [sum(one["reward"] for one in own), 16]


def test_prompts_of_equal_rewards_and_unequal_lengths_have_a_signal(tmp_path, pair):
    for cache in (0, CACHE):
        train(spec_of(tmp_path, pair, cache, steps=1), tmp_path / f"run {cache}", verifier=OneReward(0.0))
    shares = [
        sum(one["ratios"]["frac_reward_zero_std_joint"][0] for one in records(tmp_path / f"run {cache}", "metrics")[:1])
        for cache in (0, CACHE)
    ]
    assert shares[0] == 4  # all prompts
    assert shares[1] < 4
    plain = records(tmp_path / "run 0", "metrics")
    assert not any("overlong_penalty/mean" in one["ratios"] for one in plain)
    assert not any(row["weight"] for row in records(tmp_path / "run 0", "contribution"))
    assert any(row["weight"] for row in records(tmp_path / f"run {CACHE}", "contribution"))


def test_evaluations_say_what_the_verifier_said(tmp_path, pair):
    train(spec_of(tmp_path, pair), tmp_path / "run", verifier=OneReward(1.0))
    assert {one["value"] for one in records(tmp_path / "run", "evaluation")} == {1.0}


def test_contribution_has_its_rollouts_penalty_though_the_eos_is_stripped(tmp_path, pair):
    train(spec_of(tmp_path, pair, eos="strip", steps=1), tmp_path / "run")
    penalty = OverlongPenalty(LIMIT, CACHE, strips_eos=True)
    tokens = {
        (one["agent"], one["prompt_id"], one["sample"]): one["num_tokens"]
        for one in records(tmp_path / "run", "rollout")
    }
    pairs = [
        (row["source_num_tokens"], tokens[row["source"], row["prompt_id"], row["sample"]])
        for row in records(tmp_path / "run", "contribution")
    ]
    assert all(penalty.of_contribution(recorded) == penalty.of(sampled) for recorded, sampled in pairs)
    assert {sampled - recorded for recorded, sampled in pairs} == {0, 1}
