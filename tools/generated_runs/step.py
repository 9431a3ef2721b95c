"""What follows from a generated step's answers by the trainer's formulas: advantages, mini-batches, clips, weights.

The formulas are those of docs/metrics.md (HACPO, and GSPO where nothing is shared), in plain Python; tests compare
them with the trainer's own. Only rewards, texts and log ratios are made up (generated_world.py).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tools.generated_runs.world import Answer, Question, World
from workers.contract.contribution_weight import clip_lower_bound
from workers.contract.spec.run import RunSpec

CAPABILITY_FLOOR = 1e-8
EPSILON = 1e-6  # beside the standard deviation, Eq. (6)
OWN_DRIFT = 3.5e-4  # of log s of own rollouts once the weights have moved: about as wide as their clip


@dataclass(slots=True)
class Visit:
    """One rollout in one learner's mini-batch, and what it did there; ratios are None where it was not evaluated."""

    source: int
    prompt: int
    sample: int
    mini_batch: int
    advantage: float
    omega: float
    num_tokens: int = 0
    ratio: float | None = None
    clipped: float | None = None
    side: int = 0  # -1 below, 0 inside, 1 above the band
    flows: bool = False
    weight: float = 0.0
    objective: float = 0.0
    drop_reason: str | None = None


@dataclass(frozen=True)
class Judged:
    """How one learner sees a step: advantages[source][prompt][sample], and by prompt its baseline and the guard."""

    advantages: list[list[list[float]]]
    baselines: list[float]
    guarded: list[bool]


@dataclass(frozen=True)
class StepFacts:
    """All of one step. answers[agent][prompt][sample]; judged and visits by learner; ratio[a][b] = omega(a, b)."""

    step: int
    questions: list[Question]
    answers: list[list[list[Answer]]]
    capability: list[float]
    ratio: list[list[float]]
    clamped: list[list[bool]]
    judged: list[Judged]
    visits: list[list[Visit]]


class Stepper:
    """Makes a run's steps, one after the other."""

    def __init__(self, spec: RunSpec, world: World) -> None:
        self.spec, self.rule, self.world = spec, spec.rule, world
        self.shares = spec.algorithm.shares_rollouts and len(spec.agents) > 1
        # A rule has every number.
        self.own_band = 1 - (self.rule.epsilon or 0.0), 1 + (self.rule.epsilon_high or 0.0)
        self._history: list[deque[float]] = [deque(maxlen=self.rule.capability_window) for _ in spec.agents]

    def make(self, step: int) -> StepFacts:
        """Step 1, 2, ...: answers, advantages, updates; afterwards the agents have learnt."""
        world, agents = self.world, range(len(self.spec.agents))
        questions = world.batch()
        each = range(self.spec.num_generations)
        answers = [[[world.answer(agent, question) for _ in each] for question in questions] for agent in agents]
        capability = self._capability(answers)
        ratio, clamped = self._ratios(capability)
        judged = [self._judge(answers, ratio, learner) for learner in agents]
        visits = [self._visits(answers, judged[learner], ratio, learner) for learner in agents]
        for learner in agents:
            world.learn(learner, [_used_share(visits[learner], source) for source in agents])
        return StepFacts(step, questions, answers, capability, ratio, clamped, judged, visits)

    def _capability(self, answers: list[list[list[Answer]]]) -> list[float]:
        """P, Eq. (9), this step included."""
        for history, own in zip(self._history, answers, strict=True):
            rewards = [answer.reward for group in own for answer in group if answer.reward is not None]
            if rewards:
                history.append(fmean(max(reward, 0.0) for reward in rewards))
        return [max(fmean(history) if history else 0.0, CAPABILITY_FLOOR) for history in self._history]

    def _ratios(self, capability: list[float]) -> tuple[list[list[float]], list[list[bool]]]:
        """Omega, Eq. (8), and where its clip changed it or both capabilities are at the floor."""
        low, high = self.rule.ratio_min, self.rule.ratio_max
        raw = [[mine / other for other in capability] for mine in capability]
        ratio = [[min(max(value, low), high) for value in row] for row in raw]
        floored = [value <= CAPABILITY_FLOOR for value in capability]
        clamped = [
            [not low <= value <= high or (a != b and floored[a] and floored[b]) for b, value in enumerate(row)]
            for a, row in enumerate(raw)
        ]
        return ratio, clamped

    def _judge(self, answers: list[list[list[Answer]]], ratio: list[list[float]], learner: int) -> Judged:
        sources = list(range(len(answers))) if self.shares else [learner]
        advantages: list[list[list[float]]] = [[] for _ in answers]
        baselines, guarded = [], []
        for prompt in range(len(answers[0])):
            groups = {source: [a.reward for a in answers[source][prompt]] for source in sources}
            baseline, is_guarded, scale = _baseline(groups, ratio[learner], learner)
            baselines.append(baseline)
            guarded.append(is_guarded)
            for source, rewards in groups.items():
                advantages[source].append([0.0 if r is None else (r - baseline) / scale for r in rewards])
        return Judged(advantages, baselines, guarded)

    def _visits(
        self, answers: list[list[list[Answer]]], judged: Judged, ratio: list[list[float]], learner: int
    ) -> list[Visit]:
        """[self block, cross block] in mini-batches m = 0, 1, ...; unscorable rollouts keep their place, empty."""
        places = [(p, s) for p in range(len(answers[0])) for s in range(len(answers[0][0]))]
        blocks = [(learner, *place) for place in places]
        if self.shares:
            cross = [(source, *place) for source in range(len(answers)) if source != learner for place in places]
            if len(answers) > 2:
                self.world.chance.shuffle(cross)
            blocks += cross
        size = self.spec.mini_batch_prompts * self.spec.num_generations
        found = []
        for number, (source, prompt, sample) in enumerate(blocks):
            answer = answers[source][prompt][sample]
            if answer.reward is None:
                continue
            omega = 1.0 if source == learner else ratio[source][learner]
            advantage = judged.advantages[source][prompt][sample]
            visit = Visit(source, prompt, sample, number // size, advantage, omega)
            if source == learner:
                self._own(visit, answer)
            else:
                self._shared(visit, answer, learner)
            found.append(visit)
        return found

    def _own(self, visit: Visit, answer: Answer) -> None:
        """min(s A, clip(s) A), Eq. (47). With a KL penalty also rollouts of advantage 0 are evaluated."""
        rule, advantage = self.rule, visit.advantage
        visit.num_tokens = answer.num_tokens
        if advantage == 0 and not rule.beta:
            return
        # At m = 0 the weights are those that sampled.
        ratio = 1.0 if visit.mini_batch == 0 else math.exp(self.world.chance.gauss(0, OWN_DRIFT))
        low, high = self.own_band
        clipped = min(max(ratio, low), high)
        visit.ratio, visit.clipped = ratio, clipped
        visit.side = (ratio > high) - (ratio < low)
        is_minimum = ratio * advantage <= clipped * advantage
        visit.objective = (ratio if is_minimum else clipped) * advantage
        visit.flows = is_minimum and advantage != 0
        visit.weight = visit.objective if visit.flows else 0.0

    def _shared(self, visit: Visit, answer: Answer, learner: int) -> None:
        """c^(1 + alpha) omega A cross_weight inside [1 - delta + m delta_step, 1], Eqs. (10) to (14)."""
        rule, world = self.rule, self.world
        num_tokens = world.num_tokens(learner, answer.text) + (not answer.is_cut)
        if num_tokens > self.spec.rollout.max_completion_length:
            visit.drop_reason = "overflow"
            return
        visit.num_tokens = num_tokens
        if visit.advantage == 0:
            return
        visit.ratio = math.exp(world.log_ratio(learner, visit.source))
        low = clip_lower_bound(visit.mini_batch, rule)
        visit.clipped = min(max(visit.ratio, low), 1.0)
        visit.side = (visit.ratio > 1.0) - (visit.ratio < low)
        visit.objective = visit.clipped ** (1 + rule.alpha) * visit.omega * visit.advantage * rule.cross_weight
        visit.flows = visit.side == 0 and visit.objective != 0
        visit.weight = visit.objective if visit.flows else 0.0


def _baseline(groups: dict[int, list[float | None]], omega: Sequence[float], learner: int) -> tuple[float, bool, float]:
    """mu of one prompt, Eq. (7), whether the guard replaced it, and what its advantages are divided by, Eq. (6).

    groups: rewards by source.  omega: (n,), omega(learner, source).
    """
    rewards = [reward for group in groups.values() for reward in group if reward is not None]
    if not rewards:
        return 0.0, False, EPSILON
    if min(rewards) == max(rewards):
        return rewards[0], False, EPSILON
    mean = sum(rewards) / len(rewards)
    # Of one agent alone the weighted mean is the plain one: omega(k, k) = 1.
    total = sum(omega[source] * reward for source, group in groups.items() for reward in group if reward)
    value, is_guarded = total / len(rewards), False
    if value > 1.0:
        own = [reward for reward in groups[learner] if reward is not None]
        value, is_guarded = fmean(own) if own else mean, True
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return value, is_guarded, deviation + EPSILON


def _used_share(visits: Sequence[Visit], source: int) -> float:
    flows = [visit.flows for visit in visits if visit.source == source]
    return sum(flows) / len(flows) if flows else 0.0
