"""What is made up of a generated run: questions, how well agents answer them, how far apart their policies are.

No training, no model: a handful of curves and a seeded chance. Everything that follows from rewards and ratios by a
formula is computed in generated_step.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from workers.contract.spec.run import RunSpec

NUM_QUESTIONS = 400
HELD_OUT = 50  # questions of each subject
SUBJECTS = ("multiply first", "left to right", "brackets of a sum", "brackets of a difference")
STRONG, WEAK = 0.6, -2.4  # log odds of a right answer at the start
UNSCORABLE = 0.003


@dataclass(frozen=True)
class Question:
    id: str
    text: str
    answer: int
    subject: int
    difficulty: float  # taken from the log odds


@dataclass(frozen=True)
class Answer:
    """One rollout; reward is None where it could not be scored. num_tokens are the agent's own, EOS included."""

    text: str
    reward: float | None
    is_cut: bool
    num_tokens: int
    mean_logp: float


@cache
def questions() -> tuple[Question, ...]:
    """Small sums of four kinds, the subjects in turn: the same for all runs, as those of a benchmark are."""
    chance, found = random.Random("questions"), []
    for number in range(NUM_QUESTIONS):
        a, b, c = (chance.randrange(2, 30) for _ in range(3))
        subject = number % len(SUBJECTS)
        text, answer = (
            (f"{a}+{b}*{c}", a + b * c),
            (f"{a}-{b}+{c}", a - b + c),
            (f"{a}*({b}+{c})", a * (b + c)),
            (f"({a}-{b})*{c}", (a - b) * c),
        )[subject]
        found.append(Question(f"generated-{number}", f"{text}=", answer, subject, chance.gauss(0, 0.5)))
    return tuple(found)


class World:
    """The agents of one run as they answer and come closer to each other, step by step."""

    def __init__(self, spec: RunSpec, chance: random.Random) -> None:
        self.spec, self.chance = spec, chance
        self.agents = range(len(spec.agents))
        # Each agent knows every second subject, so that neighbours complement each other.
        self.log_odds = [
            [chance.gauss(STRONG if (subject + agent) % 2 == 0 else WEAK, 0.2) for subject in range(len(SUBJECTS))]
            for agent in self.agents
        ]
        self.characters_per_token = [2.4 + 0.35 * (agent % 3) for agent in self.agents]
        # How much of the way from a source's policy to the learner's is gone, 0 to 1.
        self.closeness = [[0.0 for _ in self.agents] for _ in self.agents]

    @property
    def pace(self) -> float:
        """Of a step, so that a run of any length comes equally far; gspox2 makes twice the updates."""
        return (1.3 if self.spec.algorithm.name == "gspox2" else 1.0) / self.spec.training.steps

    def chance_of(self, agent: int, subject: int, difficulty: float = 0.0) -> float:
        """Of a right answer."""
        return 1 / (1 + math.exp(difficulty - self.log_odds[agent][subject]))

    def num_tokens(self, agent: int, text: str) -> int:
        """Of a text in the agent's tokenizer, without the EOS."""
        return max(1, round(len(text) / self.characters_per_token[agent]))

    def batch(self) -> list[Question]:
        return self.chance.sample(questions(), self.spec.training.train_batch_size)

    def answer(self, agent: int, question: Question) -> Answer:
        chance = self.chance
        is_right = chance.random() < self.chance_of(agent, question.subject, question.difficulty)
        given = question.answer if is_right else question.answer + chance.choice((-10, -2, -1, 1, 2, 10))
        steps = chance.randrange(3)
        text = f"{question.text}{given}, " * steps + f"so \\boxed{{{given}}}"
        num_tokens, limit = self.num_tokens(agent, text) + 1, self.spec.rollout.max_completion_length
        is_cut = num_tokens > limit
        if is_cut:
            num_tokens, is_right = limit, False
            text = text[: int(limit * self.characters_per_token[agent])]
        is_scored = chance.random() >= UNSCORABLE
        reward = float(is_right) if is_scored else None
        return Answer(text, reward, is_cut, num_tokens, -abs(chance.gauss(0.4, 0.15)) - 0.02)

    def log_ratio(self, learner: int, source: int) -> float:
        """log s of one rollout of `source`, before any update: mostly below 0, for the text is not the learner's."""
        apart = 1 - self.closeness[learner][source]
        return self.chance.gauss(-0.05 - 0.75 * apart, 0.06 + 0.2 * apart)

    def learn(self, learner: int, used: Sequence[float]) -> None:
        """A step has ended. used: by source, the share of its rollouts that taught the learner; 0 where none did."""
        odds, pace = self.log_odds[learner], self.pace
        for subject in range(len(SUBJECTS)):
            own = self.chance_of(learner, subject)
            # Where all answers are right, or all are wrong, there is nothing to tell apart.
            odds[subject] += pace * 5.0 * own * (1 - own)
            for source in self.agents:
                if source != learner:
                    odds[subject] += pace * 7.0 * used[source] * self.chance_of(source, subject) * (1 - own)
        for source in self.agents:
            apart = 1 - self.closeness[learner][source]
            self.closeness[learner][source] += min(apart, pace * 2.5 * used[source] * apart)

    def evaluate(self, agent: int) -> dict[str, tuple[int, int]]:
        """(right, asked) of the held-out questions by subject."""
        found = {}
        for subject, name in enumerate(SUBJECTS):
            odds = self.chance_of(agent, subject)
            found[name] = (sum(self.chance.random() < odds for _ in range(HELD_OUT)), HELD_OUT)
        return found
