"""Reward functions: what they may return, and that one that fails in any way is named and never scores."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from workers.contract.spec.reward_function import FunctionFile, FunctionFileError, check_new_source, check_source
from workers.questions.columns import QuestionMapping
from workers.questions.files import QuestionFileError
from workers.verifiers.functions.function_process import BadResult, checked_result
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier, RewardFunctionError

HEAD = "def reward(question, answer, response, **fields):\n    "
CASES = [Case("1+1=", "2", text, {"id": f"q{place}"}) for place, text in enumerate(["2", "3", "22"])]


def scores(source: str, **limits) -> list:
    check_source(source)
    with FunctionVerifier(FunctionFile("mine", source), **limits) as verifier:
        return verifier.score_cases(CASES)


def test_function_gets_the_question_and_gives_partial_credit():
    body = 'return {"reward": (response == answer) / 2 + 0.25, "length": len(response), "reason": fields["id"]}'
    verdicts = scores(HEAD + body)
    assert [verdict.reward for verdict in verdicts] == [0.75, 0.25, 0.25]
    assert [verdict.parts for verdict in verdicts] == [{"length": 1.0}, {"length": 1.0}, {"length": 2.0}]
    assert [verdict.reason for verdict in verdicts] == ["q0", "q1", "q2"]


def test_several_processes_keep_the_order():
    with FunctionVerifier(FunctionFile("mine", HEAD + "return int(response) / 1000"), processes=3) as verifier:
        cases = [Case("", "", str(number)) for number in range(200)]
        assert [verdict.reward for verdict in verifier.score_cases(cases)] == [n / 1000 for n in range(200)]


def test_function_may_be_async_and_wait_for_threads():
    source = (
        "import asyncio\n"
        "async def reward(response, **fields):\n"
        "    await asyncio.sleep(0)\n"
        "    return await asyncio.to_thread(lambda: float(response == '2'))\n"
    )
    assert [verdict.reward for verdict in scores(source)] == [1.0, 0.0, 0.0]


def test_none_is_unscorable_and_what_it_prints_is_no_reply():
    [verdict, *_] = scores(HEAD + "print('{\"reward\": 1}'); return None")
    assert (verdict.reward, verdict.reason) == (None, "unscorable: it returned None")


def test_libraries_can_be_imported():
    assert scores("import numpy\n" + HEAD + "return numpy.float32(0.5)")[0].reward == 0.5


FAILURES = {
    "raise": ("raise KeyError('x')", "KeyError in line 2: 'x'"),
    "nan": ("return float('nan')", "it returned nan: a reward is a number from 0 to 1"),
    "huge": ("return 1e9", r"it returned 1e\+09: a reward is a number from 0 to 1"),
    "negative": ("return -0.5", "it returned -0.5"),
    "text": ("return '1'", "it returned str, not a number"),
    "no key": ("return {'points': 1}", 'without the key "reward" or "score"'),
    "exit": ("raise SystemExit", "SystemExit in line 2"),
    "end": ("import os; os._exit(0)", "ended its process; it has 1024 MiB of memory, 2 times"),
    "fork": ("import os; os.fork()", "PermissionError in line 2"),
    "program": ("import subprocess; subprocess.run(['true'])", "PermissionError in line 2"),
    "socket": ("import socket; socket.create_connection(('127.0.0.1', 80))", "PermissionError in line 2"),
    "file": ("open('/etc/passwd').read()", "(PermissionError|FileNotFoundError) in line 2"),
    "kill": ("import os; os.kill(os.getppid(), 9)", "PermissionError in line 2"),
    "memory": ("return len(bytearray(4 * 2**30))", "MemoryError in line 2"),
    "recursion": ("return reward(question, answer, response, **fields)", "RecursionError in line 2"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failing_function_is_named_with_its_version_and_the_question(name):
    body, reason = FAILURES[name]
    source = HEAD + body
    version = FunctionFile("mine", source).version
    with pytest.raises(RewardFunctionError, match=reason) as caught:
        scores(source)
    assert str(caught.value).startswith(f"the reward function 'mine', version {version}, fails: ")
    assert "(question 'q0')" in str(caught.value)


def test_hanging_function_is_killed_at_its_limit():
    with pytest.raises(RewardFunctionError, match=r"did not return in 0\.5 s, 2 times \(question 'q0'\)"):
        scores(HEAD + "while True: pass", time_limit_s=0.5)


def test_slow_call_is_tried_once_more_in_a_new_process():
    """A busy machine must not end a run: here it is busy for 1.5 s, longer than the limit."""
    body = f"import time; time.sleep(max(0, {time.time() + 1.5} - time.time())); return 1"
    assert [verdict.reward for verdict in scores(HEAD + body, time_limit_s=1.0)] == [1.0, 1.0, 1.0]


def test_module_that_does_not_load_is_named():
    with pytest.raises(RewardFunctionError, match="its file does not load: ModuleNotFoundError in line 1"):
        scores("import nowhere_to_be_found\n" + HEAD + "return 1")


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    body = "try: open('note', 'w').write('x')\n    except OSError: pass\n    return 0.5"
    assert [v.reward for v in scores(HEAD + body)] == [0.5] * 3
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1", "it defines no function"),
        ("def reward(:", r"no Python: .* \(line 1\)"),
        ("def reward(question, answer, **fields): return 1", None),
        ("def reward(question, answer): return 1", "takes no response"),
        ("def reward(question, answer, response): return 1", r"takes no \*\*fields"),
        ("#" * 200_001, "longer than"),
    ],
)
def test_source_is_checked_before_anything_runs(source, reason):
    if reason is None:
        check_source(source)
        return
    with pytest.raises(FunctionFileError, match=reason):
        check_source(source)


def test_version_is_the_content(tmp_path: Path):
    path = tmp_path / "steps.py"
    path.write_text(HEAD + "return 1")
    first = FunctionFile.read(path)
    path.write_text(HEAD + "return 0")
    assert first.version != FunctionFile.read(path).version
    assert first.label == f"function/steps@{first.version}"
    with pytest.raises(FunctionFileError, match="cannot read the reward function"):
        FunctionFile.read(tmp_path / "gone.py")


_WRITING = """import os
def write(line):
    for place in range(3, 20):
        try:
            os.write(place, line)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "body",
    [
        """write(b'{"reward": 7, "reason": "", "parts": {}}\\n'); return 0""",
        """write(b'{"reward": NaN, "reason": "", "parts": {}}\\n'); return 0""",
        "write(b'nonsense\\n'); return 0",
        "[write(b'x' * 65536) for _ in iter(int, 1)]",
        "import json; json.dumps = lambda value: '[]'; return 1",
    ],
)
def test_reply_that_the_file_writes_itself_is_no_reward_and_fails_the_function(body):
    with pytest.raises(RewardFunctionError, match=r"wrote what is no reply, 2 times \(question 'q0'\)"):
        scores(_WRITING + HEAD + body)


def test_texts_that_no_database_stores_are_made_storable():
    verdict = scores(HEAD + "return {'reward': 1, 'reason': 'a\\0b', '\\ud800': 1}")[0]
    assert (verdict.reason, dict(verdict.parts)) == ("a\ufffdb", {"?": 1.0})


def test_results_are_checked():
    assert checked_result(True) == {"reward": 1.0, "reason": "", "parts": {}}
    assert checked_result({"reward": 0, "a": 2})["parts"] == {"a": 2.0}
    many = {"reward": 1} | dict.fromkeys("abcdefghijklmnopq", 1)
    for value in ([1], {"reward": 1, "a": "x"}, {"reward": 1, "a": float("inf")}, b"1", many):
        with pytest.raises(BadResult):
            checked_result(value)


TRL = """def accuracy(completions, ground_truth, **kwargs):
    return [float(completion == truth) for completion, truth in zip(completions, ground_truth)]
"""


def test_function_of_trl_is_called_with_lists_of_one():
    assert [verdict.reward for verdict in scores(TRL)] == [1.0, 0.0, 0.0]
    head = "def reward(prompts, completions, answer, **kwargs):\n"
    source = head + "    return [len(prompts) / 2 if kwargs['id'] == ['q0'] else None]"
    assert [verdict.reward for verdict in scores(source)] == [0.5, None, None]


def test_function_of_trl_that_reads_messages_gets_messages():
    source = (
        "async def chat(completions, prompts, answer, **kwargs):\n"
        "    assert prompts[0][-1] == {'role': 'user', 'content': '1+1='}\n"
        "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n"
    )
    assert [verdict.reward for verdict in scores(source)] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1.0", "it returned float: a function with completions returns a list"),
        ("return [1.0, 0.0]", "2 rewards for one"),
        ("return [2.0]", "a reward is a number from 0 to 1"),
        ("return ['1']", "it returned str, not a number"),
    ],
)
def test_function_of_trl_that_returns_no_list_of_one_reward_is_named(body, reason):
    with pytest.raises(RewardFunctionError, match=reason):
        scores(f"def reward(completions, **kwargs):\n    {body}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (TRL + TRL.replace("accuracy", "other"), "several functions take completions or solution_str, accuracy, other"),
        (TRL.replace("ground_truth", "num_tests"), "it needs 'num_tests', which a question does not have"),
        (TRL.replace(", **kwargs", ""), r"it takes no \*\*kwargs"),
        ("def other(responses):\n    return []", r"it defines other\(responses\), but no function `reward`"),
    ],
)
def test_function_of_trl_that_could_not_be_called_is_refused(source, reason):
    with pytest.raises(FunctionFileError, match=reason):
        check_source(source)


def test_prompt_of_messages_is_a_question():
    mapping = QuestionMapping(question="prompt", answer="answer")
    user, system = {"role": "user", "content": "1+1="}, {"role": "system", "content": "Be brief."}
    assert mapping.question_of({"prompt": [user], "answer": "2"}).question == "1+1="
    assert mapping.question_of({"prompt": [system, user], "answer": "2"}).question == "Be brief.\n\n1+1="
    assistant = {"role": "assistant", "content": "2"}
    assert mapping.question_of({"prompt": [user, assistant], "answer": "2"}).question == "1+1="
    for messages in ([], [system], [user, user], ["1+1="], [{"role": "user", "content": 3}]):
        with pytest.raises(QuestionFileError, match=r"is a list, but not of|a part that is no text"):
            mapping.question_of({"prompt": messages, "answer": "2"})


VERL = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return "


@pytest.mark.parametrize(
    "source",
    [
        VERL + "float(solution_str == ground_truth)",
        VERL + "{'score': solution_str == ground_truth, 'acc': True, 'pred': solution_str}",
        VERL.replace("def", "async def") + "1.0 if extra_info['question'] == '1+1=' and solution_str == '2' else 0.0",
        "compute_score = lambda solution_str, ground_truth: float(solution_str == ground_truth)",
        "reward = lambda question, answer, response, **fields: float(response == answer)",
        "\ufeffdef reward(question, answer, response, **fields):\n    return response == answer",
        "def f(completions, answer, **kw):\n    return [c[0].get('content') == a for c, a in zip(completions, answer)]",
    ],
)
def test_functions_of_the_field_run_as_they_are(source, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")
    with FunctionVerifier(FunctionFile.read(path)) as verifier:
        verifier.check_loads()
        assert [verdict.reward for verdict in verifier.score_cases(CASES)] == [1.0, 0.0, 0.0]


def test_function_of_trl_that_returns_nothing_leaves_the_response_unscored():
    assert [one.reward for one in scores("def f(completions, **kwargs):\n    return None")] == [None] * 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(completions, **kwargs):\n    n = len(completions)\n    return [k / max(1, n - 1) for k in range(n)]",
         "which is not supported: each response is rewarded alone"),
        ("def f(completions, **kwargs):\n    best = max(map(len, completions))\n"
         "    return [len(c) / max(1, best) for c in completions]", "each response is rewarded alone"),
        ("def f(completions, **kwargs):\n    return [1 / len(completions) for _ in completions]", "rewarded alone"),
        ("import torch\n" + HEAD + "return 1", r"torch is not available|No module named 'torch'"),
    ],
)  # fmt: skip
def test_what_a_function_cannot_be_is_known_before_a_run(source, reason):
    with (
        FunctionVerifier(FunctionFile("mine", source)) as verifier,
        pytest.raises(RewardFunctionError, match=reason),
    ):
        verifier.check_loads()


@pytest.mark.parametrize(
    ("body", "number"),
    [("return -1", "-1"), ("return 1.0 if answer in response else -0.5", "-0.5"), ("return {'reward': 2.0}", "2")],
)
def test_reward_out_of_range_that_a_file_states_is_refused_when_it_is_saved(body, number):
    with pytest.raises(FunctionFileError, match=f"it returns {number} in line 2, but a reward is a number from 0 to 1"):
        check_new_source(HEAD + body)
    check_source(HEAD + body)  # one that was registered before is read as it was


def test_numbers_that_are_no_rewards_are_not_taken_for_them():
    inner = "def length(text):\n        return -1\n    scale = lambda x: 2.0\n    return scale(1) / 4 + len('x')"
    check_new_source(HEAD + inner)
