"""Peers that no agent should learn from: one with inverted verdicts, and one that emits noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.support.workers.tiny import HashVerifier, records
from workers.agents.local import LocalAgent
from workers.agents.messages import GeneratedRollouts, Response
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import Question
from workers.trainer.scoring import Scorer, Scores
from workers.trainer.step_hooks import Audit
from workers.trainer.stop_signals import StopFlag
from workers.trainer.trainer import Trainer
from workers.verifiers.functions.function_verifier import Case
from workers.verifiers.scoring.verdicts import Verdict


class InvertedVerdicts(Scorer):
    """Inverts the verdicts on one agent's rollouts of a step; evaluations stay correct."""

    def __init__(self, *arguments: Any, liar: int) -> None:
        super().__init__(*arguments)
        self.liar = liar

    def score_step(
        self, questions: Sequence[Question], generated: Sequence[GeneratedRollouts], per_prompt: int
    ) -> Scores:
        scores = super().score_step(questions, generated, per_prompt)
        own, valid = scores.rewards[self.liar], scores.valid[self.liar]
        scores.rewards[self.liar] = torch.where(valid, 1 - own, own)
        return scores


class StartVerifier(HashVerifier):
    """A response is correct if it starts with one of four letters: learnt from scratch in seconds."""

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        return [Verdict(float(completion[:1] in ("0", "1", "2", "3")), "start") for completion in completions]


class Again:
    """The same judgement again, by the verifier whose verdicts on the liar are inverted."""

    tolerance, subject = 1e-4, "the verifier"

    def __init__(self, verifier: Any) -> None:
        self.verifier = verifier

    def ask(self, cases: Sequence[Case]) -> list[float | None]:
        verdicts = self.verifier.score([one.response for one in cases], [one.answer for one in cases])
        return [verdict.reward for verdict in verdicts]

    def close(self) -> None: ...


def emit_noise(monkeypatch, name: str, letters: str, longest: int) -> None:
    """Make the agent of this name send random text, with the log-probability of random letters."""
    generate = LocalAgent.generate

    def noisy(self: LocalAgent, step: int, questions: Sequence[Question]) -> GeneratedRollouts:
        found = generate(self, step, questions)
        if self.name != name:
            return found
        letter = random.Random(step)

        def noise(response: Response) -> Response:
            length = letter.randint(1, longest)
            text = "".join(letter.choice(letters) for _ in range(length))
            return replace(
                response,
                text=text,
                shared_text=text,
                num_tokens=length,
                length=length,
                mean_logp=-torch.tensor(float(len(letters))).log().item(),
            )

        return replace(found, responses=[[noise(response) for response in group] for group in found.responses])

    monkeypatch.setattr(LocalAgent, "generate", noisy)


def train_with_liar(spec: RunSpec, run_dir: Path, liar: int | None, verifier: Any, attempt: int = 1) -> Trainer:
    """Train in this process; the verdicts on agent `liar` are inverted, not those of the audit."""
    run_dir.mkdir(exist_ok=True)
    spool = SpoolWriter(run_dir, attempt)
    trainer = Trainer(spec, run_dir, spool, verifier, StopFlag())
    if liar is not None:
        plain = trainer.evaluations.scorer
        trainer.evaluations.scorer = InvertedVerdicts(
            plain.verifier, plain.stop, plain.warn, plain.max_unscorable, liar=liar
        )
    for hook in trainer.hooks:
        if isinstance(hook, Audit):
            assert hook.audit.second_verifiers == {"": None, spec.data.benchmark: None}  # a rule
            hook.audit.second_verifiers = {"": Again(verifier)}
    try:
        trainer.train()
    finally:
        spool.close()
    return trainer


def last_rewards(run_dir: Path, agent: str, steps: int) -> float:
    """The agent's mean reward over the last steps: what it has learnt, sampled."""
    found = [r["ratios"]["reward/mean"] for r in records(run_dir, "metrics") if r["agent"] == agent and not r["source"]]
    return sum(total for total, _ in found[-steps:]) / sum(count for _, count in found[-steps:])
