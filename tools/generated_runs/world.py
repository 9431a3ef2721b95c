"""The simulated part of a generated run: questions, how well agents answer them, how far apart their policies are.

A few curves and a seeded random generator in place of models. What follows from rewards and ratios is computed by the
trainer's own code (steps.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from workers.agents.messages import Response
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question

NUM_QUESTIONS = 400
SUBJECTS = ("multiply first", "left to right", "brackets of a sum", "brackets of a difference")
LEVELS = ("1 easy", "2 medium", "3 hard")
STRONG, WEAK = 0.6, -2.4  # log odds of a correct answer at the start
UNSCORABLE = 0.003


@dataclass(frozen=True)
class Exercise:
    """A question with its correct number, and how much harder than others it is, in log odds."""

    question: Question
    number: int
    subject: int
    difficulty: float

    def text(self, number: int) -> str:
        """An answer that ends with `number`."""
        return f"{self.question.question}{number}, so \\boxed{{{number}}}"


@cache
def exercises() -> tuple[Exercise, ...]:
    """Small sums of four kinds, the subjects in turn: the same for all runs, as those of a benchmark are."""
    chance, result = random.Random("questions"), []
    for index in range(NUM_QUESTIONS):
        a, b, c = (chance.randrange(2, 30) for _ in range(3))
        subject, difficulty = index % len(SUBJECTS), chance.gauss(0, 0.5)
        text, number = (
            (f"{a}+{b}*{c}=", a + b * c),
            (f"{a}-{b}+{c}=", a - b + c),
            (f"{a}*({b}+{c})=", a * (b + c)),
            (f"({a}-{b})*{c}=", (a - b) * c),
        )[subject]
        level = LEVELS[(difficulty > -0.3) + (difficulty > 0.3)]
        question = Question(f"generated-{index}", text, str(number), SUBJECTS[subject], level)
        result.append(Exercise(question, number, subject, difficulty))
    return tuple(result)


class World:
    """The agents of one run: what each knows, and how close their policies have come."""

    def __init__(self, spec: RunSpec, chance: random.Random) -> None:
        self.spec, self.chance = spec, chance
        self.agents = range(len(spec.agents))
        # Each agent knows every second subject, so that neighbours complement each other.
        self.log_odds = [
            [chance.gauss(STRONG if (subject + agent) % 2 == 0 else WEAK, 0.2) for subject in range(len(SUBJECTS))]
            for agent in self.agents
        ]
        self.characters_per_token = [2.4 + 0.35 * (agent % 3) for agent in self.agents]
        # [learner][source]: share of the way from the source's policy to the learner's that is covered, 0 to 1
        self.closeness = [[0.0 for _ in self.agents] for _ in self.agents]
        # Learning per step, so that a run of any length comes equally far; gspox2 makes twice the updates.
        self.pace = (1.3 if spec.algorithm.name == "gspox2" else 1.0) / spec.training.steps

    def probability(self, agent: int, subject: int, difficulty: float = 0.0) -> float:
        """The probability of a correct answer."""
        return 1 / (1 + math.exp(difficulty - self.log_odds[agent][subject]))

    def num_tokens(self, agent: int, text: str) -> int:
        """Length of a text in the agent's tokenizer, without the EOS."""
        return max(1, round(len(text) / self.characters_per_token[agent]))

    def answer(self, agent: int, exercise: Exercise) -> tuple[Response, float | None]:
        """A rollout and its reward, None where it is unscorable."""
        chance, limit = self.chance, self.spec.rollout.max_completion_length
        is_correct = chance.random() < self.probability(agent, exercise.subject, exercise.difficulty)
        number = exercise.number + (0 if is_correct else chance.choice((-10, -2, -1, 1, 2, 10)))
        text = f"{exercise.question.question}{number}, " * chance.randrange(3) + f"so \\boxed{{{number}}}"
        num_tokens = self.num_tokens(agent, text) + 1
        is_cut = num_tokens > limit
        if is_cut:
            num_tokens, text = limit, text[: int(limit * self.characters_per_token[agent])]
        reward = float(is_correct and not is_cut) if chance.random() >= UNSCORABLE else None
        mean_logp = -abs(chance.gauss(0.4, 0.15)) - 0.02
        return Response(text, text, "length" if is_cut else "stop", num_tokens, num_tokens, mean_logp), reward

    def log_ratio(self, learner: int, source: int) -> float:
        """log s of one rollout of `source`: mostly below 0, as the text is not the learner's own."""
        apart = 1 - self.closeness[learner][source]
        return self.chance.gauss(-0.05 - 0.75 * apart, 0.06 + 0.2 * apart)

    def learn(self, learner: int, used: Sequence[float]) -> None:
        """End a step. used: by source, the share of its rollouts whose gradient reached the learner."""
        for subject in range(len(SUBJECTS)):
            own = self.probability(learner, subject)
            peers = sum(
                7.0 * used[source] * self.probability(source, subject) for source in self.agents if source != learner
            )
            # Where all answers are correct, or none, there is no advantage.
            self.log_odds[learner][subject] += self.pace * (5.0 * own + peers) * (1 - own)
        for source in self.agents:
            apart = 1 - self.closeness[learner][source]
            self.closeness[learner][source] += min(apart, self.pace * 2.5 * used[source] * apart)
