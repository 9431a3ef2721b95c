"""Rewards: what is right, what is wrong, what cannot be scored, and that no answer can hold the verifier up."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.waiting import wait_until
from workers.verifiers.children import line_process
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.functions.function_verifier import FunctionVerifier
from workers.verifiers.scoring.service import Verifier, read_cases
from workers.verifiers.scoring.verdicts import Verdict

CASES = Path(__file__).resolve().parents[2] / "data" / "verifier_cases.jsonl"
GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden" / "verifier_cases.jsonl"
GOLDEN_2 = GOLDEN.with_name("verifier_cases_2.jsonl")
RULE_CASES = CASES.with_name("verifier_rule_cases.jsonl")
ENDLESS = "\\boxed{x+9^{(9^{9})}}"  # the letter keeps it from being settled as a constant


@pytest.fixture(scope="module")
def verifier():
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    with Verifier("math") as made:
        yield made


@pytest.fixture
def fresh_verifier(verifier):
    """One that remembers no verdict, its process started."""
    with Verifier("math") as made:
        reward(made, "\\boxed{y}", "y+y")
        yield made


def reward(verifier: Verifier, completion: str, gold: str) -> float | None:
    return verifier.score([completion], [gold])[0].reward


def children_of(verifier: Verifier) -> list[int]:
    return [child.pid for child in verifier._children if child.pid]


def forks_of(verifier: Verifier) -> list[int]:
    """The copies of the children that answer."""
    return [fork.pid for pid in children_of(verifier) for fork in psutil.Process(pid).children()]


def assert_ended(pids: list[int]) -> None:
    """A fork sees its parent's end and goes too; whose child it is then may take its time to collect it."""

    def is_alive(pid: int) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        return False

    assert wait_until(lambda: not any(map(is_alive, pids)), 60)


@pytest.mark.parametrize("case", list(read_cases(CASES)), ids=lambda case: case["id"])
def test_clear_case_is_judged_as_a_person_would(verifier, case):
    assert reward(verifier, case["response"], case["gold"]) == float(case["expected"])


def test_rules_hold_for_answers_of_their_class(verifier):
    """Cases invented for each rule of docs/verifiers.md: wrong answers that look right, right ones in odd spellings."""
    cases = list(read_cases(RULE_CASES))
    verdicts = verifier.score([case["response"] for case in cases], [case["gold"] for case in cases])
    others = [case for case, verdict in zip(cases, verdicts, strict=True) if verdict.reward != float(case["expected"])]
    assert others == []


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN_2.is_file(), reason="no shared golden cases beside the checkout (../shared/golden)")
@pytest.mark.parametrize(("path", "share"), [(GOLDEN, 0.985), (GOLDEN_2, 0.99)], ids=["first", "second"])
def test_nearly_all_clear_golden_cases_are_right_and_no_wrong_answer_is_rewarded(verifier, path, share):
    clear = [case for case in read_cases(path) if not case.get("ambiguous")]
    found = [reward(verifier, case["response"], case["gold"]) for case in clear]
    right = sum(value == float(case["expected"]) for value, case in zip(found, clear, strict=True))
    assert right >= share * len(clear)
    assert [case["id"] for value, case in zip(found, clear, strict=True) if value == 1 and not case["expected"]] == []


def test_plain_numbers_never_start_a_process():
    with Verifier("math") as verifier:
        found = verifier.score(["\\boxed{17}", "\\boxed{18}", "no"], ["17", "17", "17"])
        assert [verdict.reward for verdict in found] == [1.0, 0.0, 0.0]
        assert children_of(verifier) == []


def test_fast_path_scores_a_thousand_answers_in_a_second():
    completions = [f"3*4=12;{n}+12=\\boxed{{{n + 12}}}" for n in range(5000)]
    with Verifier("math") as verifier:
        begin = time.process_time()
        found = verifier.score(completions, [str(n + 12) for n in range(5000)])
        assert time.process_time() - begin < 5
    assert all(verdict.reward == 1 for verdict in found)


def test_hostile_answer_is_unscorable_within_its_limit_and_the_next_one_is_scored_at_once(fresh_verifier):
    assert reward(fresh_verifier, "\\boxed{x+2x}", "3x") == 1
    children, forks = children_of(fresh_verifier), forks_of(fresh_verifier)
    hostile = fresh_verifier.score([ENDLESS], ["5"])[0]
    assert hostile == Verdict(None, "unscorable: no verdict in 3 s", True)
    assert not Path(f"/proc/{forks[0]}").exists()
    assert reward(fresh_verifier, "\\boxed{x+3x}", "4x") == 1
    assert children_of(fresh_verifier) == children  # a new fork, not a new process: loading the algebra takes seconds


def test_child_that_is_stuck_itself_is_replaced(fresh_verifier):
    assert reward(fresh_verifier, "\\boxed{x+2x}", "3x") == 1
    before, forks = children_of(fresh_verifier), forks_of(fresh_verifier)
    os.kill(before[0], signal.SIGSTOP)
    assert fresh_verifier.score(["\\boxed{x+4x}"], ["5x"])[0] == Verdict(None, "unscorable: no verdict in 3 s", True)
    assert reward(fresh_verifier, "\\boxed{x+3x}", "4x") == 1
    assert children_of(fresh_verifier) != before
    assert_ended(before + forks)


@pytest.mark.slow
def test_memory_and_processor_time_of_a_child_are_limited_even_without_a_parent():
    request = json.dumps({"gold": "5x", "answer": "x2^{100000000000}"})  # 12 GB, were it written out
    program = (
        "import resource, subprocess, sys\n"
        "child = [sys.executable, '-m', 'workers.verifiers.mathematics.math_equal', str(500 * 2**20), '3']\n"
        "subprocess.run(child, input=sys.argv[1].encode() + b'\\n', stdout=subprocess.DEVNULL)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_maxrss // 1024, used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run([sys.executable, "-c", program, request], capture_output=True, text=True, check=True)
    peak_mib, seconds = map(float, done.stdout.split())
    assert peak_mib <= 500
    assert seconds < 12  # import about 2, then 3 at most


@pytest.mark.parametrize("killed", [children_of, forks_of])
def test_killed_process_is_replaced_and_its_answer_asked_again_next_time(fresh_verifier, killed):
    assert reward(fresh_verifier, "\\boxed{5x+x}", "6x") == 1
    os.kill(killed(fresh_verifier)[0], 9)
    found = fresh_verifier.score(["\\boxed{7x+x}", "\\boxed{6x+x}"], ["8x", "7x"])
    assert [verdict.reward for verdict in found] == [None, 1.0]
    assert found[0].reason == "unscorable: the verifier process died"
    assert reward(fresh_verifier, "\\boxed{7x+x}", "8x") == 1


def test_child_has_its_libraries_before_its_first_question():
    """Each fork would load them anew, within the seconds of its answer."""
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    code = (
        "import sys; from workers.verifiers.mathematics import math_equal\n"
        "math_equal.serve_verifier = lambda *_: print('math_verify' in sys.modules, 'sympy' in sys.modules)\n"
        "math_equal.main()\n"
    )
    said = subprocess.run([sys.executable, "-c", code, "1", "1"], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["True", "True"]


def test_only_what_could_not_be_scored_is_forgotten(verifier):
    pair = ("x+1", "1+x")
    lost = ("9^{(9^{9})}", "4")
    verifier._cache[lost] = Verdict(None, "unscorable: no verdict in 3 s", True)
    assert verifier.score(["\\boxed{x+1}"], ["1+x"])[0].reward == 1.0
    verifier.forget_unscorable()
    assert lost not in verifier._cache
    assert verifier._cache[pair].reward == 1.0


def test_works_off_the_main_thread(verifier):
    found: list[float | None] = []
    thread = threading.Thread(target=lambda: found.append(reward(verifier, "\\boxed{2\\sqrt{5}}", "\\sqrt{20}")))
    thread.start()
    thread.join()
    assert found == [1.0]


def test_several_processes_keep_the_order(verifier):
    golds = [f"\\sqrt{{{n}}}" for n in (8, 18, 32, 50)]
    with Verifier("math", processes=2) as double:
        found = double.score([f"\\boxed{{{n}\\sqrt{{2}}}}" for n in (2, 3, 4, 9)], golds)
    assert [verdict.reward for verdict in found] == [1.0, 1.0, 1.0, 0.0]


def test_close_ends_the_children():
    pytest.importorskip("math_verify", reason="math-verify is missing: pip install -c constraints.txt -e '.[train]'")
    verifier = Verifier("math")
    reward(verifier, "\\boxed{2\\sqrt{3}}", "\\sqrt{12}")
    processes = children_of(verifier) + forks_of(verifier)
    assert len(processes) == 2
    verifier.close()
    assert_ended(processes)


def test_a_verifier_that_cannot_start_is_an_error_and_no_verdict(monkeypatch):
    monkeypatch.setattr(line_process.sys, "executable", "/bin/false")
    with Verifier("math") as verifier, pytest.raises(VerifierError, match="install the train extra"):
        verifier.score(["\\boxed{x+1}"], ["1+x"])


def test_lengths_must_agree():
    with Verifier("exact") as verifier, pytest.raises(ValueError, match="1 responses but 2"):
        verifier.score(["a"], ["a", "b"])


@pytest.mark.parametrize("make", [lambda: Verifier("exact"), lambda: FunctionVerifier(SimpleNamespace())])
def test_closing_waits_for_the_answer_at_work_and_for_no_other(make):
    verifier, begun, done = make(), threading.Event(), []

    def answer() -> None:
        begun.set()
        time.sleep(0.1)
        done.append("at work")

    verifier._pool.submit(answer)
    verifier._pool.submit(done.append, "queued")
    assert begun.wait(60)
    verifier.close()
    assert done == ["at work"]
