"""Step 4 of Algorithm 1, seen from one learner: its mini-batches, one optimizer step each.

Rows that cannot move the weights (advantage 0, dropped) are left out of the forward pass but stay in the denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workers.algorithms import gspo, hacpo
from workers.messages import Response, Row, RowResult, UpdateReport
from workers.policy import Policy
from workers.spec import AlgorithmSpec, RunSpec

# (row) -> prompt ids, response ids and source_mean_logp, or the reason why the row is dropped
RowInputs = Callable[[Row], "Inputs | str"]


@dataclass(frozen=True)
class Inputs:
    """A row in the learner's own tokens. length: the source's tokens behind mean_logp."""

    prompt: Sequence[int]
    response: Sequence[int]
    mean_logp: float
    length: int


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
    mini_batches: Sequence[Sequence[Row]],
    inputs_of: RowInputs,
    learning_rate: float,
    failures_in_a_row: int,
) -> UpdateReport:
    """Make one optimizer step for each mini-batch, m = 0, 1, ...; see UpdateReport for what comes back."""
    report = UpdateReport(learning_rate=learning_rate, failures_in_a_row=failures_in_a_row)
    algorithm = spec.algorithm.model_copy(update={"delta_step": spec.delta_step})  # after cross_clip_schedule
    denominator = spec.mini_batch_prompts * spec.num_generations
    cache: dict[tuple[int, int, int], Inputs | str] = {}
    for num_updates, rows in enumerate(mini_batches):
        results = [RowResult() for _ in rows]
        active: list[tuple[Row, RowResult, Inputs]] = []
        for row, result in zip(rows, results, strict=True):
            place = (row.source, row.prompt, row.sample)
            if place not in cache:
                cache[place] = inputs_of(row)
            inputs = cache[place]
            if isinstance(inputs, str):
                result.drop_reason = inputs
                continue
            result.num_tokens = len(inputs.response)
            if row.advantage != 0 or (row.is_self and algorithm.beta > 0):
                active.append((row, result, inputs))
        # Rows of like length share a micro-batch. A stable sort: the split belongs to the rows alone.
        active.sort(key=lambda item: len(item[2].prompt) + len(item[2].response))
        loss = 0.0
        for start in range(0, len(active), spec.training.micro_batch_size):
            chunk = active[start : start + spec.training.micro_batch_size]
            loss += _backward(policy, algorithm, chunk, num_updates, denominator, report)
        norm, taken = policy.step(learning_rate, is_sound=math.isfinite(loss))
        report.failures_in_a_row = 0 if taken else report.failures_in_a_row + 1
        report.skipped_updates += not taken
        report.losses.append(loss)
        report.grad_norms.append(norm)
        report.results.append(results)
    return report


def _backward(
    policy: Policy,
    algorithm: AlgorithmSpec,
    chunk: Sequence[tuple[Row, RowResult, Inputs]],
    num_updates: int,
    denominator: int,
    report: UpdateReport,
) -> float:
    """Forward and backward of one micro-batch; fills in the row results and returns its share of the loss."""
    prompts = [inputs.prompt for _, _, inputs in chunk]
    responses = [inputs.response for _, _, inputs in chunk]
    logps, mask = policy.token_logps(prompts, responses)  # (b, T)
    ref_logps = None
    if policy.reference is not None and any(row.is_self for row, _, _ in chunk):
        with torch.no_grad():
            ref_logps, _ = policy.token_logps(prompts, responses, model=policy.reference)  # (b, T)
    mean_logp = torch.tensor([inputs.mean_logp for _, _, inputs in chunk], device=policy.device)  # (b,)
    if num_updates == 0 and not policy.sampling_logps_are_exact:
        # The weights are still those that sampled, so s = 1. In low precision a score made in another batch shape
        # is off by more than the clip of 3e-4.
        present = logps.detach().sum(dim=1) / mask.sum(dim=1)  # (b,)
        is_self = torch.tensor([row.is_self for row, _, _ in chunk], device=policy.device)  # (b,)
        mean_logp = torch.where(is_self, present, mean_logp)
    loss, stats = _loss(algorithm, policy.device, chunk, logps, mask, mean_logp, ref_logps, num_updates, denominator)
    loss.backward()
    policy.collect_gradients()
    _fill(chunk, stats, num_updates, algorithm.beta > 0, report)
    return loss.item()


def _loss(
    algorithm: AlgorithmSpec,
    device: torch.device,
    chunk: Sequence[tuple[Row, RowResult, Inputs]],
    logps: Tensor,
    mask: Tensor,
    mean_logp: Tensor,
    ref_logps: Tensor | None,
    num_updates: int,
    denominator: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The rule that this run is about."""

    def column(values: list[Any]) -> Tensor:
        return torch.tensor(values, device=device)

    advantages = column([row.advantage for row, _, _ in chunk])  # (b,)
    if not algorithm.shares_rollouts:  # HACPO without sharing is GSPO, so it goes the same way
        return gspo.loss(logps, mask, mean_logp, advantages, algorithm, ref_logps=ref_logps, denominator=denominator)
    return hacpo.loss(
        logps,
        mask,
        mean_logp,
        advantages,
        column([row.is_self for row, _, _ in chunk]),
        column([row.omega for row, _, _ in chunk]),
        num_updates,
        algorithm,
        ref_logps=ref_logps,
        source_lengths=column([inputs.length for _, _, inputs in chunk]),
        denominator=denominator,
    )


def _fill(
    chunk: Sequence[tuple[Row, RowResult, Inputs]],
    stats: Mapping[str, Tensor],
    num_updates: int,
    has_reference: bool,
    report: UpdateReport,
) -> None:
    ratios, clipped, sides, flows, weights, kls = (
        stats[name].tolist()
        for name in ("sequence_ratio", "clipped_ratio", "clip_side", "gradient_flows", "weight", "kl")
    )
    for index, (row, result, _) in enumerate(chunk):
        result.sequence_ratio, result.clipped_ratio = ratios[index], clipped[index]
        result.clip_side, result.gradient_flows, result.weight = sides[index], flows[index], weights[index]
        if row.is_self:
            if num_updates == 0:  # same weights as when it was sampled: log s is the engine's error
                report.sampling_logp_differences.append(abs(math.log(ratios[index])) if ratios[index] > 0 else math.nan)
            if has_reference:
                report.kl = (report.kl[0] + kls[index], report.kl[1] + 1)
