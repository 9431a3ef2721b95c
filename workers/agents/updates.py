"""Step 4 of Algorithm 1 for one learner: one optimizer step for each of its mini-batches; and gradient alignment.

Forward and backward passes are of micro-batches that fit into memory. Rows that cannot move the weights (advantage 0,
dropped) are left out of the passes but stay in the denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from workers import heartbeat
from workers.agents.messages import LearnerRow, RowResult, UpdateReport
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.base.tensors import ROW_STATS, MicroBatch
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.model.process_group import Ranks, Round, RoundsDone

# Updates in a row without a finite loss or gradient before the weights are rolled back, or the run ends.
MAX_FAILURES_IN_A_ROW = 3
SKIPPED, ROLLED_BACK = "update skipped", "rolled back"  # drop reasons of rows whose update was not made


@dataclass(frozen=True)
class Inputs:
    """A row in the learner's own tokens. length: the source's tokens that mean_logp is the mean of.

    token_logps: the old log-probabilities token by token, if the rule needs them (own rollouts only).
    importance: the factor of the row's loss (rollouts/engine.py).
    train_mask: by token of the response, whether it trains, which an environment's does not; empty: all do.
    """

    prompt: Sequence[int]
    response: Sequence[int]
    mean_logp: float
    length: int
    token_logps: Sequence[float] = ()
    importance: float = 1.0
    train_mask: Sequence[bool] = ()

    @property
    def num_tokens(self) -> int:
        """The tokens of prompt and response together."""
        return len(self.prompt) + len(self.response)

    @property
    def num_trained(self) -> int:
        """Tokens of the response that count."""
        return sum(self.train_mask) if self.train_mask else len(self.response)


# The inputs of a row, or the reason why it is dropped
RowInputs = Callable[[LearnerRow], Inputs | str]
# A row with its place in the report and in the learner's own tokens
ActiveRow = tuple[LearnerRow, RowResult, Inputs]


@dataclass
class GradientSums:
    """Sums over the rows whose gradients were gathered."""

    loss: float = 0.0
    kl: tuple[float, float] = (0.0, 0.0)
    sampling_logp_differences: list[float] = field(default_factory=list)

    def add(self, other: GradientSums) -> None:
        self.loss += other.loss
        self.kl = (self.kl[0] + other.kl[0], self.kl[1] + other.kl[1])
        self.sampling_logp_differences += other.sampling_logp_differences


@dataclass(frozen=True)
class MiniBatchSize:
    """What losses divide by. rows: planned ones, whatever is missing.  tokens: of the responses that are there.

    max_tokens: of the longest response that the run allows.
    """

    rows: int
    tokens: int
    max_tokens: int


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
    for update_index, (results, active) in enumerate(prepared):
        report.results.append(results)
        if report.rolled_back:  # the weights that sampled these rollouts are gone
            report.skipped_updates += 1
            for result in results:
                result.drop_reason = ROLLED_BACK
            continue
        size = MiniBatchSize(denominator, sum(result.num_tokens or 0 for result in results), max_tokens)
        sums = gather_gradients(policy, rule, active, update_index, size, report.notes)
        norm, is_applied = optimizer.step(learning_rate, is_sound=math.isfinite(sums.loss), is_first=update_index == 0)
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
    """The cosine between each source's cross term's gradient and the self term's, at the present weights.

    Over all rows of this step once, with the bound of m = 0 and without the KL term. None if either norm is 0 or not
    finite.
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
        size = MiniBatchSize(max(1, len(rows)), sum(inputs.num_trained for _, _, inputs in rows), max_tokens)
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


def prepare_rows(
    rows: Sequence[LearnerRow],
    inputs_of: RowInputs,
    rule: AlgorithmSpec,
    cache: dict[tuple[int, int, int], Inputs | str],
) -> tuple[list[RowResult], list[ActiveRow]]:
    """The results to fill in, and the rows that can move the weights. cache: inputs by source, prompt and sample."""
    results = [RowResult() for _ in rows]
    active: list[ActiveRow] = []
    for row, result in zip(rows, results, strict=True):
        place = (row.source, row.prompt, row.sample)
        if place not in cache:
            cache[place] = inputs_of(row)
        inputs = cache[place]
        if isinstance(inputs, str):
            result.drop_reason = inputs
            continue
        result.num_tokens = inputs.num_trained
        if row.advantage != 0 or rule.penalises(row.is_self):
            active.append((row, result, inputs))
    return results, active


def gather_gradients(
    policy: Policy,
    rule: AlgorithmSpec,
    active: Sequence[ActiveRow],
    update_index: int,
    size: MiniBatchSize,
    notes: list[str],
) -> GradientSums:
    """Leave the gradients of a mini-batch in the policy's optimizer; fills in the results of its rows."""
    # Rows of similar length share a micro-batch. A stable sort: the split depends on the rows alone.
    rows = sorted(active, key=lambda item: item[2].num_tokens)
    ranks = policy.ranks

    def attempt(rounds: Sequence[Round[ActiveRow]], progress: RoundsDone) -> GradientSums:
        policy.optimizer.discard_gradients()
        sums = GradientSums()
        for progress.round, chunks in enumerate(rounds):
            has_reference = any(rule.penalises(row.is_self) for chunk in chunks for row, _, _ in chunk)
            if chunk := ranks.mine(chunks):
                _backward(policy, rule, chunk, update_index, size, has_reference, sums)
            else:
                policy.stand_by(with_reference=has_reference)
        return sums

    sums, rounds = ranks.fit(attempt, policy.micro_batches(rows, lambda item: item[2].num_tokens), notes)
    policy.optimizer.sum_gradients()
    return sums if ranks.is_alone else _sums_of_ranks(ranks, rounds, sums)


def _sums_of_ranks(ranks: Ranks, rounds: Sequence[Round[ActiveRow]], own: GradientSums) -> GradientSums:
    """The sums of all ranks together, in their order; fills in the results of the other ranks' rows."""
    mine = [result for chunks in rounds for _, result, _ in ranks.mine(chunks)]
    total = GradientSums()
    for rank, (sums, results) in enumerate(ranks.gather((own, mine))):
        theirs = (item for chunks in rounds for item in (chunks[rank] if rank < len(chunks) else ()))
        for (_, result, _), result_of_rank in zip(theirs, results, strict=True):
            for part in fields(RowResult):
                setattr(result, part.name, getattr(result_of_rank, part.name))
        total.add(sums)
    return total


def _backward(
    policy: Policy,
    rule: AlgorithmSpec,
    chunk: Sequence[ActiveRow],
    update_index: int,
    size: MiniBatchSize,
    has_reference: bool,
    sums: GradientSums,
) -> None:
    """Forward and backward pass of one micro-batch; fills in the row results and adds to `sums`."""
    prompts = [inputs.prompt for _, _, inputs in chunk]
    responses = [inputs.response for _, _, inputs in chunk]
    logps, mask = policy.token_logps(prompts, responses, train_masks=_train_masks(chunk))  # (b, T)
    ref_logps = policy.reference_logps(prompts, responses) if has_reference else None  # (b, T)

    def column(values: list[Any]) -> Tensor:
        return torch.tensor(values, device=policy.device)  # (b,)

    is_self = column([row.is_self for row, _, _ in chunk])
    mean_logp = column([inputs.mean_logp for _, _, inputs in chunk])
    old_logps = None
    if rule.needs_token_logps:
        width = mask.shape[1]
        old_logps = column(
            [[*inputs.token_logps, *([0.0] * (width - len(inputs.token_logps)))] for _, _, inputs in chunk]
        )  # (b, T)
    if update_index == 0 and not policy.sampling_logps_are_exact:
        # The weights are still those that sampled, so s = 1. In low precision a score from another batch shape
        # is off by more than the clip of 3e-4.
        present = logps.detach()  # (b, T)
        by_learner = is_self | rule.rescores_shared  # (b,)  the old log-probability is the learner's own
        mean_logp = torch.where(by_learner, present.sum(dim=1) / mask.sum(dim=1), mean_logp)
        old_logps = None if old_logps is None else present
    batch = MicroBatch(
        logps=logps,
        mask=mask,
        old_mean_logp=mean_logp,
        # Every rule's objective of a row is proportional to its advantage, so this scales the row's loss.
        advantages=column([row.advantage * inputs.importance for row, _, inputs in chunk]),
        is_self=is_self,
        omega=column([row.omega for row, _, _ in chunk]),
        source_lengths=column([inputs.length for _, _, inputs in chunk]),
        ref_logps=ref_logps,
        old_logps=old_logps,
        num_tokens=size.tokens,
        max_tokens=size.max_tokens,
    )
    heartbeat.send_heartbeat()
    loss, stats = rule.loss(batch, update_index, size.rows)
    policy.optimizer.backward(loss)
    _fill_results(chunk, stats, update_index, rule.beta > 0, sums)
    sums.loss += loss.item()


def _train_masks(chunk: Sequence[ActiveRow]) -> list[Sequence[bool]] | None:
    """Whether each token of each row trains; None if all do."""
    if not any(inputs.train_mask for _, _, inputs in chunk):
        return None
    return [inputs.train_mask or [True] * len(inputs.response) for _, _, inputs in chunk]


def _fill_results(
    chunk: Sequence[ActiveRow], stats: Mapping[str, Tensor], update_index: int, has_reference: bool, sums: GradientSums
) -> None:
    ratios, clipped, sides, flows, weights, kls = (stats[name].tolist() for name in ROW_STATS)
    # A rule with one ratio for a row clips all of it or nothing.
    is_cut = ~stats["gradient_flows"]
    low, high = (
        stats.get(f"clipped_{side}", (sign * stats["clip_side"] > 0) & is_cut).tolist()
        for side, sign in (("low", -1), ("high", 1))
    )
    for index, (row, result, inputs) in enumerate(chunk):
        result.sequence_ratio, result.clipped_ratio = ratios[index], clipped[index]
        result.importance = None if inputs.importance == 1 else inputs.importance
        result.clip_side, result.gradient_flows, result.weight = sides[index], flows[index], weights[index]
        result.clipped_low, result.clipped_high = float(low[index]), float(high[index])
        if row.is_self:
            if update_index == 0:  # the weights that sampled it: log s is the engine's error
                error = abs(math.log(ratios[index])) if ratios[index] > 0 else math.nan
                sums.sampling_logp_differences.append(error)
            if has_reference:
                sums.kl = (sums.kl[0] + kls[index], sums.kl[1] + 1)
