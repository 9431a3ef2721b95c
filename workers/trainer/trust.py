"""Trust: which sources each learner uses, by quarantine and audit.

Two smoothed signals decide, each with a gap between the bound that excludes a source and the one that readmits it: the
alignment of its gradient with the learner's own (peer_quarantine, by pair), and the share of its rewards that a second
opinion contradicts (audit, for all learners).

The audited rollouts are drawn from run seed, agent, step, prompt and sample, so a resumed run repeats them. A second
opinion is the same judgement once more (workers.verifiers.scoring.repeated_judgements).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workers.agents.messages import GeneratedRollouts, Response
from workers.algorithms.base.sharing import SharingSpec
from workers.contract.spec.rewards import VERIFIER
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.trainer.rewards import Judges, case_of, open_second_opinion, open_term_opinions, verifier_settings
from workers.trainer.scoring import Scores, VerifierFails
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.scoring.repeated_judgements import SecondOpinion

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
    """Numbers of one agent's rollouts: checked, with a second opinion, and with one that contradicts the reward.

    difference: the sum of |first - second| over those with a second opinion, of several rewards the largest.
    """

    checked: int = 0
    decided: int = 0
    disagreed: int = 0
    difference: float = 0.0


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
        """Whether the learner uses each source."""
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
                reason = f"the audit contradicts the rewards of {name}: {counts}"
                message = f"{reason}; no other agent learns from its rollouts until that ends"
                changes.append(TrustChange("warning", message))
            else:
                message = f"the audit agrees on the rewards of {name} again: {counts}"
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
    """Compares rewards with second opinions, whose processes start with the first question."""

    def __init__(self, spec: RunSpec, judges: Judges | None = None) -> None:
        """judges: of the attempt. Errors: FunctionFileError, JudgeFileError."""
        self.spec, judges = spec, judges or Judges()
        self.share = spec.sharing.audit_share if spec.sharing else 0.0
        self.findings: list[str] = []  # of the last check: what judged one response in two ways, each of them once
        self._known: set[str] = set()  # such findings of this attempt
        by_settings: dict[str, SecondOpinion | None] = {}
        # By training set; of the run's own also without a name.
        self.second_verifiers: dict[str, SecondOpinion | None] = {}
        for data in spec.training_data:
            key = repr(verifier_settings(data))
            if key not in by_settings:
                by_settings[key] = open_second_opinion(data, spec.rewards, judges)
            self.second_verifiers.setdefault("", by_settings[key])
            self.second_verifiers[data.benchmark] = by_settings[key]
        self.term_opinions = open_term_opinions(spec.rewards, judges)

    def check(
        self, step: int, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], scores: Scores
    ) -> list[AuditTally]:
        """Check a share of a step's rewards; the numbers by agent.

        Rollouts without a reward are not checked, nor those whose reward an environment gave: it judges more than the
        last turn.
        Error: VerifierFails if a second opinion cannot be had.
        """
        self.findings = []
        try:
            return [
                self._tally(agent, self._drawn(agent, step, questions, group, scores), scores)
                for agent, group in enumerate(generated)
            ]
        except VerifierError as error:
            raise VerifierFails(f"the reward audit fails: {error}") from error

    def _drawn(
        self, agent: int, step: int, questions: Sequence[Question], rollouts: GeneratedRollouts, scores: Scores
    ) -> list[_Drawn]:
        has_environment, spec = self.spec.rollout.environment != "none", self.spec.agents[agent]
        drawn = []
        for prompt, (question, group) in enumerate(zip(questions, rollouts.responses, strict=True)):
            for number, response in enumerate(group):
                key = derived_key("audit", self.spec.seed, spec.stable_seed, step, question.id, number)
                is_paid = has_environment and response.reward is not None
                if key < self.share * 2**64 and not is_paid and scores.valid[agent, prompt, number]:
                    drawn.append(_Drawn(prompt, number, question, response))
        return drawn

    def _tally(self, agent: int, drawn: Sequence[_Drawn], scores: Scores) -> AuditTally:
        """Error: VerifierError."""
        differences: dict[int, float] = {}  # by place in `drawn`, of those with a second opinion
        contradicted: set[int] = set()
        by_opinion: dict[tuple[SecondOpinion, str], list[int]] = {}
        for place, one in enumerate(drawn):
            benchmark = one.question.benchmark
            of_set = self.second_verifiers[benchmark if benchmark in self.second_verifiers else ""]
            for name, opinion in {VERIFIER: of_set, **self.term_opinions}.items():
                if opinion is not None:
                    by_opinion.setdefault((opinion, name), []).append(place)
        for (opinion, name), places in by_opinion.items():
            rewards = scores.of_verifier if name == VERIFIER else scores.parts[name]
            cases = [case_of(drawn[place].response.text, drawn[place].question) for place in places]
            for place, second in zip(places, opinion.ask(cases), strict=True):
                if second is None:
                    continue
                first = rewards[agent, drawn[place].prompt, drawn[place].number].item()
                differences[place] = max(differences.get(place, 0.0), abs(first - second))
                if abs(first - second) > opinion.tolerance:
                    contradicted.add(place)
                    self._note(opinion, drawn[place].question, first, second)
        return AuditTally(len(drawn), len(differences), len(contradicted), math.fsum(differences.values()))

    def _note(self, opinion: SecondOpinion, question: Question, first: float, second: float) -> None:
        """The first time that one judges a response in two ways."""
        if opinion.subject not in self._known:
            self._known.add(opinion.subject)
            self.findings.append(
                f"{opinion.subject} gave a response to question {question.id!r} the reward {first:.3g} at first and "
                f"{second:.3g} when it was repeated: its rewards depend on more than the response"
            )

    def close(self) -> None:
        """End the processes of second opinions; judges are the attempt's."""
        opinions = (*self.second_verifiers.values(), *self.term_opinions.values())
        for opinion in {one for one in opinions if one is not None}:  # sets may share one
            opinion.close()


@dataclass(frozen=True)
class _Drawn:
    """A rollout to check: its place in the step, its question and its text."""

    prompt: int
    number: int
    question: Question
    response: Response
