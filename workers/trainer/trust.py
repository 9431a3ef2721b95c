"""Trust: which sources each learner uses, by quarantine and audit.

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
from workers.algorithms.base.sharing import SharingSpec
from workers.contract.advantages import REWARD_MAX
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.trainer.scoring import Scores, VerifierFails
from workers.verifiers.children.child_client import VerifierError, VerifierProcess

# Fewer answers than this, smoothed, are no evidence against a verifier.
MIN_AUDITED = 10.0


@dataclass(frozen=True)
class TrustChange:
    """A source was excluded or readmitted; the text gives the reason."""

    level: Literal["info", "warning"]
    message: str
    readmitted: int | None = None  # the agent whose rewards are trusted again


@dataclass(frozen=True)
class AuditTally:
    """Numbers of one agent's rollouts: checked by the second verifier, decided by it, and decided otherwise."""

    checked: int = 0
    decided: int = 0
    disagreed: int = 0


@dataclass
class Evidence:
    """A smoothed mean, stored as (sum, count), and whether it excludes the source."""

    total: float = 0.0
    count: float = 0.0
    is_out: bool = False

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def add(self, total: float, count: float, smoothing: float) -> None:
        """Add a measurement; the weight of earlier ones is multiplied by `smoothing`."""
        self.total = smoothing * self.total + total
        self.count = smoothing * self.count + count

    def decide(self, excludes: bool, readmits: bool) -> bool:
        """Exclude or readmit the source; whether that is a change."""
        is_change = readmits if self.is_out else excludes
        self.is_out ^= is_change
        return is_change

    def state(self) -> list[float]:
        return [self.total, self.count, float(self.is_out)]

    @classmethod
    def from_state(cls, state: Sequence[float]) -> Evidence:
        return cls(state[0], state[1], bool(state[2]))


class Trust:
    """The evidence on every learner-source pair. Without any, every source is trusted."""

    def __init__(self, names: Sequence[str], sharing: SharingSpec | None) -> None:
        """sharing: None where no rollouts are shared."""
        self.names, self.options = names, sharing or SharingSpec(name="")
        self.watches_alignment = self.options.peer_quarantine
        self.audits = self.options.audit_share > 0
        self.alignment = [[Evidence() for _ in names] for _ in names]  # [learner][source]
        self.disagreement = [Evidence() for _ in names]

    @property
    def is_on(self) -> bool:
        return self.watches_alignment or self.audits

    def trusted_sources(self, learner: int) -> list[bool]:
        """By source: whether the learner uses it."""
        return [
            source == learner or not (self.alignment[learner][source].is_out or self.disagreement[source].is_out)
            for source in range(len(self.names))
        ]

    def is_due(self, step: int) -> bool:
        """Whether the alignment of step 1, 2, ... is measured for the quarantine."""
        return self.watches_alignment and step % self.options.quarantine_interval == 0

    def note_alignment(self, learner: int, measured: Mapping[int, float | None]) -> list[TrustChange]:
        """Add a learner's alignments by source; None (a gradient was 0) is no evidence."""
        options, changes = self.options, []
        margin = options.quarantine_margin
        for source, value in sorted(measured.items()):
            evidence = self.alignment[learner][source]
            if value is None:
                continue
            evidence.add(value, 1.0, options.quarantine_smoothing)
            mean = evidence.total / evidence.count
            pair, text = f"{self.names[learner]} <- {self.names[source]}", f"smoothed gradient alignment {mean:.3f}"
            if not evidence.decide(mean < -margin, mean > margin):
                continue
            if evidence.is_out:
                message = f"quarantined: {pair}: {text} is below -{margin:g}; it is not used until it recovers"
                changes.append(TrustChange("warning", message))
            else:
                changes.append(TrustChange("info", f"released from quarantine: {pair}: {text} is above {margin:g}"))
        return changes

    def note_audit(self, tallies: Sequence[AuditTally]) -> list[TrustChange]:
        """Add a step's audit, by agent."""
        options, changes = self.options, []
        for agent, tally in enumerate(tallies):
            name, evidence = self.names[agent], self.disagreement[agent]
            if not tally.decided:
                continue
            evidence.add(tally.disagreed, tally.decided, options.audit_smoothing)
            share = evidence.total / evidence.count
            counts = f"{tally.disagreed} of {tally.decided} answers of this step, smoothed {share:.0%}"
            is_contradicted = share > options.audit_threshold and evidence.count >= MIN_AUDITED
            if not evidence.decide(is_contradicted, share < options.audit_threshold / 2):
                continue
            if evidence.is_out:
                reason = f"a second verifier contradicts the rewards of {name}: {counts}"
                message = f"{reason}; no other agent learns from its rollouts until that ends"
                changes.append(TrustChange("warning", message))
            else:
                message = f"the second verifier agrees on the rewards of {name} again: {counts}"
                changes.append(TrustChange("info", message, readmitted=agent))
        return changes

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, as JSON values."""
        return {
            "alignment": [[evidence.state() for evidence in row] for row in self.alignment],
            "disagreement": [evidence.state() for evidence in self.disagreement],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.alignment = [[Evidence.from_state(one) for one in row] for row in state["alignment"]]
        self.disagreement = [Evidence.from_state(one) for one in state["disagreement"]]


class RewardAudit:
    """Compares verdicts with those of the second verifier, whose process starts with the first question."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.share = spec.sharing.audit_share if spec.sharing else 0.0
        by_settings: dict[tuple[str, ...], VerifierProcess] = {}
        self.second_verifiers: dict[str, VerifierProcess] = {}  # by training set; of the run's own also without a name
        for data in spec.training_data:
            arguments = (data.verifier, repr(data.tolerance), data.extraction)
            if arguments not in by_settings:
                by_settings[arguments] = VerifierProcess("workers.verifiers.cross_check", *arguments)
            self.second_verifiers.setdefault("", by_settings[arguments])
            self.second_verifiers[data.benchmark] = by_settings[arguments]

    def check(
        self, step: int, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], scores: Scores
    ) -> list[AuditTally]:
        """Check a share of a step's rewards; the numbers by agent.

        Rollouts without a reward are not checked, nor those whose reward an environment gave: it judges more than the
        last turn.
        Error: VerifierFails if the second verifier cannot run.
        """
        tallies = []
        has_environment = self.spec.rollout.environment != "none"
        for agent, spec in enumerate(self.spec.agents):
            num_checked, verdicts = 0, []
            for prompt, (question, group) in enumerate(zip(questions, generated[agent].responses, strict=True)):
                for number, response in enumerate(group):
                    key = derived_key("audit", self.spec.seed, spec.stable_seed, step, question.id, number)
                    is_drawn = key < self.share * 2**64
                    is_paid = has_environment and response.reward is not None
                    if not is_drawn or is_paid or not scores.valid[agent, prompt, number]:
                        continue
                    num_checked += 1
                    heartbeat.send_heartbeat()
                    try:
                        verifier = self.second_verifiers[question.benchmark]
                        second = verifier.ask(response.text, question.answer).reward
                    except VerifierError as error:
                        raise VerifierFails(f"the second verifier fails: {error}") from error
                    if second is not None:
                        verdicts.append((scores.of_verifier[agent, prompt, number].item(), second))
            num_disagreed = sum((first >= REWARD_MAX) != (second >= REWARD_MAX) for first, second in verdicts)
            tallies.append(AuditTally(num_checked, len(verdicts), num_disagreed))
        return tallies

    def close(self) -> None:
        for verifier in {id(one): one for one in self.second_verifiers.values()}.values():  # sets may share one
            verifier.close()
