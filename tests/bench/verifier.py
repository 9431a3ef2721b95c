"""How right and how quick the math verifier is, beside math-verify alone.

    python -m tests.bench.verifier [--golden CASES.jsonl] [--processes 4]

Accuracy: the clear golden cases; what math-verify 0.9.0 said of them alone is recorded in the file. Speed, on the
processor's clock of this process and its children: short plain answers, answers that need algebra, and a batch of 512
in which 5 % are hostile. About half a minute.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

from workers.verifiers.service import Verifier, read_cases

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
    cases = [case for case in read_cases(golden) if not case["ambiguous"]]
    found, seconds = [], []
    with Verifier("math", processes) as verifier:
        warm(verifier)
        for case in cases:
            begin = time.monotonic()
            found.append(verifier.score([case["response"]], [case["gold"]])[0])
            seconds.append(time.monotonic() - begin)
    right = [verdict.reward == float(case["expected"]) for verdict, case in zip(found, cases, strict=True)]
    peer = [case["math_verify_0_9_0"]["answer"] == case["expected"] for case in cases]
    missed = [
        f"{case['id']} ({verdict.reason})"
        for case, verdict, is_right in zip(cases, found, right, strict=True)
        if not is_right
    ]
    rewarded = sum(verdict.reward == 1 and not case["expected"] for verdict, case in zip(found, cases, strict=True))
    print(f"clear golden cases: {len(cases)}")
    print(f"  right: ours {sum(right) / len(cases):.1%}, math-verify alone (recorded) {sum(peer) / len(cases):.1%}")
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
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # math-verify's, about time-outs
    print(f"load of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
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
