"""How right and how quick the math verifier is, beside math-verify alone.

    python -m tests.bench.verifier [--golden CASES.jsonl] [--processes 4]
    python -m tests.bench.verifier --mixed 100000

Accuracy: the clear golden cases; what math-verify 0.9.0 said of them alone is recorded in the file. Speed, on the
processor's clock of this process and its children: short plain answers, answers that need algebra, and a batch of 512
in which 5 % are hostile. About half a minute. --mixed: the time of each of so many different answers of a usual
mixture, asked one by one, and its 99th percentile.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from workers.verifiers.scoring.service import Verifier, read_cases

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "verifier_cases.jsonl"
Pair = tuple[str, str]  # response, reference answer
HOSTILE = (
    "x+9^{(9^{9})}",
    "\\prod_{n=1}^{10^6} n",
    "\\int_0^1 x^{x^{x}} dx",
    "\\sum_{n=1}^{10^{9}} n^{n}",
    "(x+y+z+w)^{900}",
)


def plain(count: int) -> list[Pair]:
    """Ordinary answers of a run: a short working and a number; a quarter of them wrong."""
    random.seed(0)
    numbers = random.sample(range(10**6), count)  # none twice: nothing is answered from memory
    return [(f"3*{n}={3 * n};{3 * n}+{k % 4 and 1}=\\boxed{{{3 * n + (k % 4 and 1)}}}", str(3 * n + 1))
            for k, n in enumerate(numbers)]  # fmt: skip


def algebra(count: int) -> list[Pair]:
    """Answers in another form than the reference: half constants, half with letters."""
    found = []
    for k in range(2, count // 2 + 2):
        found.append((f"Hence it is $\\boxed{{{k}\\sqrt{{2}}}}$.", f"\\sqrt{{{2 * k * k}}}"))
        found.append((f"Hence it is $\\boxed{{(x+{k})(x-{k})}}$.", f"x^2-{k * k}"))
    return found


def mixed(count: int) -> list[Pair]:
    """A usual mixture, none twice: 60 % plain numbers, 15 % with units, percent or as fractions, 10 % stated in words,
    10 % algebra, 5 % tuples, intervals and sets; and one hostile answer in 5,000. A quarter is wrong.
    """
    chance = random.Random(1)
    pairs = []
    for k in range(count):
        n, wrong = 1000 + k, k % 4 == 3
        shown, place = n + wrong, k % 100
        if k % 5000 == 4999:
            pair = (f"\\boxed{{{HOSTILE[k // 5000 % len(HOSTILE)]}+{k}}}", "5")
        elif place < 60:
            pair = (f"3*{n}={3 * n}, so \\boxed{{{shown}}}", str(n))
        elif place < 75:
            forms = (
                f"{shown}\\text{{ cm}}",
                f"{shown}\\%",
                f"\\frac{{{2 * shown}}}{{2}}",
                f"{shown}.0",
                f"\\${shown:,}",
            )
            form = forms[k % len(forms)]
            pair = (f"Thus \\boxed{{{form}}}.", f"{n}\\%" if form.endswith("%") else str(n))
        elif place < 85:
            pair = (f"We add them up. The answer is {shown}.", str(n))
        elif place < 95:
            pair = chance.choice(_algebraic(n, shown))
        else:
            forms = ((f"({shown}, {n})", f"({n},{n})"), (f"[{n}, {shown + 1})", f"[{n},{n + 1})"),
                     (f"\\{{{shown}, 7\\}}", f"\\{{7,{n}\\}}"))  # fmt: skip
            answer, gold = forms[k % len(forms)]
            pair = (f"so \\boxed{{{answer}}}", gold)
        pairs.append(pair)
    chance.shuffle(pairs)
    return pairs


def _algebraic(n: int, shown: int) -> list[Pair]:
    """An answer in another form than the reference."""
    return [
        (f"\\boxed{{{shown}\\sqrt{{2}}}}", f"\\sqrt{{{2 * n * n}}}"),
        (f"\\boxed{{(x+{shown})(x-{n})}}", f"x^2-{n * n}"),
        (f"\\boxed{{\\frac{{{shown}}}{{\\sqrt{{3}}}}}}", f"\\frac{{{n}\\sqrt{{3}}}}{{3}}"),
        (f"\\boxed{{2x+{shown}+x}}", f"3x+{n}"),
        (f"\\boxed{{{shown}\\pi+\\pi}}", f"{n + 1}\\pi"),
    ]


def time_of_each(pairs: list[Pair]) -> None:
    """Percentiles of the time of one answer, with one process: on the clock of the wall, which other work on the
    machine lengthens, and on the processors' clocks of this process and its child.
    """
    with Verifier("math", 1) as verifier:
        warm(verifier)
        elapsed_s, worked_s, rewards = [], [], []
        for text, gold in pairs:
            begin, before = time.monotonic(), _worked(verifier)
            [verdict] = verifier.score([text], [gold])
            elapsed_s.append(time.monotonic() - begin)
            after = _worked(verifier)
            is_same = after.keys() == before.keys()  # else a process was killed at its limit, or began
            worked_s.append(sum(after.values()) - sum(before.values()) if is_same else elapsed_s[-1])
            rewards.append(verdict.reward)
    print(f"{len(pairs):,} mixed answers one by one, {sum(elapsed_s):.0f} s in all:")
    for clock, seconds in (("wall", elapsed_s), ("processor", worked_s)):
        ordered = sorted(seconds)
        p50, p99, p999 = (1000 * ordered[int((len(ordered) - 1) * share)] for share in (0.5, 0.99, 0.999))
        print(f"  {clock}: p50 {p50:.3f} ms, p99 {p99:.1f} ms, p99.9 {p999:.1f} ms, slowest {ordered[-1]:.2f} s")
    correct, unscorable = rewards.count(1.0), rewards.count(None)
    print(f"  {correct:,} correct, {rewards.count(0.0):,} incorrect, {unscorable:,} unscorable")


def _worked(verifier: Verifier) -> dict[int, float]:
    """Processor seconds of this process, of the verifier's child and of the child's fork, by process id."""
    seconds = {os.getpid(): time.process_time()}
    [child] = verifier._children
    pids = [child.pid] if child.pid else []
    with contextlib.suppress(OSError):
        pids += [int(pid) for pid in Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split()]
        seconds |= {pid: int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in pids}
    return seconds


def processor_seconds(work: Callable[[], object]) -> float:
    """What work() costs, children that have ended included."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    work()
    now = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(used, now, strict=True))


def ours(pairs: list[Pair], processes: int = 1) -> list[float | None]:
    with Verifier("math", processes) as verifier:
        return [found.reward for found in verifier.score([text for text, _ in pairs], [gold for _, gold in pairs])]


def alone(pairs: list[Pair]) -> list[bool]:
    """math-verify as its own README shows it, without its time-outs."""
    from math_verify import parse, verify

    return [
        verify(parse(f"${gold}$", parsing_timeout=None), parse(text, parsing_timeout=None), timeout_seconds=None)
        for text, gold in pairs
    ]


def warm(verifier: Verifier) -> None:
    """Have all its processes started, as in a run after its first step."""
    verifier.score([f"\\boxed{{x+{n}x}}" for n in range(40)], ["y"] * 40)


def accuracy(golden: Path, processes: int) -> None:
    cases = [case for case in read_cases(golden) if not case.get("ambiguous")]
    found, seconds = [], []
    with Verifier("math", processes) as verifier:
        warm(verifier)
        for case in cases:
            begin = time.monotonic()
            found.append(verifier.score([case["response"]], [case["gold"]])[0])
            seconds.append(time.monotonic() - begin)
    right = [verdict.reward == float(case["expected"]) for verdict, case in zip(found, cases, strict=True)]
    peer = [case["math_verify_0_9_0"]["answer"] == case["expected"] for case in cases if "math_verify_0_9_0" in case]
    alone_text = f", math-verify alone (recorded) {sum(peer) / len(peer):.1%}" if peer else ""
    missed = [
        f"{case['id']} ({verdict.reason})"
        for case, verdict, is_right in zip(cases, found, right, strict=True)
        if not is_right
    ]
    rewarded = sum(verdict.reward == 1 and not case["expected"] for verdict, case in zip(found, cases, strict=True))
    print(f"clear golden cases: {len(cases)}")
    print(f"  right: ours {sum(right)} of {len(cases)}, {sum(right) / len(cases):.1%}{alone_text}")
    print(f"  wrong answers rewarded: {rewarded}; slowest case {max(seconds):.2f} s")
    print(f"  not as expected: {', '.join(missed) or 'none'}")


def speed(name: str, pairs: list[Pair], peers: int) -> None:
    """Answers a second and core; the peer gets the first `peers`. The processes' start is taken off by a first pair."""
    start = processor_seconds(lambda: ours([("\\boxed{x+1}", "1+x")])) if name != "plain" else 0.0
    our_rate = len(pairs) / max(processor_seconds(lambda: ours(pairs)) - start, 1e-9)
    alone(pairs[:2])
    peer_rate = peers / processor_seconds(lambda: alone(pairs[:peers]))
    print(f"{name}: ours {our_rate:,.0f}/s, math-verify alone {peer_rate:,.0f}/s, ratio {our_rate / peer_rate:,.1f}")


def hostile_batch(processes: int) -> None:
    pairs = plain(512)
    for place in range(0, 512, 20):
        pairs[place] = (f"\\boxed{{{HOSTILE[place // 20 % len(HOSTILE)]}+{place}}}", "5")
    with Verifier("math", processes) as verifier:
        begin = time.monotonic()
        warm(verifier)
        started = time.monotonic()
        found = verifier.score([text for text, _ in pairs], [gold for _, gold in pairs])
        ended = time.monotonic()
    lost = sum(verdict.reward is None for verdict in found)
    print(f"512 answers, 26 of them hostile, {processes} processes: {ended - started:.1f} s, {lost} unscorable")
    print(f"  (starting the processes, once in a run: {started - begin:.1f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golden", type=Path, default=GOLDEN)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--smoke", action="store_true", help="few answers, and no golden cases")
    parser.add_argument("--mixed", type=int, default=0, metavar="N", help="the time of each of N mixed answers alone")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # math-verify's, about time-outs
    print(f"load of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.mixed or options.smoke:
        time_of_each(mixed(options.mixed or 200))
        if options.mixed:
            return
    if options.golden.is_file() and not options.smoke:
        accuracy(options.golden, options.processes)
    else:
        print(f"no golden cases at {options.golden}: accuracy is left out")
    speed("plain", plain(1000 if options.smoke else 20_000), 20 if options.smoke else 300)
    speed("algebra", algebra(20 if options.smoke else 600), 10 if options.smoke else 200)
    if not options.smoke:
        hostile_batch(options.processes)


if __name__ == "__main__":
    main()
