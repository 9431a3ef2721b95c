"""Rewards of one's own in a run: functions, several with weights, and the pause when one fails."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.workers.endings import assert_same_end
from tests.support.workers.processes import run_trainer
from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.contract.spec.reward_function import FunctionFile
from workers.contract.spec.rewards import RewardsSpec, text_of_terms
from workers.trainer.rewards import function_file, open_verifier
from workers.trainer.scoring import VerifierFails

PARTIAL = """
def reward(question, answer, response, **fields):
    return {"reward": sum(response.encode()) % 5 / 4, "digits": sum(c.isdigit() for c in response)}
"""


@pytest.fixture(autouse=True)
def _no_cached_files():
    function_file.cache_clear()


def function_spec(root: Path, text: str = PARTIAL, **changes):
    path = root / "steps.py"
    path.write_text(text)
    data = {"verifier": "function", "reward_function": str(path)}
    return make_spec(root, make_pair(root), data=data, **changes)


def test_function_as_the_verifier_gives_graded_rewards_and_its_version(tmp_path):
    spec = function_spec(tmp_path, training={"steps": 2})
    with open_verifier(spec.data, spec.rewards) as verifier:
        train(spec, tmp_path / "run", verifier=verifier)
    rollouts = records(tmp_path / "run", "rollout")
    for rollout in rollouts:
        assert rollout["reward"] == sum(rollout["completion"].encode()) % 5 / 4
        assert rollout["rewards"]["verifier.digits"] == sum(c.isdigit() for c in rollout["completion"])
    assert {rollout["reward"] for rollout in rollouts} > {0.0, 0.25, 0.5}
    for agent in ("Qwen", "Llama"):
        of_agent = [one for one in rollouts if one["agent"] == agent and one["step"] == 1]
        metrics = next(m for m in records(tmp_path / "run", "metrics") if m["agent"] == agent and not m["source"])
        mean = math.fsum(one["reward"] for one in of_agent) / len(of_agent)
        assert metrics["values"]["capability"] == pytest.approx(mean)  # Eq. (9): the mean reward
        assert metrics["ratios"]["reward/mean"][0] == pytest.approx(mean * len(of_agent))
    label = function_file(spec.data.reward_function).label
    (started,) = records(tmp_path / "run", "started")
    assert started["versions"]["sandbox"].endswith("Landlock and seccomp")
    assert {one["verifier"] for one in records(tmp_path / "run", "evaluation")} == {label}


def test_several_rewards_make_a_weighted_mean(tmp_path):
    path = tmp_path / "steps.py"
    path.write_text(PARTIAL)
    terms = [
        {"name": "steps", "weight": 2, "function": str(path)},
        {"name": "short", "kind": "length", "weight": 1, "length": 2},
        {"name": "box", "kind": "boxed", "weight": 0},
    ]
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 2}, rewards={"terms": terms})
    train(spec, tmp_path / "run")
    rollouts = records(tmp_path / "run", "rollout")
    for rollout in rollouts:
        parts = rollout["rewards"]
        assert parts["steps"] == sum(rollout["completion"].encode()) % 5 / 4
        assert parts["short"] == (1.0 if rollout["num_tokens"] <= 2 else (6 - rollout["num_tokens"]) / 4)
        total = (parts["verifier"] + 2 * parts["steps"] + parts["short"]) / 4
        assert rollout["reward"] == pytest.approx(total, abs=1e-6)
    [metrics, *_] = [m for m in records(tmp_path / "run", "metrics") if not m["source"]]
    names = {"verifier", "steps", "short", "box", "steps.digits"}
    assert {f"rewards/{name}/mean" for name in names} <= metrics["ratios"].keys()
    # Evaluations use the verifier alone: HashVerifier is binary.
    assert {mark for one in records(tmp_path / "run", "answers") for mark in "".join(one["marks"])} <= set("01")


def test_totals_of_equal_parts_are_equal():
    spec = RewardsSpec.model_validate({"terms": [{"name": "a", "kind": "boxed", "weight": 0.1}]})
    assert spec.total({"verifier": 1.0, "a": 1.0}) == 1.0
    spec = RewardsSpec.model_validate(
        {
            "verifier_weight": 0.1,
            "terms": [{"name": n, "kind": "boxed", "weight": w} for n, w in (("a", 0.2), ("b", 0.3))],
        }
    )
    assert spec.total({"verifier": 1.0, "a": 1.0, "b": 0.0}) == spec.total({"verifier": 0.0, "a": 0.0, "b": 1.0}) == 0.5


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ({"terms": [{"name": "verifier", "kind": "boxed"}]}, "the name of the benchmark's own reward"),
        ({"terms": [{"name": "a", "kind": "boxed"}] * 2}, "two rewards are named 'a'"),
        ({"terms": [{"name": "a"}]}, "name the file of its function"),
        ({"verifier_weight": 0}, "every weight is 0"),
        ({"terms": [{"name": "A b", "kind": "boxed"}]}, "String should match pattern"),
        ({"terms": [{"name": "a", "kind": "tags", "tags": ["<x>"]}]}, "String should match pattern"),
        ({"terms": [{"name": "a", "kind": "boxed", "weight": -1}]}, "greater than or equal to 0"),
    ],
)
def test_odd_lists_of_rewards_are_refused(rewards, reason):
    with pytest.raises(ValidationError, match=reason):
        RewardsSpec.model_validate(rewards)


def test_failing_term_ends_the_step_with_its_name(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("def reward(**fields): return float('nan')")
    terms = [{"name": "mine", "function": str(path)}]
    spec = make_spec(tmp_path, make_pair(tmp_path), rewards={"terms": terms})
    with pytest.raises(VerifierFails, match=r"'broken', version [0-9a-f]{12}, fails: it returned nan"):
        train(spec, tmp_path / "run")


@pytest.mark.slow
def test_run_pauses_at_a_failing_function_and_continues_as_if_it_had_never_failed(tmp_path):
    spec = function_spec(tmp_path, training={"steps": 4}, evaluation={"eval_interval": 0})
    with open_verifier(spec.data, spec.rewards) as verifier:
        train(spec, tmp_path / "whole", verifier=verifier)
    rollouts = records(tmp_path / "whole", "rollout")
    earlier = {one["prompt_id"] for one in rollouts if one["step"] < 3}
    prompt = next(one["prompt_id"] for one in rollouts if one["step"] == 3 and one["prompt_id"] not in earlier)
    path = Path(spec.data.reward_function)
    fails = f"def reward(id, **fields):\n    assert id != '{prompt}'\n    return partial(**fields)\n"
    path.write_text(PARTIAL.replace("def reward", "def partial") + fails)
    version, labels = FunctionFile.read(path).version, {}
    assert run_trainer(spec, tmp_path / "run")[0] == 0
    [end] = records(tmp_path / "run", "finished")
    assert (end["outcome"], end["step"]) == ("paused", 2)
    assert end["reason"].startswith(f"the reward function 'steps', version {version}, fails: AssertionError")
    assert f"(question '{prompt}')" in end["reason"]
    path.write_text("def reward(:")
    assert run_trainer(spec, tmp_path / "run")[0] == 0
    assert records(tmp_path / "run", "finished")[-1]["outcome"] == "paused"
    path.write_text(PARTIAL)
    assert run_trainer(spec, tmp_path / "run")[0] == 0
    assert records(tmp_path / "run", "finished")[-1]["outcome"] == "completed"
    for one in ("run", "whole"):  # the first evaluation was by another version
        labels[one] = [record["verifier"] for record in records(tmp_path / one, "evaluation")]
    assert labels["run"][2:] == labels["whole"][2:] != labels["run"][:2]
    assert_same_end(tmp_path / "run", tmp_path / "whole", ("metrics", "rollout", "contribution"))


def test_terms_can_be_written_as_text_and_come_back():
    text = (
        "function steps = 0.5; short: length 400 = 0.1; tags think answer = 1; boxed = 2; language = 0.2; "
        "german: language de = 0.1"
    )
    spec = RewardsSpec.model_validate({"terms": text})
    assert [term.name for term in spec.terms] == ["steps", "short", "tags", "boxed", "language", "german"]
    assert text_of_terms(spec.model_dump()["terms"]) == text
    assert RewardsSpec.model_validate({"terms": "boxed\n\n tags a b;"}).weights == {
        "verifier": 1,
        "boxed": 1,
        "tags": 1,
    }
    for odd in (
        "nothing = 1",
        "boxed x",
        "function a b",
        "x = y",
        "length a = 1",
        "boxed = -1",
        "boxed; boxed",
        "language xx",
    ):
        with pytest.raises(ValidationError):
            RewardsSpec.model_validate({"terms": odd})
