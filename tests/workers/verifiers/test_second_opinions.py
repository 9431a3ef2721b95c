"""Second opinions: other code agrees with the first verifier where it decides; repeated judgements show chance."""

from __future__ import annotations

import json
import random

import pytest
import torch

from tests.support.judge_server import judge_server
from tests.support.workers.tiny import make_pair, make_spec
from tests.support.workers.verifier_examples import examples
from workers.agents.messages import GeneratedRollouts, Response
from workers.contract.spec.judge import JudgeFile, JudgeSettings
from workers.contract.spec.reward_function import FunctionFile
from workers.contract.verifier_kinds import AUDIT_METHODS, RULES
from workers.questions.dataset import Question
from workers.trainer.rewards import Judges
from workers.trainer.scoring import Scores, VerifierFails
from workers.trainer.trust import AuditTally, RewardAudit
from workers.verifiers.cross_check import cross_check
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.judges.judge_verifier import JudgeError, JudgeVerifier
from workers.verifiers.kinds import kind_of
from workers.verifiers.second_opinions.opinions import RepeatedCalls, RepeatedQuestions, RepeatedTests
from workers.verifiers.verdicts import Verdict

OTHER_CODE = ("countdown", "words", "rouge", "json", "instructions")
HEAD = "def reward(question, answer, response, **fields):\n    "
WORDS = ("the", "a", "Battle", "of", "Hastings,", "well-known", "x_y", "$5", "don't", "(1066)", "and", "...")


def first(kind: str, gold: str, response: str) -> float | None:
    verdict = kind_of(kind, 1e-4).quick_verdict(response, gold)  # type: ignore[arg-type]
    assert isinstance(verdict, Verdict)
    return verdict.reward


def expression(draw: random.Random, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return draw.choice(("{}", "({})", "-{}", " {} ", "{}")).format(numbers[0])
    at = draw.randrange(1, len(numbers))
    left, right = expression(draw, numbers[:at]), expression(draw, numbers[at:])
    return draw.choice(("({}{}{})", "{}{}{}", "{} {} {}")).format(left, draw.choice("+-*/"), right)


def texts_of(kind: str, draw: random.Random) -> tuple[str, str]:
    """A reference answer and a response, often a correct one."""
    if kind == "countdown":
        numbers = [draw.randrange(1, 10) for _ in range(draw.randrange(1, 5))]
        text = expression(draw, numbers)
        try:
            value = eval(text)
        except ZeroDivisionError:
            value = 0.5
        target = int(value) if value == int(value) and draw.random() < 0.8 else draw.randrange(30)
        used = numbers if draw.random() < 0.8 else [*numbers, 3]
        text = text.replace("(", "", 1) if draw.random() < 0.1 else text
        end = draw.choice(("", "", f" = {target}", f"={target + 1}"))
        shown = draw.choice(("{}", "\\boxed{{{}}}", "so\n{}", "<answer>{}</answer>")).format(text + end)
        return f"{' '.join(map(str, used))} = {target}", shown
    if kind in ("words", "rouge"):
        gold, answer = (" ".join(draw.choices(WORDS, k=draw.randrange(1, 9))) for _ in range(2))
        answer = gold if draw.random() < 0.2 else answer
        return gold, draw.choice(("{}", "<think>{}</think> {}", "so <answer>{}</answer>", "\\boxed{{{}}}")).format(
            answer, answer
        )
    if kind == "json":
        values = [1, 1.0, 2.5, True, None, "x", " x ", [1, 2], {"a": 1}, {"a": 1.0}, "1"]
        answer = {name: draw.choice(values) for name in draw.sample("abcd", draw.randrange(0, 5))}
        if draw.random() < 0.5:
            gold = {name: draw.choice(values) for name in draw.sample("abc", 2)}
            return json.dumps(gold), draw.choice(("{}", "```json\n{}\n```", "It is {}")).format(json.dumps(answer))
        kinds = [
            {"type": "integer", "minimum": 2},
            {"enum": [1, "x"]},
            {"type": ["string", "null"]},
            {"const": True},
            {},
        ]
        more = {"additionalProperties": False} if draw.random() < 0.5 else {}
        gold = {"properties": {name: draw.choice(kinds) for name in "abc"}, "required": draw.sample("abd", 1), **more}
        return json.dumps(gold), json.dumps(answer)
    rules = [
        ("punctuation:no_comma", {}),
        ("keywords:existence", {"keywords": ["battle"]}),
        ("keywords:frequency", {"keyword": "a", "frequency": 3, "relation": "at least"}),
        ("keywords:forbidden_words", {"forbidden_words": ["and"]}),
        ("keywords:letter_frequency", {"letter": "t", "let_frequency": 3, "let_relation": "less than"}),
        ("length_constraints:number_words", {"num_words": 5, "relation": "at least"}),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}),
        ("startend:quotation", {}),
        ("detectable_format:json_format", {}),
        ("detectable_format:constrained_response", {}),
        ("combination:repeat_prompt", {"prompt_to_repeat": "The battle"}),
        ("change_case:english_capital", {}),
    ]
    text = " ".join(draw.choices([*WORDS, "***", "\n\n", "My answer is yes."], k=draw.randrange(1, 9)))
    text = draw.choice(("{}", '"{}"', "<think>x, y</think>{}", '{{"a": 1}}', "the battle {}")).format(text)
    return json.dumps([draw.choice(rules) for _ in range(draw.randrange(1, 3))]), text


@pytest.mark.parametrize("kind", OTHER_CODE)
def test_other_code_agrees_wherever_it_decides(kind):
    draw = random.Random(0)
    decided, rewards = 0, set()
    for _ in range(1500):
        gold, response = texts_of(kind, draw)
        second = cross_check(gold, response, kind=kind)
        reward = first(kind, gold, response)
        if second is None or reward is None:
            continue
        decided += 1
        rewards.add(reward)
        assert float(second) == pytest.approx(reward, abs=1e-6), (gold, response)
    assert decided > 600
    assert {0.0, 1.0} <= rewards


def test_other_code_contradicts_no_documented_example():
    found = dict.fromkeys(OTHER_CODE, 0)
    for one in examples():
        if one.kind not in OTHER_CODE or one.reward is None:
            continue
        second = cross_check(one.gold, one.response, kind=one.kind)
        if second is not None:
            found[one.kind] += 1
            assert float(second) == pytest.approx(one.reward, abs=1e-6), one
    assert min(found.values()) >= 3, found


@pytest.mark.parametrize(
    ("kind", "gold", "response", "second"),
    [
        ("countdown", "3 5 7 = 36", "(7+5)*3", True),
        ("countdown", "3 3 8 8 = 24", "8/(3-8/3)", True),
        ("countdown", "1 2 3 = -4", "\\boxed{1-2-3}", True),  # from the left: (1-2)-3
        ("countdown", "3 5 7 = 36", r"3 \times (5+7)", None),
        ("countdown", "2 2 4 = 1", "4/(2-2)", False),
        ("countdown", "2 3 = 9", "3**2", False),
        ("words", "battle of Hastings", "Hastings", 0.5),
        ("words", "battle of Hastings", "Hastings“", None),
        ("rouge", "the cat sat on the mat", "mat the on sat cat the", 0.5),
        ("rouge", "word " * 4000, "word " * 4000, None),  # too large a table
        ("json", '{"a": 1, "b": "x"}', '{"b": "x"}', 0.5),
        ("json", '{"a": 1}', '{"a": true}', 0.0),
        ("json", '{"a": 1}', '{"a": 1, "a": 2}', None),
        ("json", '{"a": 1}', "[" * 5000, None),
        ("json", '{"properties": {"a": {"pattern": "x"}}}', '{"a": 1}', None),
        ("instructions", '[["punctuation:no_comma", {}]]', "Yes, sir", False),
        ("instructions", '[["startend:end_checker", {"end_phrase": "x"}]]', "x", None),
        ("instructions", "nonsense", "x", None),
    ],
)
def test_opinions_by_hand(kind, gold, response, second):
    assert cross_check(gold, response, kind=kind) == second


def test_every_kind_says_what_the_audit_compares_it_with():
    assert AUDIT_METHODS.keys() == RULES.keys()
    repeated = {kind for kind, method in AUDIT_METHODS.items() if not method.is_independent}
    assert repeated == {"python", "python_partial", "function", "judge"}


def opinion_of_function(body: str) -> RepeatedCalls:
    return RepeatedCalls(FunctionVerifier(FunctionFile("mine", HEAD + body), hash_seed=1))


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
    orders = []
    for name in ("one", "two", "three", "four", "five", "six"):
        gold = f"assert f() == '{name}'"
        opinion = RepeatedTests("python")
        try:
            orders.append(opinion.ask([Case("", gold, code), Case("", gold, "no code")]))
        finally:
            opinion.close()
        if orders[-1][0] == 1.0:
            break
    assert [second for _, second in orders] == [0.0] * len(orders)
    assert orders[-1][0] == 1.0


def judge_again(monkeypatch, scores: list[int], **settings) -> tuple[list[float | None], list[float | None], list[str]]:
    """The first rewards of two responses, the second opinions, and what the judge was asked."""
    numbers = iter(scores)
    with judge_server(lambda message: f"Score: {next(numbers)}") as server:
        monkeypatch.setenv("HACRL_JUDGE_ALLOW", server.allowed)
        values = {"address": server.address, "model": "m", "rubric": "{response}", "concurrency": 1} | settings
        with JudgeVerifier(JudgeFile("helpful", JudgeSettings.model_validate(values))) as judge:
            cases = [Case("q", "a", "one"), Case("q", "a", "two")]
            before = [verdict.reward for verdict in judge.score_cases(cases)]
            again = RepeatedQuestions(judge).ask(cases)
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

    assert RepeatedQuestions(Silent()).ask([Case("q", "a", "r")] * 2) == [None, None]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[dict]:
    return make_pair(tmp_path_factory.mktemp("pair"))


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
    # The words have nothing of the reference answer: |0.5 - 0| is the largest difference.
    assert tallies == [AuditTally(2, 2, 2, 1.0)] * 2
    assert "'steps'" in finding


def test_function_that_fails_when_it_is_called_again_pauses_the_run(tmp_path, pair):
    with pytest.raises(VerifierFails, match=r"the reward audit fails: the reward function 'steps'.*question 'q7'"):
        audited_function(tmp_path, pair, "return 1 / 0")
