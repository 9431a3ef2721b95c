"""Between verdicts and updates: which source may teach which learner, and whose verdicts are believed at all.

Two pieces of evidence, both smoothed and both with a gap between the bound that shuts a source out and the one that
lets it back: the alignment of its gradient with the learner's own (peer_quarantine, by pair), and how often a second
verifier contradicts the rewards of its rollouts (audit, for everybody). Standard library and numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workers.contract.spec.algorithm import AlgorithmSpec

# Fewer answers than this, smoothed, are no evidence of a verifier gone wrong.
MIN_AUDITED = 10.0


@dataclass(frozen=True)
class Change:
    """A source was shut out or let back; the text says why."""

    level: Literal["info", "warning"]
    message: str
    readmitted: int | None = None  # the agent whose rewards are believed again


@dataclass(frozen=True)
class Audited:
    """Of one agent's rollouts of a step: asked of the second verifier, decided by it, and decided otherwise."""

    asked: int = 0
    decided: int = 0
    disagreed: int = 0


@dataclass
class Evidence:
    """A smoothed mean, kept as (sum, count), and whether it has shut the source out."""

    total: float = 0.0
    count: float = 0.0
    is_out: bool = False

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def add(self, total: float, count: float, smoothing: float) -> None:
        """Take in one measurement: what was there counts `smoothing` of what it did."""
        self.total = smoothing * self.total + total
        self.count = smoothing * self.count + count

    def state(self) -> list[float]:
        return [self.total, self.count, float(self.is_out)]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> Evidence:
        return cls(state[0], state[1], bool(state[2]))


class Trust:
    """Everybody trusts everybody until the evidence says otherwise, and again when it has changed."""

    def __init__(self, names: Sequence[str], algorithm: AlgorithmSpec) -> None:
        self.names, self.algorithm = names, algorithm
        self.watches_alignment = algorithm.peer_quarantine and algorithm.shares_rollouts
        self.audits = algorithm.audit_share > 0
        self.alignment = [[Evidence() for _ in names] for _ in names]  # [learner][source]
        self.disagreement = [Evidence() for _ in names]

    @property
    def is_on(self) -> bool:
        return self.watches_alignment or self.audits

    def trusted(self, learner: int) -> list[bool]:
        """By source: whether the learner listens to it."""
        return [
            source == learner or not (self.alignment[learner][source].is_out or self.disagreement[source].is_out)
            for source in range(len(self.names))
        ]

    def is_due(self, step: int) -> bool:
        """Whether the alignment of step 1, 2, ... is measured for the quarantine."""
        return self.watches_alignment and step % self.algorithm.quarantine_interval == 0

    def note_alignment(self, learner: int, measured: Mapping[int, float | None]) -> list[Change]:
        """Take in a learner's alignments by source; None (a gradient was 0) says nothing."""
        algorithm, changes = self.algorithm, []
        margin = algorithm.quarantine_margin
        for source, value in sorted(measured.items()):
            evidence = self.alignment[learner][source]
            if value is None:
                continue
            evidence.add(value, 1.0, algorithm.quarantine_smoothing)
            mean = evidence.total / evidence.count
            pair, found = f"{self.names[learner]} <- {self.names[source]}", f"smoothed gradient alignment {mean:.3f}"
            if not evidence.is_out and mean < -margin:
                evidence.is_out = True
                why = f"{found} is below -{margin:g}"
                changes.append(Change("warning", f"quarantined: {pair}: {why}; it teaches nothing until it recovers"))
            elif evidence.is_out and mean > margin:
                evidence.is_out = False
                changes.append(Change("info", f"released from quarantine: {pair}: {found} is above {margin:g}"))
        return changes

    def note_audit(self, audited: Sequence[Audited]) -> list[Change]:
        """Take in a step's audit, by agent."""
        algorithm, changes = self.algorithm, []
        for agent, found in enumerate(audited):
            name, evidence = self.names[agent], self.disagreement[agent]
            if not found.decided:
                continue
            evidence.add(found.disagreed, found.decided, algorithm.audit_smoothing)
            share = evidence.total / evidence.count
            counts = f"{found.disagreed} of {found.decided} answers of this step, smoothed {share:.0%}"
            if not evidence.is_out and share > algorithm.audit_threshold and evidence.count >= MIN_AUDITED:
                evidence.is_out = True
                why = f"a second verifier contradicts the rewards of {name}: {counts}"
                changes.append(Change("warning", f"{why}; no other agent learns from its rollouts until that ends"))
            elif evidence.is_out and share < algorithm.audit_threshold / 2:
                evidence.is_out = False
                message = f"the second verifier agrees on the rewards of {name} again: {counts}"
                changes.append(Change("info", message, readmitted=agent))
        return changes

    def state_dict(self) -> dict[str, Any]:
        """All that resuming needs, as JSON values."""
        return {
            "alignment": [[evidence.state() for evidence in row] for row in self.alignment],
            "disagreement": [evidence.state() for evidence in self.disagreement],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.alignment = [[Evidence.from_state(one) for one in row] for row in state["alignment"]]
        self.disagreement = [Evidence.from_state(one) for one in state["disagreement"]]
