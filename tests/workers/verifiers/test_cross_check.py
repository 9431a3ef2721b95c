"""The second verifier: what it decides, that it is killed like the first, and which rollouts it is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.workers.tiny import make_pair, make_spec
from workers.agents.messages import GeneratedRollouts, Response
from workers.questions.dataset import Question
from workers.trainer.scoring import Scores, VerifierFails
from workers.trainer.trust import AuditTally, RewardAudit
from workers.verifiers.children.child_client import VerifierProcess
from workers.verifiers.cross_check import cross_check
from workers.verifiers.service import Verifier, read_cases

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "verifier_cases.jsonl"


@pytest.mark.parametrize(
    ("gold", "response", "expected"),
    [
        ("17", r"2*7=14;3+14=\boxed{17}", True),
        ("17", r"\boxed{3}, no: \boxed{17}", True),  # the last box
        ("17", r"\boxed{18}", False),
        ("17", r"\boxed{17", False),  # cut off
        ("17", r"\boxed{}", False),
        ("17", "3+14", False),  # nothing is stated
        ("17", "The answer is 17.", None),  # the first verifier reads such sentences
        ("17", "#### 17", None),
        ("17", r"\boxed{3+14}", None),
        ("17", r"\boxed 17", None),
        ("0.5", r"\boxed{\frac{1}{2}}", True),
        ("1/2", r"\boxed{0.50}", True),
        ("-1/2", r"\boxed{1/2}", False),
        (r"\frac{1}{3}", r"\boxed{0.333333}", None),  # may count as rounded
        (r"\frac{1}{3}", r"\boxed{0.33}", False),
        ("1000", r"\boxed{1,000}", None),
        ("50", r"\boxed{50\%}", None),
        (r"\{1,2\}", r"\boxed{\{1,2\}}", True),
        ("x+1", r"\boxed{1+x}", None),
        ("3", r"\boxed{3/0}", None),
        ("3", "x" * 60_000, None),
    ],
)
def test_only_clear_cases_are_decided(gold, response, expected):
    assert cross_check(gold, response, kind="math") is expected


@pytest.mark.parametrize(
    ("gold", "response", "expected"),
    [("17", r"\boxed{17}", True), ("17", r"\boxed{17.0}", False), ("17", " 17\n", True), ("17", "x17", False)],
)
def test_exact_is_read_exactly(gold, response, expected):
    assert cross_check(gold, response, kind="exact") is expected


@pytest.mark.skipif(not GOLDEN.is_file(), reason="no shared golden cases beside the checkout (../shared/golden)")
def test_no_clear_golden_case_is_contradicted():
    clear = [case for case in read_cases(GOLDEN) if not case["ambiguous"]]
    found = [cross_check(case["gold"], case["response"], kind="math") for case in clear]
    wrong = [
        case["id"]
        for case, second in zip(clear, found, strict=True)
        if second is not None and second != bool(case["expected"])
    ]
    # "so the probability is 1/2", neither boxed nor stated as the answer: the first verifier refuses it too.
    assert wrong == ["v312"]
    assert sum(second is not None for second in found) >= 30


def test_both_verifiers_agree_on_workings_of_the_demo():
    from workers.demo.task import make_problems

    problems = make_problems(seed=0)[0][:300]
    texts = [problem.correct for problem in problems] + [problem.mistaken for problem in problems]
    golds = [str(problem.answer) for problem in problems] * 2
    with Verifier("math") as verifier:
        first = [verdict.reward for verdict in verifier.score(texts, golds)]
    second = [cross_check(gold, text, kind="math") for gold, text in zip(golds, texts, strict=True)]
    assert [float(value) for value in second if value is not None] == first  # all are decided


def test_killed_child_gives_no_verdict_and_the_next_one_does():
    child = VerifierProcess("workers.verifiers.cross_check", "math", "0.0", "strict")
    try:
        assert child.ask(r"\boxed{17}", "17").reward == 1.0
        assert child.ask(r"\boxed{1+1}", "2").reward is None
        child._process.kill()
        child._process.wait()
        assert child.ask(r"\boxed{17}", "17").reward is None
        assert child.ask(r"\boxed{18}", "17").reward == 0.0
    finally:
        child.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[dict]:
    return make_pair(tmp_path_factory.mktemp("pair"))


def audited(
    tmp_path, agents, share: float, step: int = 0, lies: bool = False, words: str = "", **data: str
) -> list[AuditTally]:
    """Of 10 prompts and 10 rollouts: agent A is right on half of them, B on all; one of A's has no reward."""
    spec = make_spec(tmp_path, agents, algorithm={"audit_share": share}, data=data)
    questions = [Question(f"q{index}", "?", "17") for index in range(10)]
    rewards = torch.zeros(2, 10, 10)
    generated = []
    for agent, right in enumerate((5, 10)):
        rewards[agent, :, :right] = 1.0
        texts = [words + ("17" if number < right else "18") for number in range(10)]
        generated.append(
            GeneratedRollouts([[Response(t, t, "stop", 2, 2, -1.0) for t in texts] for _ in questions], (0.0, 0.0))
        )
    if lies:
        rewards[1] = 1 - rewards[1]
    valid = torch.ones(2, 10, 10, dtype=torch.bool)
    valid[0, 0, 0] = False
    audit = RewardAudit(spec)
    try:
        return audit.check(step, questions, generated, Scores(rewards, valid, [0, 0]))
    finally:
        audit.close()


def test_second_opinion_reads_the_answer_that_the_first_one_read(tmp_path, pair):
    flexible = audited(tmp_path, pair, 1.0, words="so it is ", verifier="math", extraction="flexible")
    assert flexible == [AuditTally(99, 99, 0), AuditTally(100, 100, 0)]
    # Strictly, nothing is stated: the second verifier contradicts every reward.
    strict = audited(tmp_path, pair, 1.0, words="so it is ", verifier="math")
    assert strict == [AuditTally(99, 99, 49, 49.0), AuditTally(100, 100, 100, 100.0)]


def test_all_rewards_are_checked_at_share_one(tmp_path, pair):
    assert audited(tmp_path, pair, 1.0) == [AuditTally(99, 99, 0), AuditTally(100, 100, 0)]
    assert audited(tmp_path, pair, 1.0, lies=True) == [AuditTally(99, 99, 0), AuditTally(100, 100, 100, 100.0)]


def test_rewards_of_an_environment_are_not_audited(tmp_path, pair):
    spec = make_spec(tmp_path, pair, algorithm={"audit_share": 1.0})
    rollout = spec.rollout.model_copy(update={"environment": "verifiers"})
    questions, rewards = [Question("q", "?", "17")], torch.ones(2, 1, 2)
    # The last turn does not repeat the answer; of B's two rollouts the environment left one to the verifier.
    paid, unpaid = (Response("done", "done", "stop", 2, 2, -1.0, reward=reward) for reward in (1.0, None))
    generated = [GeneratedRollouts([group], (0.0, 0.0)) for group in ([paid, paid], [paid, unpaid])]
    scores = Scores(rewards, torch.ones_like(rewards, dtype=torch.bool), [0, 0])
    found = {}
    for name, one in (("paying", spec.model_copy(update={"rollout": rollout})), ("none", spec)):
        audit = RewardAudit(one)
        try:
            found[name] = audit.check(0, questions, generated, scores)
        finally:
            audit.close()
    assert found["paying"] == [AuditTally(0, 0, 0), AuditTally(1, 1, 1, 1.0)]
    # Without an environment no agent has a say in its reward.
    assert found["none"] == [AuditTally(2, 2, 2, 2.0), AuditTally(2, 2, 2, 2.0)]


def test_every_question_to_the_second_verifier_is_a_sign_of_work(tmp_path, pair, monkeypatch):
    beats = []
    monkeypatch.setattr("workers.heartbeat.send_heartbeat", lambda: beats.append(1))
    asked = sum(found.checked for found in audited(tmp_path, pair, 0.3))
    assert len(beats) == asked > 0


def test_share_is_drawn_by_agent_and_step_whatever_their_order(tmp_path, pair):
    first, again, later = (audited(tmp_path, pair, 0.3, step) for step in (0, 0, 1))
    assert first == again
    assert first != later
    assert all(15 <= found.checked <= 45 for found in first)  # 30 of 100, sd 4.6
    assert first[0].checked != first[1].checked


def test_second_verifier_that_cannot_run_pauses_the_run_as_the_first_does(tmp_path, pair, monkeypatch):
    monkeypatch.setattr(
        "workers.verifiers.second_opinions.opinions.VerifierProcess",
        lambda *_: VerifierProcess("workers.no_such_module"),
    )
    with pytest.raises(VerifierFails, match="the reward audit fails: The verifier process did not start"):
        audited(tmp_path, pair, 1.0)


@pytest.mark.parametrize(
    "rest",
    [
        ". Hmmm.",
        ", which violates the bound.",
        ", which contradicts parity.",
        ". It must be $43$.",
        ". It will be 43.",
        ". Rechecking gives 43.",
        ". Re-checking gives 43.",
        ". That equals 43.",
        ". ~~43~~",
        ". The real value: 43.",
    ],
)
def test_what_the_first_verifier_reads_as_taken_back_is_left_to_it(rest):
    assert cross_check("42", rf"\boxed{{42}}{rest}", kind="math") is None
