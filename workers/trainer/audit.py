"""Step 2 of Algorithm 1, checked: a share of every agent's rollouts is scored by a second, independent verifier.

Which rollouts is drawn by run seed, agent, step, prompt and sample, so that a resumed run repeats it and no agent can
know. The second verifier (workers.verifiers.cross_check) runs in a child process with the limits of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers import heartbeat
from workers.agents.messages import Generated
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.trainer.quarantine import Audited
from workers.trainer.scoring import Scores, VerifierFails
from workers.verifiers.children.child_client import Child, VerifierError


class Audit:
    """Compares verdicts with those of the second verifier. Its child starts with the first question."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self._child = Child("workers.verifiers.cross_check", spec.data.verifier, repr(spec.data.tolerance))

    def check(
        self, step: int, questions: Sequence[Question], generated: Sequence[Generated], scores: Scores
    ) -> list[Audited]:
        """By agent: how many rewards of a step were checked, and how many turned out otherwise.

        Rollouts without a reward are not asked about. Error: VerifierFails where the second verifier cannot run.
        """
        found = []
        for agent, spec in enumerate(self.spec.agents):
            asked, verdicts = 0, []
            for prompt, (question, group) in enumerate(zip(questions, generated[agent].responses, strict=True)):
                for number, response in enumerate(group):
                    key = derived_key("audit", self.spec.seed, spec.stable_seed, step, question.id, number)
                    is_drawn = key < self.spec.algorithm.audit_share * 2**64
                    if not is_drawn or not scores.valid[agent, prompt, number]:
                        continue
                    asked += 1
                    heartbeat.beat()
                    try:
                        second = self._child.ask(response.text, question.answer).reward
                    except VerifierError as error:
                        raise VerifierFails(f"the second verifier fails: {error}") from error
                    if second is not None:
                        verdicts.append((scores.rewards[agent, prompt, number].item(), second))
            found.append(
                Audited(asked, len(verdicts), sum((first > 0.5) != (second > 0.5) for first, second in verdicts))
            )
        return found

    def close(self) -> None:
        self._child.close()
