"""The events of a step: metrics, rollouts, contributions.

docs/metrics.md has the formula of every number. Ratios stay (sum, count) and are divided after all reductions.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

import numpy as np

from workers.agents.messages import GeneratedRollouts, LearnerRow, Response, RowResult, UpdateReport
from workers.algorithms.base import tensors
from workers.algorithms.base.capability import CapabilityTracker
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract import events
from workers.questions.dataset import Question
from workers.trainer.prompt_sampling import SampledStep
from workers.trainer.scoring import Scores
from workers.trainer.step import StepPlan
from workers.trainer.trust import AuditTally, Trust

CLIP_SIDES: dict[int, Literal["lower", "none", "upper"]] = {-1: "lower", 0: "none", 1: "upper"}


@dataclass(frozen=True)
class StepRecord:
    """What one step recorded. step: 1, 2, ..."""

    step: int
    names: Sequence[str]  # of the agents
    algorithm: AlgorithmSpec
    questions: Sequence[Question]
    generated: Sequence[GeneratedRollouts]
    scores: Scores
    tracker: CapabilityTracker
    plan: StepPlan
    reports: Sequence[UpdateReport]
    trust: Trust | None = None
    audit_tallies: Sequence[AuditTally] = ()  # by agent
    importance_cap: float = inf  # the highest importance weight
    sampled: SampledStep | None = None  # with dynamic sampling: also what was sampled and not trained

    @property
    def everything(self) -> StepRecord | SampledStep:
        """The rollouts of the step and their scores, trained or not."""
        return self.sampled or self


def step_events(record: StepRecord, *, with_rollouts: bool) -> list[events.Body]:
    """Metrics of each agent and learner-source pair, then single rollouts and their contributions."""
    records: list[events.Body] = []
    for learner in range(len(record.names)):
        records.append(agent_metrics(record, learner))
        if record.algorithm.shares_rollouts:
            records += [
                pair_metrics(record, learner, source) for source in range(len(record.names)) if source != learner
            ]
    if with_rollouts:
        records += rollout_events(record)
        records += contribution_events(record)
    return records


def agent_metrics(record: StepRecord, agent: int) -> events.Metrics:
    """One agent's numbers of a step."""
    report = record.reports[agent]
    generated, scores = record.everything.generated[agent], record.everything.scores
    responses = [response for group in generated.responses for response in group]
    scored = scores.valid[agent]  # (B, G), with the further prompts of dynamic sampling
    objective = record.plan.objective
    in_baseline = objective.in_baseline[agent]  # (n, B, G)
    advantages = objective.advantages[agent][in_baseline]  # (rows,)
    baselines = objective.baselines[agent][in_baseline.any(dim=2).any(dim=0)]  # (prompts,)
    differences = report.sampling_logp_differences
    # With a KL penalty rows of advantage 0 are evaluated too, but the clip does not act on them.
    own = [
        result
        for _, row, result in _visits(record, agent)
        if row.is_self and row.advantage != 0 and result.sequence_ratio is not None
    ]
    entropy_sum, entropy_count = generated.entropy
    values: dict[str, float | None] = {
        "capability": record.tracker.capability[agent].item(),
        "advantage/mean": advantages.mean().item() if len(advantages) else None,
        "advantage/std": advantages.std().item() if len(advantages) > 1 else None,
        "baseline/mean": baselines.mean().item() if len(baselines) else None,
        "entropy": entropy_sum / entropy_count if entropy_count else None,
        "kl": report.kl[0] / report.kl[1] if report.kl[1] else None,
        "grad_norm": _average(report.grad_norms),
        "loss": _average(report.losses),
        "learning_rate": report.learning_rate,
        "sampling_logp_difference/mean": _average(differences),
        "sampling_logp_difference/max": max(differences) if differences else None,
        "completions/mean_length": _average([float(response.num_tokens) for response in responses]),
        "verifier/unscorable": float((~scored).sum()),
        "verifier/timeout": float(scores.timeouts[agent]),
        "skipped_updates": float(report.skipped_updates),
    }
    for cause in events.TEXT_DIFFERENCES:
        values[f"text_difference/{cause}"] = float(sum(response.difference == cause for response in responses))
    ratios = {
        "reward/mean": (scores.rewards[agent][scored].double().sum().item(), float(scored.sum())),
        "frac_reward_zero_std": _share(_uniform(record, [agent])),
        "frac_reward_zero_std_joint": _share(_uniform(record, range(len(record.names)))),
        "guard_frac": _share(objective.guarded[agent].tolist()),
        "completions/clipped_ratio": _share([response.finish_reason == "length" for response in responses]),
        "clip_ratio/low_mean": (sum(result.clipped_low for result in own), float(len(own))),
        "clip_ratio/high_mean": (sum(result.clipped_high for result in own), float(len(own))),
    }
    for name, values_of_part in scores.parts.items():
        numbers = values_of_part[agent][scored & ~values_of_part[agent].isnan()].double()  # (rows,)
        ratios[f"rewards/{name}/mean"] = (numbers.sum().item(), float(len(numbers)))
    for name, tallies in scores.judges.items():
        tally_of_judge = tallies[agent]
        values[f"judge/{name}/unscorable"] = float(tally_of_judge.unscorable)
        values[f"judge/{name}/cost"] = tally_of_judge.cost
        values[f"judge/{name}/spent"] = scores.spent.get(name)
        ratios[f"judge/{name}/time_s"] = (tally_of_judge.seconds, float(tally_of_judge.num_asked))
        ratios[f"judge/{name}/cached"] = (
            float(tally_of_judge.cached),
            float(tally_of_judge.cached + tally_of_judge.num_asked),
        )
    if record.algorithm.overlong_cache:
        penalties = record.plan.penalties[agent][record.scores.valid[agent]]  # (rows,)
        ratios["overlong_penalty/mean"] = (penalties.double().sum().item(), float(len(penalties)))
    if (sampled := record.sampled) is not None:
        values["resampling/extra_prompts"] = float(sampled.num_extra)
        values["resampling/replaced_prompts"] = float(sampled.num_replaced)
        ratios["resampling/no_signal_frac"] = (float(sampled.num_uninformative), float(len(sampled.trained_places)))
    ratios |= _set_ratios(record, agent)
    if any(response.turns for response in responses):
        ratios |= _turn_ratios(responses)
    if report.engine_logp_difference is not None:
        values["engine_logp_difference"] = report.engine_logp_difference
        values["engine_logp_difference/max"] = report.largest_logp_difference
    if (staleness := record.generated[agent].staleness) is not None:
        values["staleness"] = float(staleness)
    if weights := report.importance_weights:
        values |= {"importance_weight/mean": _average(weights), "importance_weight/max": max(weights)}
        ratios["importance_weight/capped_frac"] = _share([weight >= record.importance_cap for weight in weights])
    if record.audit_tallies:
        tally = record.audit_tallies[agent]
        ratios["audit/disagreement"] = (float(tally.disagreed), float(tally.decided))
        ratios["audit/difference"] = (tally.difference, float(tally.decided))
        ratios["audit/decided"] = (float(tally.decided), float(tally.checked))
    return events.Metrics(step=record.step, agent=record.names[agent], values=values, ratios=ratios)


def _set_ratios(record: StepRecord, agent: int) -> dict[str, tuple[float, float]]:
    """The agent's mean reward on each of several training sets, and the share of each in the sampled prompts."""
    everything, ratios = record.everything, {}
    sets = [question.benchmark for question in everything.questions]
    for name in sorted({*sets} - {""}):
        own = [place for place, of_prompt in enumerate(sets) if of_prompt == name]
        rewards = everything.scores.rewards[agent][own][everything.scores.valid[agent][own]].double()  # (rows,)
        ratios[f"sets/{name}/reward/mean"] = (rewards.sum().item(), float(len(rewards)))
        ratios[f"sets/{name}/prompts"] = (float(len(own)), float(len(sets)))
    return ratios


def _turn_ratios(responses: Sequence[Response]) -> dict[str, tuple[float, float]]:
    """Metrics of turns and tool calls, as (numerator, denominator), for rollouts with an environment."""
    count = float(len(responses))
    by_role = Counter(turn.role for response in responses for turn in response.turns)
    num_failed = sum(turn.is_failed for response in responses for turn in response.turns)
    return {
        "turns/mean": (float(by_role["assistant"]), count),
        "tool_calls/mean": (float(by_role["tool"]), count),
        "tool_calls/failed_frac": (float(num_failed), float(by_role["tool"])),
    }


def pair_metrics(record: StepRecord, learner: int, source: int) -> events.Metrics:
    """The numbers of a learner-source pair in a step, over all visits of all passes."""
    visits = [(row, result) for _, row, result in _visits(record, learner) if row.source == source]
    with_ratio = [(row, result) for row, result in visits if result.sequence_ratio is not None]
    ratio = np.array([result.sequence_ratio for _, result in with_ratio])
    omega = record.tracker.ratio()[source, learner].item()
    lengths = [
        result.num_tokens / row.response.length for row, result in visits if row.response and result.drop_reason is None
    ]
    values: dict[str, float | None] = {
        "omega": omega,
        "omega_clamped": float(record.tracker.clamped()[source, learner]),
        "sequence_ratio/mean": float(ratio.mean()) if len(ratio) else None,
        "sequence_ratio/std": float(ratio.std(ddof=1)) if len(ratio) > 1 else None,
        "effective_weight": _average([result.weight / row.advantage for row, result in with_ratio if row.advantage]),
        "retok_len_ratio": _average(lengths),
        "dropped": float(sum(result.drop_reason is not None for _, result in visits)),
    }
    for percent in (10, 50, 90):
        values[f"sequence_ratio/p{percent}"] = float(np.percentile(ratio, percent)) if len(ratio) else None
    if source in record.reports[learner].alignment:
        values["gradient_alignment"] = record.reports[learner].alignment[source]
    if record.trust is not None:
        values["quarantined"] = float(not record.plan.trusted_sources[learner][source])
        values["gradient_alignment/smoothed"] = record.trust.alignment[learner][source].mean
    valid = record.scores.valid  # (n, B, G)
    is_correct = record.scores.is_correct  # (n, B, G)
    rescued = ~is_correct[learner].any(dim=1) & valid[learner].any(dim=1) & is_correct[source].any(dim=1)  # (B,)
    ratios = {
        "used_frac": _share([result.gradient_flows for _, result in visits]),
        "rescue_frac": _share(rescued.tolist()),
    }
    for suffix, sign in {"": 0, "/positive": 1, "/negative": -1}.items():
        results = [result for row, result in with_ratio if row.advantage * sign > 0 or not sign]
        ratios[f"clip_lower_frac{suffix}"] = _share([result.clip_side < 0 for result in results])
        ratios[f"clip_upper_frac{suffix}"] = _share([result.clip_side > 0 for result in results])
    return events.Metrics(
        step=record.step, agent=record.names[learner], source=record.names[source], values=values, ratios=ratios
    )


def rollout_events(record: StepRecord) -> Iterator[events.Rollout]:
    """One event for each sampled response."""
    for agent, generated in enumerate(record.generated):
        rewards, valid = record.scores.rewards[agent].tolist(), record.scores.valid[agent].tolist()
        parts = {name: values[agent].tolist() for name, values in record.scores.parts.items()}
        for prompt, (question, group) in enumerate(zip(record.questions, generated.responses, strict=True)):
            for number, response in enumerate(group):
                yield events.Rollout(
                    step=record.step,
                    agent=record.names[agent],
                    prompt_id=question.id,
                    sample=number,
                    prompt=question.question,
                    completion=response.text,
                    answer=question.answer,
                    reward=rewards[prompt][number] if valid[prompt][number] else None,
                    finish_reason=response.finish_reason,
                    num_tokens=response.num_tokens,
                    mean_logp=response.mean_logp,
                    rewards={
                        name: value for name, values in parts.items() if isfinite(value := values[prompt][number])
                    },
                    turns=[*response.turns],
                    benchmark=question.benchmark,
                )


def contribution_events(record: StepRecord) -> Iterator[events.Contribution]:
    """One event for each learner and rollout: its first visit, if a step makes several passes."""
    rewards, capability = record.scores.rewards.tolist(), record.tracker.capability.tolist()
    alpha = getattr(record.algorithm, "alpha", None) if record.algorithm.uses("alpha") else None
    for learner, name in enumerate(record.names):
        recorded: set[tuple[int, int, int]] = set()
        for update_index, row, result in _visits(record, learner):
            place = (row.source, row.prompt, row.sample)
            if place in recorded:
                continue
            recorded.add(place)
            response = record.generated[row.source].responses[row.prompt][row.sample]
            yield events.Contribution(
                step=record.step,
                agent=name,
                source=record.names[row.source],
                prompt_id=record.questions[row.prompt].id,
                sample=row.sample,
                num_tokens=result.num_tokens,
                advantage=row.advantage,
                sequence_ratio=result.sequence_ratio,
                clipped_ratio=result.clipped_ratio,
                clip_side=CLIP_SIDES[result.clip_side],
                omega=row.omega,
                weight=result.weight,
                mini_batch=update_index,
                drop_reason=result.drop_reason,
                reward=rewards[row.source][row.prompt][row.sample],
                source_num_tokens=response.length,
                alpha=None if row.is_self else alpha,
                capability=capability[learner],
                source_capability=capability[row.source],
                importance=result.importance,
            )


def _visits(record: StepRecord, learner: int) -> Iterator[tuple[int | None, LearnerRow, RowResult]]:
    """(m, row, result) of every row in the learner's order; at the end, without m, the quarantined ones."""
    plan, results = record.plan.mini_batches[learner], record.reports[learner].results
    for update_index, (rows, outcomes) in enumerate(zip(plan, results, strict=True)):
        for row, result in zip(rows, outcomes, strict=True):
            yield update_index, row, result
    for row in record.plan.quarantined[learner]:
        yield None, row, RowResult(drop_reason="quarantined")


def _uniform(record: StepRecord, agents: Sequence[int]) -> list[bool]:
    """Whether all valid rewards of a prompt, with the overlong penalty, are equal or there are none."""
    rewards = (record.scores.rewards + record.plan.penalties)[list(agents)]  # (k, B, G)
    valid = record.scores.valid[list(agents)]  # (k, B, G)
    is_uniform, highest = tensors.uniform_groups(rewards, valid)  # (B,) each
    return (is_uniform | highest.isneginf()).tolist()


def _share(values: Sequence[bool]) -> tuple[float, float]:
    return float(sum(values)), float(len(values))


def _average(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
