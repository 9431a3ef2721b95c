"""Step 4 of Algorithm 1, seen from one learner: its mini-batches, one optimizer step each.

Rows that cannot move the weights (advantage 0, dropped) are left out of the forward pass but stay in the denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from workers import heartbeat
from workers.agents import objective
from workers.agents.messages import LearnerRow, Response, RowResult, UpdateReport
from workers.contract.spec.algorithm import AlgorithmSpec
from workers.contract.spec.run import RunSpec
from workers.model.memory import halving
from workers.model.policy import Policy
from workers.model.process_group import Ranks

# Updates in a row without a finite loss or gradient before the weights are rolled back, or the run ends.
MAX_FAILURES_IN_A_ROW = 3
SKIPPED, ROLLED_BACK = "update skipped", "rolled back"  # why rows of an update that was not made taught nothing
LOWER_LENGTH = "lower max_completion_length or max_prompt_length"

# (row) -> prompt ids, response ids and source_mean_logp, or the reason why the row is dropped
RowInputs = Callable[[LearnerRow], "Inputs | str"]


@dataclass(frozen=True)
class Inputs:
    """A row in the learner's own tokens. length: the source's tokens behind mean_logp.

    token_logps: the old log-probabilities token by token, where the rule needs them (own rollouts only).
    importance: what the row's loss is multiplied by (importance.py).
    """

    prompt: Sequence[int]
    response: Sequence[int]
    mean_logp: float
    length: int
    token_logps: Sequence[float] = ()
    importance: float = 1.0


@dataclass
class Gathered:
    """What one pass over rows has added up while its gradients gathered."""

    loss: float = 0.0
    kl: tuple[float, float] = (0.0, 0.0)
    sampling_logp_differences: list[float] = field(default_factory=list)


class ResponseTooLong(ValueError):
    """overflow: error, and a shared rollout does not fit."""


def retokenize(policy: Policy, response: Response, algorithm: AlgorithmSpec, max_length: int) -> list[int] | str:
    """A shared rollout in the learner's tokens, or the reason why it is dropped. Error: ResponseTooLong."""
    literal = algorithm.eos == "literal"
    ids = policy.encode_response(response.shared_text, literal=literal)
    if algorithm.eos == "map" and response.finish_reason == "stop":
        ids.append(policy.turn_eos)
    if len(ids) > max_length:
        if algorithm.overflow == "error":
            raise ResponseTooLong(
                f"a shared rollout has {len(ids)} tokens for agent {policy.agent.name}, more than "
                f"max_completion_length {max_length}: raise it, or set algorithm.overflow to drop"
            )
        if algorithm.overflow == "drop":
            return "overflow"
        ids = ids[:max_length]
    return ids or "empty"


def run_updates(
    policy: Policy,
    spec: RunSpec,
    mini_batches: Sequence[Sequence[LearnerRow]],
    inputs_of: RowInputs,
    learning_rate: float,
    failures_in_a_row: int,
    *,
    may_roll_back: bool = True,
    measures_alignment: bool = False,
) -> UpdateReport:
    """Make one optimizer step for each mini-batch, m = 0, 1, ...; see UpdateReport for what comes back."""
    report = UpdateReport(learning_rate=learning_rate, failures_in_a_row=failures_in_a_row)
    rule = spec.rule
    denominator = spec.mini_batch_prompts * spec.num_generations
    cache: dict[tuple[int, int, int], Inputs | str] = {}
    prepared = [_prepare(rows, inputs_of, rule, cache) for rows in mini_batches]
    if measures_alignment:
        report.alignment = _alignment(policy, rule, [item for _, active in prepared for item in active], report.notes)
    for num_updates, (results, active) in enumerate(prepared):
        report.results.append(results)
        if report.rolled_back:  # these rollouts are those of weights that are gone
            report.skipped_updates += 1
            for result in results:
                result.drop_reason = ROLLED_BACK
            continue
        gathered = _gather(policy, rule, active, num_updates, denominator, report.notes)
        is_sound = math.isfinite(gathered.loss)
        norm, is_applied = policy.step(learning_rate, is_sound=is_sound, is_first=num_updates == 0)
        report.failures_in_a_row = 0 if is_applied else report.failures_in_a_row + 1
        if not is_applied:
            report.skipped_updates += 1
            for result in results:
                _take_back(result)
        report.losses.append(gathered.loss)
        report.grad_norms.append(norm)
        report.kl = (report.kl[0] + gathered.kl[0], report.kl[1] + gathered.kl[1])
        report.sampling_logp_differences += gathered.sampling_logp_differences
        if report.failures_in_a_row >= MAX_FAILURES_IN_A_ROW and may_roll_back and policy.snapshot.is_fresh:
            policy.roll_back()
            report.failures_in_a_row, report.rolled_back = 0, True
    return report


def _take_back(result: RowResult) -> None:
    """The update that a row was in was not made: it taught nothing, and its ratios may be no numbers."""
    reason = result.drop_reason or SKIPPED
    for field_of_row in fields(result):
        if field_of_row.name not in ("num_tokens", "drop_reason"):
            setattr(result, field_of_row.name, field_of_row.default)
    result.drop_reason = reason


def measure_alignment(
    policy: Policy, spec: RunSpec, rows: Sequence[LearnerRow], inputs_of: RowInputs, notes: list[str]
) -> dict[int, float | None]:
    """The alignment of every source among the rows with the learner's own, before any of them has taught."""
    _, active = _prepare(rows, inputs_of, spec.rule, {})
    return _alignment(policy, spec.rule, active, notes)


# A row with its place in the report and in the learner's own tokens
Active = tuple[LearnerRow, RowResult, Inputs]


def _prepare(
    rows: Sequence[LearnerRow],
    inputs_of: RowInputs,
    rule: AlgorithmSpec,
    cache: dict[tuple[int, int, int], Inputs | str],
) -> tuple[list[RowResult], list[Active]]:
    """The results to fill in, and the rows that can move the weights."""
    results = [RowResult() for _ in rows]
    active: list[Active] = []
    for row, result in zip(rows, results, strict=True):
        place = (row.source, row.prompt, row.sample)
        if place not in cache:
            cache[place] = inputs_of(row)
        inputs = cache[place]
        if isinstance(inputs, str):
            result.drop_reason = inputs
            continue
        result.num_tokens = len(inputs.response)
        if row.advantage != 0 or _is_penalised(row, rule):
            active.append((row, result, inputs))
    return results, active


def _is_penalised(row: LearnerRow, rule: AlgorithmSpec) -> bool:
    """Whether the KL penalty is on a row."""
    return rule.beta > 0 and (row.is_self or rule.cross_kl)


def _gather(
    policy: Policy, rule: AlgorithmSpec, active: Sequence[Active], num_updates: int, denominator: int, notes: list[str]
) -> Gathered:
    """Leave the gradients of a mini-batch in the policy, in micro-batches that fit."""
    # Rows of like length share a micro-batch. A stable sort: the split belongs to the rows alone.
    rows = sorted(active, key=lambda item: len(item[2].prompt) + len(item[2].response))
    ranks = policy.ranks

    def attempt(size: int) -> Gathered:
        policy.discard_gradients()
        gathered = Gathered()
        for chunks in ranks.rounds(rows, size):
            has_reference = any(_is_penalised(row, rule) for chunk in chunks for row, _, _ in chunk)
            if chunk := ranks.mine(chunks):
                _backward(policy, rule, chunk, num_updates, denominator, has_reference, gathered)
            else:
                policy.stand_by(with_reference=has_reference)
        return gathered

    gathered, policy.micro_batch_size = halving(
        ranks.together(attempt), policy.micro_batch_size, "micro_batch_size", LOWER_LENGTH, notes
    )
    policy.add_up_gradients()
    return gathered if ranks.is_alone else _all_gathered(policy, rows, gathered)


def _all_gathered(policy: Policy, rows: Sequence[Active], own: Gathered) -> Gathered:
    """What all ranks have added up, in the order of the ranks; fills in the results of the others' rows."""
    ranks = policy.ranks
    rounds = ranks.rounds(rows, policy.micro_batch_size)
    mine = [result for chunks in rounds for _, result, _ in ranks.mine(chunks)]
    total = Gathered()
    for rank, (gathered, results) in enumerate(ranks.gather((own, mine))):
        theirs = (item for chunks in rounds for item in (chunks[rank] if rank < len(chunks) else ()))
        for (_, result, _), results_of_rank in zip(theirs, results, strict=True):
            for part in fields(RowResult):
                setattr(result, part.name, getattr(results_of_rank, part.name))
        total.loss += gathered.loss
        total.kl = (total.kl[0] + gathered.kl[0], total.kl[1] + gathered.kl[1])
        total.sampling_logp_differences += gathered.sampling_logp_differences
    return total


def _backward(
    policy: Policy,
    rule: AlgorithmSpec,
    chunk: Sequence[Active],
    num_updates: int,
    denominator: int,
    has_reference: bool,
    gathered: Gathered,
) -> None:
    """Forward and backward of one micro-batch; fills in the row results and adds to `gathered`."""
    prompts = [inputs.prompt for _, _, inputs in chunk]
    responses = [inputs.response for _, _, inputs in chunk]
    logps, mask = policy.token_logps(prompts, responses)  # (b, T)
    ref_logps = None
    if has_reference:
        ref_logps = policy.reference_logps(prompts, responses)  # (b, T)

    def column(values: list[Any]) -> Tensor:
        return torch.tensor(values, device=policy.device)  # (b,)

    is_self = column([row.is_self for row, _, _ in chunk])
    mean_logp = column([inputs.mean_logp for _, _, inputs in chunk])
    old_logps = None
    if objective.needs_token_logps(rule):
        width = mask.shape[1]
        padded = [[*inputs.token_logps, *([0.0] * (width - len(inputs.token_logps)))] for _, _, inputs in chunk]
        old_logps = torch.tensor(padded, device=policy.device)  # (b, T)
    if num_updates == 0 and not policy.sampling_logps_are_exact:
        # The weights are still those that sampled, so s = 1. In low precision a score made in another batch shape
        # is off by more than the clip of 3e-4.
        present = logps.detach()  # (b, T)
        by_learner = is_self | objective.rescores_shared(rule)  # (b,)  whose old log-probability is the learner's own
        mean_logp = torch.where(by_learner, present.sum(dim=1) / mask.sum(dim=1), mean_logp)
        old_logps = None if old_logps is None else present
    batch = objective.MicroBatch(
        logps=logps,
        mask=mask,
        old_mean_logp=mean_logp,
        # Every rule's objective of a row is proportional to its advantage where that is scaled by a positive number.
        advantages=column([row.advantage * inputs.importance for row, _, inputs in chunk]),
        is_self=is_self,
        omega=column([row.omega for row, _, _ in chunk]),
        source_lengths=column([inputs.length for _, _, inputs in chunk]),
        ref_logps=ref_logps,
        old_logps=old_logps,
    )
    heartbeat.send_heartbeat()
    loss, stats = objective.loss(rule, batch, num_updates, denominator)
    policy.backward(loss)
    _fill(chunk, stats, num_updates, rule.beta > 0, gathered)
    gathered.loss += loss.item()


def _fill(
    chunk: Sequence[Active],
    stats: Mapping[str, Tensor],
    num_updates: int,
    has_reference: bool,
    gathered: Gathered,
) -> None:
    names = ("sequence_ratio", "clipped_ratio", "clip_side", "gradient_flows", "weight", "kl")
    ratios, clipped, sides, flows, weights, kls = (stats[name].tolist() for name in names)
    # A rule with one ratio for a row clips all of it or nothing.
    is_cut = ~stats["gradient_flows"]
    low, high = (
        stats.get(f"clipped_{side}", (sign * stats["clip_side"] > 0) & is_cut).tolist()
        for side, sign in (("low", -1), ("high", 1))
    )
    for index, (row, result, _) in enumerate(chunk):
        result.sequence_ratio, result.clipped_ratio = ratios[index], clipped[index]
        result.clip_side, result.gradient_flows, result.weight = sides[index], flows[index], weights[index]
        result.clipped_low, result.clipped_high = float(low[index]), float(high[index])
        if row.is_self:
            if num_updates == 0:  # same weights as when it was sampled: log s is the engine's error
                error = abs(math.log(ratios[index])) if ratios[index] > 0 else math.nan
                gathered.sampling_logp_differences.append(error)
            if has_reference:
                gathered.kl = (gathered.kl[0] + kls[index], gathered.kl[1] + 1)


def _alignment(
    policy: Policy, rule: AlgorithmSpec, active: Sequence[Active], notes: list[str]
) -> dict[int, float | None]:
    """By source: the cosine between its cross term's gradient and the self term's, at the present weights.

    Over all rows once, with the bound of m = 0 and without the KL term. None where either norm is 0 or not finite.
    """
    plain = rule.model_copy(update={"beta": 0.0})
    by_source: dict[int, dict[tuple[int, int], Active]] = {}
    own = -1
    for row, _, inputs in active:
        own = row.source if row.is_self else own
        if row.advantage != 0:
            rows = by_source.setdefault(row.source, {})
            rows[row.prompt, row.sample] = (row, RowResult(), inputs)  # of several passes once

    def gradient(source: int) -> list[Tensor]:
        rows = list(by_source.get(source, {}).values())
        _gather(policy, plain, rows, 0, max(1, len(rows)), notes)
        return policy.gradients()

    sources = sorted({row.source for row, _, _ in active if not row.is_self})
    mine = gradient(own) if sources else []
    return {source: _cosine(gradient(source), mine, policy.ranks) for source in sources}


def _cosine(one: Sequence[Tensor], right: Sequence[Tensor], ranks: Ranks) -> float | None:
    def product(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
        total = sum((a * b).sum(dtype=torch.float64).item() for a, b in zip(first, second, strict=True))
        return ranks.sum(total) if ranks.is_sharded else total

    dot = product(one, right)
    norms = [math.sqrt(product(each, each)) for each in (one, right)]
    size = norms[0] * norms[1]
    return dot / size if size > 0 and math.isfinite(size) else None
