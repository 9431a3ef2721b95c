"""Between verdicts and updates: which source may teach which learner, and which rewards are believed.

Two smoothed signals decide, each with a gap between the bound that excludes a source and the one that readmits it: the
alignment of its gradient with the learner's own (peer_quarantine, by pair), and the share of its rewards that a second
verifier contradicts (audit, for all learners).

The audited rollouts are drawn from run seed, agent, step, prompt and sample, so a resumed run repeats them. The second
verifier (workers.verifiers.cross_check) runs in a child process with the limits of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workers import heartbeat
from workers.agents.messages import GeneratedRollouts
from workers.contract.spec.algorithm import AlgorithmSpec
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.trainer.scoring import Scores, VerifierFails
from workers.verifiers.children.child_client import VerifierError, VerifierProcess

# Fewer answers than this, smoothed, are no evidence of a verifier gone wrong.
MIN_AUDITED = 10.0


@dataclass(frozen=True)
class TrustChange:
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

    def trusted_sources(self, learner: int) -> list[bool]:
        """By source: whether the learner listens to it."""
        return [
            source == learner or not (self.alignment[learner][source].is_out or self.disagreement[source].is_out)
            for source in range(len(self.names))
        ]

    def is_due(self, step: int) -> bool:
        """Whether the alignment of step 1, 2, ... is measured for the quarantine."""
        return self.watches_alignment and step % self.algorithm.quarantine_interval == 0

    def note_alignment(self, learner: int, measured: Mapping[int, float | None]) -> list[TrustChange]:
        """Take in a learner's alignments by source; None (a gradient was 0) says nothing."""
        algorithm, changes = self.algorithm, []
        margin = algorithm.quarantine_margin
        for source, value in sorted(measured.items()):
            evidence = self.alignment[learner][source]
            if value is None:
                continue
            evidence.add(value, 1.0, algorithm.quarantine_smoothing)
            mean = evidence.total / evidence.count
            pair, text = f"{self.names[learner]} <- {self.names[source]}", f"smoothed gradient alignment {mean:.3f}"
            if not evidence.is_out and mean < -margin:
                evidence.is_out = True
                why = f"{text} is below -{margin:g}"
                changes.append(
                    TrustChange("warning", f"quarantined: {pair}: {why}; it teaches nothing until it recovers")
                )
            elif evidence.is_out and mean > margin:
                evidence.is_out = False
                changes.append(TrustChange("info", f"released from quarantine: {pair}: {text} is above {margin:g}"))
        return changes

    def note_audit(self, audited: Sequence[Audited]) -> list[TrustChange]:
        """Take in a step's audit, by agent."""
        algorithm, changes = self.algorithm, []
        for agent, tally in enumerate(audited):
            name, evidence = self.names[agent], self.disagreement[agent]
            if not tally.decided:
                continue
            evidence.add(tally.disagreed, tally.decided, algorithm.audit_smoothing)
            share = evidence.total / evidence.count
            counts = f"{tally.disagreed} of {tally.decided} answers of this step, smoothed {share:.0%}"
            if not evidence.is_out and share > algorithm.audit_threshold and evidence.count >= MIN_AUDITED:
                evidence.is_out = True
                why = f"a second verifier contradicts the rewards of {name}: {counts}"
                changes.append(
                    TrustChange("warning", f"{why}; no other agent learns from its rollouts until that ends")
                )
            elif evidence.is_out and share < algorithm.audit_threshold / 2:
                evidence.is_out = False
                message = f"the second verifier agrees on the rewards of {name} again: {counts}"
                changes.append(TrustChange("info", message, readmitted=agent))
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


class Audit:
    """Compares verdicts with those of the second verifier. Its child starts with the first question."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self._child = VerifierProcess("workers.verifiers.cross_check", spec.data.verifier, repr(spec.data.tolerance))

    def check(
        self, step: int, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], scores: Scores
    ) -> list[Audited]:
        """By agent: how many rewards of a step were checked, and how many turned out otherwise.

        Rollouts without a reward are not asked about. Error: VerifierFails where the second verifier cannot run.
        """
        tallies = []
        for agent, spec in enumerate(self.spec.agents):
            num_checked, verdicts = 0, []
            for prompt, (question, group) in enumerate(zip(questions, generated[agent].responses, strict=True)):
                for number, response in enumerate(group):
                    key = derived_key("audit", self.spec.seed, spec.stable_seed, step, question.id, number)
                    is_drawn = key < self.spec.algorithm.audit_share * 2**64
                    if not is_drawn or not scores.valid[agent, prompt, number]:
                        continue
                    num_checked += 1
                    heartbeat.send_heartbeat()
                    try:
                        second = self._child.ask(response.text, question.answer).reward
                    except VerifierError as error:
                        raise VerifierFails(f"the second verifier fails: {error}") from error
                    if second is not None:
                        verdicts.append((scores.rewards[agent, prompt, number].item(), second))
            tallies.append(
                Audited(num_checked, len(verdicts), sum((first > 0.5) != (second > 0.5) for first, second in verdicts))
            )
        return tallies

    def close(self) -> None:
        self._child.close()
