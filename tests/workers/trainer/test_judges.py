"""Judges in a run: their rewards, what is recorded of them, and the pause when one fails throughout."""

from __future__ import annotations

import pytest

from tests.support.judge_server import judge_server
from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.contract.spec.judge import JudgeFile
from workers.trainer.rewards import judge_file, open_verifier
from workers.trainer.scoring import VerifierFails

SETTINGS = "address: {address}\nmodel: grader\nrubric: '{{response}}'\nhighest: 5\nprice_output: 10\nretries: 0\n"


@pytest.fixture
def server(monkeypatch):
    """It gives a point for each digit, up to five; an answer without digits is unscorable."""

    def answer(message: str) -> str:
        digits = sum(letter.isdigit() for letter in message)
        return f"Score: {min(digits, 5)}" if digits else "no digits"

    with judge_server(answer) as one:
        monkeypatch.setenv("HACRL_JUDGE_ALLOW", one.allowed)
        yield one


@pytest.fixture
def file(server, tmp_path):
    path = tmp_path / "digits.yaml"
    path.write_text(SETTINGS.format(address=server.address))
    judge_file.cache_clear()
    return path


def test_judge_beside_the_verifier_is_paid_and_measured(server, file, tmp_path):
    terms = [{"name": "digits", "kind": "judge", "weight": 3, "judge": str(file)}]
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 2}, rewards={"terms": terms})
    train(spec, tmp_path / "run")
    rollouts = records(tmp_path / "run", "rollout")
    lost = 0
    for rollout in rollouts:
        digits = sum(letter.isdigit() for letter in rollout["completion"])
        if not digits:
            lost += 1
            assert rollout["reward"] is None
            continue
        parts = rollout["rewards"]
        assert parts["digits"] == pytest.approx(min(digits, 5) / 5)
        assert rollout["reward"] == pytest.approx((parts["verifier"] + 3 * parts["digits"]) / 4, abs=1e-6)
    metrics = [one for one in records(tmp_path / "run", "metrics") if not one["source"]]
    values = [one["values"] for one in metrics]
    assert (
        sum(one["judge/digits/unscorable"] for one in values) == lost == sum(v["verifier/unscorable"] for v in values)
    )
    asked = sum(one["ratios"]["judge/digits/time_s"][1] for one in metrics)
    assert asked == len(server.requests)
    cost = sum(one["judge/digits/cost"] for one in values)
    assert cost == pytest.approx(asked * 100 * 10 / 1e6)  # 100 tokens come back for each
    cached = [one["ratios"]["judge/digits/cached"] for one in metrics]
    assert sum(pair[0] for pair in cached) == len(rollouts) - asked
    assert sum(pair[1] for pair in cached) == len(rollouts)


def test_judge_as_the_verifier_is_recorded_with_its_version(file, tmp_path):
    data = {"verifier": "judge", "judge": str(file)}
    spec = make_spec(tmp_path, make_pair(tmp_path), data=data, training={"steps": 1})
    with open_verifier(spec.data, spec.rewards) as verifier:
        train(spec, tmp_path / "run", verifier=verifier)
    label = JudgeFile.read(file).label
    assert {one["verifier"] for one in records(tmp_path / "run", "evaluation")} == {label}
    assert label.startswith("judge/digits@")


def test_judge_that_fails_throughout_ends_the_step_with_its_name(server, file, tmp_path):
    server.answer = lambda message: 503
    terms = [{"name": "digits", "kind": "judge", "judge": str(file)}]
    spec = make_spec(tmp_path, make_pair(tmp_path), rewards={"terms": terms})
    with pytest.raises(VerifierFails, match=r"the judge 'digits', version [0-9a-f]{12}, fails: none of \d+ responses"):
        train(spec, tmp_path / "run")
