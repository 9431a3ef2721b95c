"""avg@k, pass@k, maj@k and best@k from k samples of each question. Standard library only.

Of a question's k samples, n could be scored and c are correct. An unscorable sample is not in n and never counts as
incorrect. Partial credit counts in avg@k alone: elsewhere a sample is correct if it has the highest possible reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean

# Tooltips, by the name before the @; docs/metrics.md has the details.
FORMULAS = {
    "avg": "mean over questions of c / n: n of the k samples could be scored, c of them are correct; with graded "
    "rewards, the mean reward of the n",
    "pass": "mean over questions of 1 − C(n − c, k) / C(n, k): the chance that k of the n scored samples hold a "
    "correct one, without bias (arXiv 2107.03374); questions with fewer than k scored samples are left out",
    "maj": "mean over questions of the chance that the most frequent answer of the scored samples is correct; "
    "t equally frequent answers win with 1 / t each; a sample without an answer has no vote",
    "best": "share of questions that at least one of the k samples solves: the paper's best@k, with all k samples and "
    "no bootstrap",
}


@dataclass(frozen=True)
class Vote:
    """One answer to a question: how many samples gave it, and whether it is correct."""

    count: int
    is_correct: bool


@dataclass(frozen=True)
class Tally:
    """The k samples of one question. num_scored: n.  num_correct: c.  votes: one for each answer.

    credit: the sum of the n rewards; None: they are binary, so it is c.
    """

    num_scored: int
    num_correct: int
    votes: Sequence[Vote] = ()
    credit: float | None = None

    @property
    def mean_reward(self) -> float:
        return (self.num_correct if self.credit is None else self.credit) / self.num_scored


def pass_at_k(num_scored: int, num_correct: int, k: int) -> float:
    """The chance that k samples, drawn without replacement from n of which c are correct, hold a correct one.

    1 - C(n - c, k) / C(n, k), with 1 <= k <= n. Error: ValueError.
    """
    if not 1 <= k <= num_scored:
        raise ValueError(f"pass@{k} needs at least {k} scored samples, not {num_scored}")
    return 1.0 - comb(num_scored - num_correct, k) / comb(num_scored, k)


def maj_at_k(votes: Sequence[Vote]) -> float:
    """The chance that the most frequent answer is correct, ties broken at random; 0 without votes."""
    most = max((vote.count for vote in votes), default=0)
    tied = [vote for vote in votes if vote.count == most]
    return sum(vote.is_correct for vote in tied) / len(tied) if tied else 0.0


def estimates(tallies: Sequence[Tally], num_samples: int) -> dict[str, float]:
    """Every estimate that these questions allow, by name: `avg@8`, `pass@1`, ... with k = num_samples.

    Questions without a scored sample are left out.
    """
    scored = [tally for tally in tallies if tally.num_scored]
    if not scored:
        return {}
    values = {f"avg@{num_samples}": fmean(tally.mean_reward for tally in scored)}
    for k in sizes(num_samples):
        enough = [tally for tally in scored if tally.num_scored >= k]
        if enough:
            values[f"pass@{k}"] = fmean(pass_at_k(tally.num_scored, tally.num_correct, k) for tally in enough)
    values[f"maj@{num_samples}"] = fmean(maj_at_k(tally.votes) for tally in scored)
    values[f"best@{num_samples}"] = fmean(tally.num_correct > 0 for tally in scored)
    return values


def sizes(num_samples: int) -> list[int]:
    """The reported k of pass@k: powers of two below the number of samples, and that number."""
    return [*(2**power for power in range((num_samples - 1).bit_length())), num_samples]


def formula(name: str) -> str:
    """The tooltip of an estimate's name; empty for an unknown name."""
    return FORMULAS.get(name.partition("@")[0], "")
