"""The reward audit: repeated judgements show chance; which rollouts are judged again, and what is told of them."""

from __future__ import annotations

import pytest
import torch

from tests.support.judge_server import judge_server
from tests.support.workers.tiny import make_spec
from workers.agents.messages import GeneratedRollouts, Response
from workers.contract.spec.judge import JudgeFile, JudgeSettings
from workers.contract.spec.reward_function import FunctionFile
from workers.questions.dataset import Question
from workers.trainer.rewards import Judges
from workers.trainer.scoring import Scores, VerifierFails
from workers.trainer.trust import AuditTally, RewardAudit
from workers.verifiers.children.child_client import VerifierProcess
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.judges.judge_verifier import JudgeError, JudgeVerifier
from workers.verifiers.scoring.repeated_judgements import (
    SecondOpinion,
    repeated_calls,
    repeated_questions,
    repeated_tests,
)

HEAD = "def reward(question, answer, response, **fields):\n    "


def opinion_of_function(body: str) -> SecondOpinion:
    return repeated_calls(FunctionVerifier(FunctionFile("mine", HEAD + body), hash_seed=1))


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("return len(response) / 10", True),
        ("return next(iter({'one', 'two', 'three', 'four', 'five'})) == 'one'", None),  # by the order of a set
        ("import os; return int.from_bytes(os.urandom(6)) / 2**48", False),
        ("global calls; calls = globals().get('calls', 0) + 1; return calls / 100", False),  # by earlier calls
    ],
)
def test_function_whose_rewards_depend_on_more_than_the_response_is_found(body, same):
    case = Case("1+1=", "2", "two")
    with FunctionVerifier(FunctionFile("mine", HEAD + body)) as verifier:
        before = [verdict.reward for verdict in verifier.score_cases([case] * 3)]
    opinion = opinion_of_function(body)
    try:
        again = [*opinion.ask([case]), *opinion.ask([case]), *opinion.ask([case])]  # a new process each time
    finally:
        opinion.close()
    assert (before == again) is bool(same) or same is None
    if same is None:
        assert len({*again}) == 1  # a hash seed gives one order


def test_python_tests_that_depend_on_the_order_of_a_set_are_found():
    code = "```python\ndef f():\n    return next(iter({'one', 'two', 'three', 'four', 'five', 'six'}))\n```"
    opinion = repeated_tests("python")
    names = ("one", "two", "three", "four", "five", "six")
    try:
        rewards = opinion.ask([*(Case("", f"assert f() == '{name}'", code) for name in names), Case("", "", "no code")])
    finally:
        opinion.close()
    assert sorted(rewards) == [0.0] * 6 + [1.0]
    assert rewards[-1] == 0.0  # without code


def judge_again(monkeypatch, scores: list[int], **settings) -> tuple[list[float | None], list[float | None], list[str]]:
    """The first rewards of two responses, the second opinions, and what the judge was asked."""
    numbers = iter(scores)
    with judge_server(lambda message: f"Score: {next(numbers)}") as server:
        monkeypatch.setenv("HACRL_JUDGE_ALLOW", server.allowed)
        values = {"address": server.address, "model": "m", "rubric": "{response}", "concurrency": 1} | settings
        with JudgeVerifier(JudgeFile("helpful", JudgeSettings.model_validate(values))) as judge:
            cases = [Case("q", "a", "one"), Case("q", "a", "two")]
            before = [verdict.reward for verdict in judge.score_cases(cases)]
            again = repeated_questions(judge).ask(cases)
            assert [verdict.reward for verdict in judge.score_cases(cases)] == before  # what is known stays
        return before, again, [body["messages"][0]["content"] for *_, body in server.requests]


def test_judge_is_asked_again_in_the_reverse_order_whatever_it_answered_before(monkeypatch):
    before, again, asked = judge_again(monkeypatch, [9, 1, 2, 9])
    assert before == [0.9, 0.1]
    assert again == [0.9, 0.2]  # the third answer is about the second response
    assert asked == ["one", "two", "two", "one"]


def test_judge_that_does_not_answer_again_has_no_second_opinion():
    class Silent:
        def score_again(self, cases):
            raise JudgeError("busy")

        file = JudgeFile("helpful", JudgeSettings(kind="model", model="m"))

    assert repeated_questions(Silent()).ask([Case("q", "a", "r")] * 2) == [None, None]  # type: ignore[arg-type]


def audited_function(tmp_path, pair, body: str, **more) -> tuple[list[AuditTally], list[str]]:
    """Of one prompt and two rollouts of each agent, all rewarded 0.5."""
    path = tmp_path / str(len(body)) / "steps.py"  # an attempt reads a path once
    path.parent.mkdir()
    path.write_text(HEAD + body)
    data = {"verifier": "function", "reward_function": str(path)}
    spec = make_spec(tmp_path, pair, **({"data": data} | more), algorithm={"audit_share": 1.0})
    rewards = torch.full((2, 1, 2), 0.5)
    groups = [[Response(text, text, "stop", 2, 2, -1.0) for text in ("one", "three")] for _ in range(2)]
    names = ["verifier", *(term.name for term in spec.rewards.terms)]
    parts = dict.fromkeys(names, rewards) if len(names) > 1 else {}
    scores = Scores(rewards, torch.ones_like(rewards, dtype=torch.bool), [0, 0], parts)
    audit = RewardAudit(spec, Judges())
    try:
        tallies = audit.check(
            0, [Question("q7", "?", "5")], [GeneratedRollouts([one], (0.0, 0.0)) for one in groups], scores
        )
        findings = audit.findings
        audit.check(1, [Question("q7", "?", "5")], [GeneratedRollouts([one], (0.0, 0.0)) for one in groups], scores)
        assert audit.findings == []  # each finding once
        return tallies, findings
    finally:
        audit.close()


def test_audit_counts_differences_of_a_function_and_names_it_once(tmp_path, pair):
    # |0.5 - 0.5| and |0.5 - 0.75| of each agent
    tallies, [finding] = audited_function(tmp_path, pair, "return 0.5 if response == 'one' else 0.75")
    assert tallies == [AuditTally(2, 2, 1, 0.25)] * 2
    assert "the reward function 'steps' (version" in finding
    assert "question 'q7' the reward 0.5 at first and 0.75 when it was repeated" in finding
    assert audited_function(tmp_path, pair, "return 0.5") == ([AuditTally(2, 2, 0, 0.0)] * 2, [])


def test_further_rewards_are_audited_too(tmp_path, pair):
    body = "return 0.75"
    terms = [{"name": "steps", "kind": "function", "function": str(tmp_path / str(len(body)) / "steps.py")}]
    tallies, [finding] = audited_function(tmp_path, pair, body, data={"verifier": "words"}, rewards={"terms": terms})
    assert tallies == [AuditTally(2, 2, 2, 0.5)] * 2  # |0.5 - 0.75|; the words, a rule, are not judged again
    assert "'steps'" in finding


def test_function_that_fails_when_it_is_called_again_pauses_the_run(tmp_path, pair):
    with pytest.raises(VerifierFails, match=r"the reward audit fails: the reward function 'steps'.*question 'q7'"):
        audited_function(tmp_path, pair, "return 1 / 0")


@pytest.fixture
def audited(tmp_path, pair):
    """Of 10 prompts and 10 rollouts of each agent: one of A's has no reward, and all of B's are contradicted."""

    def check(share: float, step: int = 0, **changes) -> list[AuditTally]:
        path = tmp_path / "own.py"
        path.write_text(HEAD + "return response == 'right'")
        data = {"verifier": "function", "reward_function": str(path)}
        spec = make_spec(tmp_path, pair, algorithm={"audit_share": share}, data=data | changes)
        questions = [Question(f"q{index}", "?", "17") for index in range(10)]
        texts = ["right"] * 5 + ["wrong"] * 5
        right = torch.tensor([1.0] * 5 + [0.0] * 5).expand(10, 10)
        valid = torch.ones(2, 10, 10, dtype=torch.bool)
        valid[0, 0, 0] = False
        generated = [
            GeneratedRollouts([[Response(t, t, "stop", 2, 2, -1.0) for t in texts] for _ in questions], (0.0, 0.0))
        ] * 2
        audit = RewardAudit(spec, Judges())
        try:
            return audit.check(step, questions, generated, Scores(torch.stack([right, 1 - right]), valid, [0, 0]))
        finally:
            audit.close()

    return check


def test_all_rewards_are_checked_at_share_one(audited):
    assert audited(1.0) == [AuditTally(99, 99, 0), AuditTally(100, 100, 100, 100.0)]


def test_rewards_by_a_rule_are_not_judged_again(audited):
    assert audited(1.0, verifier="math", reward_function="") == [AuditTally(99), AuditTally(100)]


def test_share_is_drawn_by_agent_and_step_whatever_their_order(audited):
    first, again, later = (audited(0.3, step) for step in (0, 0, 1))
    assert first == again
    assert first != later
    assert all(15 <= found.checked <= 45 for found in first)  # 30 of 100, sd 4.6
    assert first[0].checked != first[1].checked


def test_rewards_of_an_environment_are_not_audited(tmp_path, pair):
    path = tmp_path / "own.py"
    path.write_text(HEAD + "return 0")
    data = {"verifier": "function", "reward_function": str(path)}
    spec = make_spec(tmp_path, pair, algorithm={"audit_share": 1.0}, data=data)
    rollout = spec.rollout.model_copy(update={"environment": "verifiers"})
    questions, rewards = [Question("q", "?", "17")], torch.ones(2, 1, 2)
    # The last turn does not repeat the answer; of B's two rollouts the environment left one to the verifier.
    paid, unpaid = (Response("done", "done", "stop", 2, 2, -1.0, reward=reward) for reward in (1.0, None))
    generated = [GeneratedRollouts([group], (0.0, 0.0)) for group in ([paid, paid], [paid, unpaid])]
    scores = Scores(rewards, torch.ones_like(rewards, dtype=torch.bool), [0, 0])
    found = {}
    for name, one in (("paying", spec.model_copy(update={"rollout": rollout})), ("none", spec)):
        audit = RewardAudit(one, Judges())
        try:
            found[name] = audit.check(0, questions, generated, scores)
        finally:
            audit.close()
    assert found["paying"] == [AuditTally(0, 0, 0), AuditTally(1, 1, 1, 1.0)]
    # Without an environment no agent has a say in its reward.
    assert found["none"] == [AuditTally(2, 2, 2, 2.0), AuditTally(2, 2, 2, 2.0)]


def test_tests_that_cannot_run_again_pause_the_run(tmp_path, pair, monkeypatch):
    monkeypatch.setattr(
        "workers.verifiers.scoring.repeated_judgements.VerifierProcess",
        lambda *_: VerifierProcess("workers.no_such_module"),
    )
    spec = make_spec(tmp_path, pair, algorithm={"audit_share": 1.0}, data={"verifier": "python"})
    text, rewards = "```python\ndef f(): return 1\n```", torch.ones(2, 1, 1)
    generated = [GeneratedRollouts([[Response(text, text, "stop", 2, 2, -1.0)]], (0.0, 0.0))] * 2
    audit = RewardAudit(spec, Judges())
    with pytest.raises(VerifierFails, match="the reward audit fails: The verifier process did not start"):
        audit.check(0, [Question("q", "?", "assert f() == 1")], generated, Scores(rewards, rewards.bool(), [0, 0]))
    audit.close()
