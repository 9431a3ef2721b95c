"""The events of a generated step, added up from its very rows as docs/metrics.md says: ratios as (sum, count)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from tools.generated_runs.step import StepFacts, Visit
from workers.contract.spec.run import RunSpec

Record = dict[str, Any]
SIDES = {-1: "lower", 0: "none", 1: "upper"}
SIGNS = {"": 0, "/positive": 1, "/negative": -1}


class StepEvents:
    """Turns the steps of one run into records, in the trainer's order. `chance` makes what has no rows behind it."""

    def __init__(self, spec: RunSpec, chance: random.Random) -> None:
        self.spec, self.chance = spec, chance
        self.names = [agent.name for agent in spec.agents]
        self.shares = spec.algorithm.shares_rollouts and len(self.names) > 1

    def of(self, facts: StepFacts, *, with_rollouts: bool) -> Iterator[Record]:
        agents = range(len(self.names))
        for learner in agents:
            yield self.agent_metrics(facts, learner)
            for source in agents if self.shares else ():
                if source != learner:
                    yield self.pair_metrics(facts, learner, source)
        if with_rollouts:
            for agent in agents:
                yield from self.rollouts(facts, agent)
            for learner in agents:
                yield from self.contributions(facts, learner)

    def agent_metrics(self, facts: StepFacts, agent: int) -> Record:
        visits, judged, rule = facts.visits[agent], facts.judged[agent], self.spec.rule
        answers = [answer for group in facts.answers[agent] for answer in group]
        rewards = [answer.reward for answer in answers if answer.reward is not None]
        heard = range(len(self.names)) if self.shares else (agent,)
        advantages = [
            advantage
            for source in heard
            for group, given in zip(judged.advantages[source], facts.answers[source], strict=True)
            for advantage, answer in zip(group, given, strict=True)
            if answer.reward is not None
        ]
        own = [visit for visit in visits if visit.source == agent]
        clipped = [visit for visit in own if visit.advantage != 0]
        done = facts.step / self.spec.training.steps
        kl = abs(self.chance.gauss(0.03, 0.004)) * done if own and rule.beta else None
        first = [visit for visit in own if visit.mini_batch == 0]
        differences = [abs(self.chance.gauss(0, 1e-7)) for _ in first]
        num_prompts = len(facts.questions)
        values = {
            "capability": facts.capability[agent],
            "advantage/mean": fmean(advantages) if advantages else None,
            "advantage/std": _std(advantages),
            "baseline/mean": fmean(judged.baselines),
            "entropy": 0.9 - 0.55 * done + self.chance.gauss(0, 0.02),
            "kl": kl,
            "grad_norm": abs(self.chance.gauss(0.8 - 0.4 * done, 0.1)),
            "loss": self._loss(visits, kl or 0.0),
            "learning_rate": self.spec.training.learning_rate,
            "sampling_logp_difference/mean": fmean(differences) if differences else None,
            "sampling_logp_difference/max": max(differences) if differences else None,
            "completions/mean_length": fmean(answer.num_tokens for answer in answers),
            "verifier/unscorable": float(len(answers) - len(rewards)),
            "verifier/timeout": 0.0,
            "skipped_updates": 0.0,
        }
        ratios = {
            "reward/mean": (sum(rewards), float(len(rewards))),
            "frac_reward_zero_std": (_uniform(facts, [agent]), float(num_prompts)),
            "frac_reward_zero_std_joint": (_uniform(facts, range(len(self.names))), float(num_prompts)),
            "guard_frac": (float(sum(judged.guarded)), float(num_prompts)),
            "completions/clipped_ratio": (float(sum(a.is_cut for a in answers)), float(len(answers))),
            "clip_ratio/low_mean": _share([v.side < 0 and not v.flows for v in clipped]),
            "clip_ratio/high_mean": _share([v.side > 0 and not v.flows for v in clipped]),
        }
        return self._metrics(facts, agent, "", values, ratios)

    def _loss(self, visits: Sequence[Visit], kl: float) -> float:
        """Mean over the step's updates; the KL term is told for the step as a whole, so each own update gets it."""
        rows = self.spec.mini_batch_prompts * self.spec.num_generations  # planned, whatever is missing
        own_updates = self.spec.updates_per_block
        count = own_updates * (len(self.names) if self.shares else 1)
        return (-sum(visit.objective for visit in visits) / rows + self.spec.rule.beta * kl * own_updates) / count

    def pair_metrics(self, facts: StepFacts, learner: int, source: int) -> Record:
        visits = [visit for visit in facts.visits[learner] if visit.source == source]
        seen = [(visit, visit.ratio) for visit in visits if visit.ratio is not None]
        ratio = sorted(value for _, value in seen)
        kept = [visit for visit in visits if visit.drop_reason is None]
        answers = facts.answers[source]
        values = {
            "omega": facts.ratio[source][learner],
            "omega_clamped": float(facts.clamped[source][learner]),
            "sequence_ratio/mean": fmean(ratio) if ratio else None,
            "sequence_ratio/std": _std(ratio),
            "effective_weight": _mean([visit.weight / visit.advantage for visit, _ in seen]),
            "retok_len_ratio": _mean([v.num_tokens / answers[v.prompt][v.sample].num_tokens for v in kept]),
            "dropped": float(len(visits) - len(kept)),
            **{f"sequence_ratio/p{percent}": percentile(ratio, percent) for percent in (10, 50, 90)},
        }
        interval = self.spec.telemetry.alignment_interval
        if interval and facts.step % interval == 0:
            used = sum(visit.flows for visit in visits) / max(1, len(visits))
            values["gradient_alignment"] = max(-1.0, min(1.0, self.chance.gauss(0.35 * used, 0.08)))
        ratios = {
            "used_frac": _share([visit.flows for visit in visits]),
            "rescue_frac": (_rescued(facts, learner, source), float(len(facts.questions))),
        }
        for suffix, sign in SIGNS.items():
            sides = [visit.side for visit, _ in seen if not sign or visit.advantage * sign > 0]
            ratios[f"clip_lower_frac{suffix}"] = _share([side < 0 for side in sides])
            ratios[f"clip_upper_frac{suffix}"] = _share([side > 0 for side in sides])
        return self._metrics(facts, learner, self.names[source], values, ratios)

    def _metrics(self, facts: StepFacts, agent: int, source: str, values: Record, ratios: Record) -> Record:
        place = {"type": "metrics", "step": facts.step, "agent": self.names[agent], "source": source}
        return place | {"values": values, "ratios": ratios}

    def rollouts(self, facts: StepFacts, agent: int) -> Iterator[Record]:
        for question, group in zip(facts.questions, facts.answers[agent], strict=True):
            for sample, answer in enumerate(group):
                yield {
                    "type": "rollout",
                    "step": facts.step,
                    "agent": self.names[agent],
                    "prompt_id": question.id,
                    "sample": sample,
                    "prompt": question.text,
                    "completion": answer.text,
                    "answer": str(question.answer),
                    "reward": answer.reward,
                    "finish_reason": "length" if answer.is_cut else "stop",
                    "num_tokens": answer.num_tokens,
                    "mean_logp": answer.mean_logp,
                }

    def contributions(self, facts: StepFacts, learner: int) -> Iterator[Record]:
        alpha = self.spec.rule.alpha if self.spec.algorithm.name == "hacpo" else None
        for visit in facts.visits[learner]:
            answer = facts.answers[visit.source][visit.prompt][visit.sample]
            yield {
                "type": "contribution",
                "step": facts.step,
                "agent": self.names[learner],
                "source": self.names[visit.source],
                "prompt_id": facts.questions[visit.prompt].id,
                "sample": visit.sample,
                "num_tokens": visit.num_tokens,
                "advantage": visit.advantage,
                "sequence_ratio": visit.ratio,
                "clipped_ratio": visit.clipped,
                "clip_side": SIDES[visit.side],
                "omega": visit.omega,
                "weight": visit.weight,
                "mini_batch": visit.mini_batch,
                "drop_reason": visit.drop_reason,
                "reward": answer.reward,
                "source_num_tokens": answer.num_tokens,
                "alpha": None if visit.source == learner else alpha,
                "capability": facts.capability[learner],
                "source_capability": facts.capability[visit.source],
            }


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Of sorted numbers, with linear interpolation between two of them."""
    if not ordered:
        return None
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _share(holds: Sequence[bool]) -> tuple[float, float]:
    return float(sum(holds)), float(len(holds))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _std(values: Sequence[float]) -> float | None:
    """With ddof 1; statistics.stdev is exact, and thirty times slower."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _uniform(facts: StepFacts, agents: Sequence[int]) -> float:
    """Prompts whose scored rollouts of these agents all have one reward, or which have none."""
    found = 0
    for prompt in range(len(facts.questions)):
        rewards = {answer.reward for agent in agents for answer in facts.answers[agent][prompt]} - {None}
        found += len(rewards) <= 1
    return float(found)


def _rescued(facts: StepFacts, learner: int, source: int) -> float:
    """Prompts where the learner's own scored rollouts are all wrong, and at least one of the source's is right."""
    found = 0
    for mine, others in zip(facts.answers[learner], facts.answers[source], strict=True):
        own = {answer.reward for answer in mine} - {None}
        found += own == {0.0} and any(answer.reward for answer in others)
    return float(found)
