"""The contract's estimators: from k samples of each question to avg@k, pass@k, maj@k and best@k.

Last station of an evaluation, before its event. n is how many of a question's k samples could be scored, c how many of
these are right. What could not be scored is left out of n, never counted as wrong. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

# By family, for people who hover over a number; docs/metrics.md says more.
FORMULAS = {
    "avg": "mean over questions of c / n: n of the k samples could be scored, c of them are right",
    "pass": "mean over questions of 1 − C(n − c, k) / C(n, k): the chance that k of the n scored samples hold a right "
    "one, without bias (arXiv 2107.03374); questions with fewer than k scored samples are left out",
    "maj": "mean over questions of the chance that the most frequent answer of the scored samples is right; "
    "of t equally frequent ones each wins with 1 / t; a sample without an answer has no vote",
    "best": "share of questions that at least one of the k samples solves: the paper's best@k, with all k samples and "
    "no bootstrap",
}


@dataclass(frozen=True)
class Vote:
    """One answer of a question: how many samples gave it, and whether it is right."""

    count: int
    is_right: bool


@dataclass(frozen=True)
class Tally:
    """What the k samples of one question came to. num_scored: n.  num_right: c.  votes: one for each answer."""

    num_scored: int
    num_right: int
    votes: Sequence[Vote] = ()


def pass_at_k(num_scored: int, num_right: int, k: int) -> float:
    """The chance that k samples, drawn without replacement from n of which c are right, hold a right one.

    1 - C(n - c, k) / C(n, k), with 1 <= k <= n. Error: ValueError.
    """
    if not 1 <= k <= num_scored:
        raise ValueError(f"pass@{k} needs at least {k} scored samples, not {num_scored}")
    return 1.0 - comb(num_scored - num_right, k) / comb(num_scored, k)


def maj_at_k(votes: Sequence[Vote]) -> float:
    """The chance that the most frequent answer is right where ties are broken at random; 0 where nobody voted."""
    most = max((vote.count for vote in votes), default=0)
    tied = [vote for vote in votes if vote.count == most]
    return sum(vote.is_right for vote in tied) / len(tied) if tied else 0.0


def estimates(tallies: Sequence[Tally], num_samples: int) -> dict[str, float]:
    """Every estimate that these questions allow, by its name with k = num_samples put in: `avg@8`, `pass@1`, ...

    A question of which no sample could be scored is in none of them. Empty where that is all of them.
    """
    scored = [tally for tally in tallies if tally.num_scored]
    if not scored:
        return {}
    values = {f"avg@{num_samples}": fmean(tally.num_right / tally.num_scored for tally in scored)}
    for k in sizes(num_samples):
        enough = [tally for tally in scored if tally.num_scored >= k]
        if enough:
            values[f"pass@{k}"] = fmean(pass_at_k(tally.num_scored, tally.num_right, k) for tally in enough)
    values[f"maj@{num_samples}"] = fmean(maj_at_k(tally.votes) for tally in scored)
    values[f"best@{num_samples}"] = fmean(tally.num_right > 0 for tally in scored)
    return values


def sizes(num_samples: int) -> Iterator[int]:
    """The k of pass@k that are told: powers of two below the number of samples, and that number."""
    k = 1
    while k < num_samples:
        yield k
        k *= 2
    yield num_samples


def formula(name: str) -> str:
    """What an estimate's name means, in a sentence; empty for a name of no family."""
    return FORMULAS.get(name.partition("@")[0], "")
