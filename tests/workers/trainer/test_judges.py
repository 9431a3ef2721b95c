"""Judges in a run: their rewards, what is recorded of them, and the pause when one fails throughout."""

from __future__ import annotations

import pytest

from tests.support.judge_server import judge_server
from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.contract.spec.judge import JudgeFile
from workers.contract.spool import SpoolWriter
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


def run_judged_everywhere(file, folder, budget=0.0):
    """Train one step; one judge is the verifier, a further reward and the verifier of a further benchmark."""
    rubric = "rubric: '{question}|{answer}|{response}'\nbudget: " + str(budget)
    file.write_text(file.read_text().replace("rubric: '{response}'", rubric))
    judged = {"verifier": "judge", "judge": str(file)}
    # The same questions with another tolerance, which makes it another verifier.
    further = {"benchmark": "further", "train_path": str(folder / "questions.jsonl"), "tolerance": 0.5, **judged}
    spec = make_spec(
        folder,
        make_pair(folder),
        data=judged,
        rewards={"terms": [{"name": "digits", "kind": "judge", "judge": str(file)}]},
        training={"steps": 1},
        evaluation={"benchmarks": [further]},
    )
    with open_verifier(spec.data, spec.rewards) as verifier:
        return train(spec, folder / "run", verifier=verifier)


def test_judge_in_several_places_has_one_purse_and_is_asked_once_about_equal_responses(server, file, tmp_path):
    server.answer = lambda message: f"Score: {sum(map(str.isdigit, message)) % 6}"  # the agents learn, and answer anew
    trainer = run_judged_everywhere(file, tmp_path)
    texts = [body["messages"][0]["content"] for _, _, body in server.requests]
    assert len(texts) == len(set(texts))
    [judge] = trainer.evaluations.judges
    assert judge.spent == pytest.approx(len(texts) * 100 * 10 / 1e6)
    metrics = [one["values"] for one in records(tmp_path / "run", "metrics") if not one["source"]]
    [up_to_the_step] = {one[f"judge/{name}/spent"] for one in metrics for name in ("verifier", "digits")}
    assert sum(one["judge/verifier/cost"] for one in metrics) < up_to_the_step < judge.spent
    trainer.progress.spool = SpoolWriter(tmp_path / "run", 1)
    trainer.close()
    trainer.progress.spool.close()
    said = [one["message"] for one in records(tmp_path / "run", "log") if "spent" in one["message"]]
    assert said == [f"{judge.file.label}: {judge.spent:.4g} spent in this attempt, evaluations included"]


def test_budget_is_that_of_an_attempt_over_all_places_of_a_judge(server, file, tmp_path):
    server.answer = lambda message: "Score: 5"
    # 0.001 for each answer; it is checked before each of up to 8 requests at once.
    with pytest.raises(VerifierFails, match=r"its budget of 0.01 is spent \(0.01\d*\): raise the budget, then resume"):
        run_judged_everywhere(file, tmp_path, budget=0.01)
    assert len(server.requests) <= 10 + 7
