"""Step 4 of Algorithm 1 for one learner: one optimizer step for each of its mini-batches; and gradient alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from workers.agents.gradients import ActiveRow, Inputs, MiniBatchSize, RowInputs, gather_gradients, prepare_rows
from workers.agents.messages import LearnerRow, RowResult, UpdateReport
from workers.algorithms.spec import AlgorithmSpec
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.model.process_group import Ranks

# Updates in a row without a finite loss or gradient before the weights are rolled back, or the run ends.
MAX_FAILURES_IN_A_ROW = 3
SKIPPED, ROLLED_BACK = "update skipped", "rolled back"  # drop reasons of rows whose update was not made


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
    """Make one optimizer step for each mini-batch, m = 0, 1, ..."""
    report = UpdateReport(learning_rate=learning_rate, failures_in_a_row=failures_in_a_row)
    rule, optimizer = spec.rule, policy.optimizer
    denominator = spec.mini_batch_prompts * spec.num_generations
    max_tokens = spec.rollout.max_completion_length
    cache: dict[tuple[int, int, int], Inputs | str] = {}
    prepared = [prepare_rows(rows, inputs_of, rule, cache) for rows in mini_batches]
    if measures_alignment:
        rows = [item for _, active in prepared for item in active]
        report.alignment = _alignment(policy, rule, rows, max_tokens, report.notes)
    for num_updates, (results, active) in enumerate(prepared):
        report.results.append(results)
        if report.rolled_back:  # the weights that sampled these rollouts are gone
            report.skipped_updates += 1
            for result in results:
                result.drop_reason = ROLLED_BACK
            continue
        size = MiniBatchSize(denominator, sum(result.num_tokens or 0 for result in results), max_tokens)
        sums = gather_gradients(policy, rule, active, num_updates, size, report.notes)
        norm, is_applied = optimizer.step(learning_rate, is_sound=math.isfinite(sums.loss), is_first=num_updates == 0)
        report.failures_in_a_row = 0 if is_applied else report.failures_in_a_row + 1
        if not is_applied:
            report.skipped_updates += 1
            for result in results:
                _reset(result)
        report.losses.append(sums.loss)
        report.grad_norms.append(norm)
        report.kl = (report.kl[0] + sums.kl[0], report.kl[1] + sums.kl[1])
        report.sampling_logp_differences += sums.sampling_logp_differences
        if report.failures_in_a_row >= MAX_FAILURES_IN_A_ROW and may_roll_back and optimizer.has_fresh_snapshot:
            optimizer.roll_back()
            report.failures_in_a_row, report.rolled_back = 0, True
    return report


def _reset(result: RowResult) -> None:
    """Clear the result of a row whose update was not made: it had no effect, and its ratios may not be finite."""
    reason = result.drop_reason or SKIPPED
    for field_of_row in fields(result):
        if field_of_row.name not in ("num_tokens", "drop_reason"):
            setattr(result, field_of_row.name, field_of_row.default)
    result.drop_reason = reason


def measure_alignment(
    policy: Policy, spec: RunSpec, rows: Sequence[LearnerRow], inputs_of: RowInputs, notes: list[str]
) -> dict[int, float | None]:
    """The gradient alignment of the learner's own rows and those of each source, at the present weights."""
    _, active = prepare_rows(rows, inputs_of, spec.rule, {})
    return _alignment(policy, spec.rule, active, spec.rollout.max_completion_length, notes)


def _alignment(
    policy: Policy, rule: AlgorithmSpec, active: Sequence[ActiveRow], max_tokens: int, notes: list[str]
) -> dict[int, float | None]:
    """By source: the cosine between its cross term's gradient and the self term's, at the present weights.

    Over all rows once, with the bound of m = 0 and without the KL term. None if either norm is 0 or not finite.
    """
    plain = rule.model_copy(update={"beta": 0.0})
    by_source: dict[int, dict[tuple[int, int], ActiveRow]] = {}
    own = -1
    for row, _, inputs in active:
        own = row.source if row.is_self else own
        if row.advantage != 0:
            rows = by_source.setdefault(row.source, {})
            rows[row.prompt, row.sample] = (row, RowResult(), inputs)  # once, whatever the number of passes

    def gradient(source: int) -> list[Tensor]:
        rows = list(by_source.get(source, {}).values())
        size = MiniBatchSize(max(1, len(rows)), sum(len(inputs.response) for _, _, inputs in rows), max_tokens)
        gather_gradients(policy, plain, rows, 0, size, notes)
        return policy.optimizer.pop_gradients()

    sources = sorted({row.source for row, _, _ in active if not row.is_self})
    mine = gradient(own) if sources else []
    return {source: _cosine(gradient(source), mine, policy.ranks) for source in sources}


def _cosine(one: Sequence[Tensor], other: Sequence[Tensor], ranks: Ranks) -> float | None:
    def product(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
        total = sum((a * b).sum(dtype=torch.float64).item() for a, b in zip(first, second, strict=True))
        return ranks.sum(total) if ranks.is_sharded else total

    size = math.sqrt(product(one, one)) * math.sqrt(product(other, other))
    return product(one, other) / size if size > 0 and math.isfinite(size) else None
