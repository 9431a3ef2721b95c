"""Log-probabilities of chosen tokens from hidden states, without the logits of all tokens at once.

The output layer and its softmax run over chunks of tokens, and again in the backward pass: the logits of one chunk are
all that is ever held. The gradient by logits is (one-hot - softmax) times the gradient of the log-probability, written
over them. Where only the hidden states need a gradient, as with LoRA, the forward pass already multiplies these errors
by the output's weights, and nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workers.contract.memory.footprint import CHUNK_BYTES, GPU_CHUNK_BYTES, MIN_LOGITS

Index = tuple[Tensor, Tensor]  # row and place of each token
FEW = 8  # rows up to which W h takes a CPU less time than h W in float32: .2 to .6 of it from 2 rows on


@dataclass(frozen=True)
class Head:
    """A model's output layer: logits = cap * tanh(scale * (W h + b) / cap), without tanh if cap is 0.

    weight: (V, d).  bias: (V,) or None.
    """

    weight: Tensor
    bias: Tensor | None
    scale: float
    cap: float

    @classmethod
    def of(cls, model: Any) -> Head | None:
        """The head of a causal language model; None if it is not one linear layer."""
        layer = model.get_output_embeddings()
        if type(layer) is not nn.Linear:
            return None
        config = model.config.get_text_config()
        scale = getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1)
        return cls(layer.weight, layer.bias, float(scale), float(getattr(config, "final_logit_softcapping", None) or 0))

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """(c, V) in float32, or float64, for hidden states (c, d); written to `out`, (at least c, V), if it is given.

        Without a gradient. Fresh memory for each chunk would take as long as half the product.
        """
        out = hidden.new_empty(len(hidden), len(self.weight), dtype=self.dtype) if out is None else out[: len(hidden)]
        if len(hidden) <= FEW and self.weight.dtype == torch.float32 and self.weight.device.type == "cpu":
            out.copy_((self.weight @ hidden.T).T)
        elif self.weight.dtype == out.dtype:
            torch.mm(hidden, self.weight.T, out=out)
        else:
            out.copy_(hidden @ self.weight.T)
        if self.bias is not None:
            out.add_(self.bias)
        if self.scale != 1:
            out.mul_(self.scale)
        return out.div_(self.cap).tanh_().mul_(self.cap) if self.cap else out

    @property
    def dtype(self) -> torch.dtype:
        """The number type of the logits."""
        return torch.float64 if self.weight.dtype == torch.float64 else torch.float32


def is_large(num_logits: int) -> bool:
    """Whether logits should be computed by chunks; few of them are faster at once."""
    return num_logits > MIN_LOGITS


@torch.no_grad()
def is_linear_head(model: Any) -> bool:
    """Whether `Head.of` computes the logits that the model itself does, tried on three tokens."""
    head = Head.of(model)
    if head is None:
        return False
    ids = torch.tensor([[0, 1, 2]], device=model.device)
    expected = model(input_ids=ids, use_cache=False).logits[0].float()
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
    if hidden.shape[-1] != head.weight.shape[1]:
        return False
    largest = float(expected.abs().nan_to_num().max())
    return torch.allclose(head.logits(hidden).float(), expected, rtol=1e-2, atol=1e-2 * largest, equal_nan=True)


@contextmanager
def logps_for_logits(model: Any, index: Index, targets: Tensor, temperature: float) -> Iterator[None]:
    """Within: `logits` of the model's output are `token_logps` of the hidden states [index], (N,).

    So the output layer is used within the model's own forward pass, where FSDP2 has gathered its weights; it gathers
    them again before the backward pass of that output. index: into (b, S).  targets: (N,).
    """
    layer = model.get_output_embeddings()

    def logps_of(states: Tensor) -> Tensor:
        return token_logps(Head(layer.weight, layer.bias, 1.0, 0.0), states[index], targets, temperature)

    layer.forward = logps_of
    try:
        yield
    finally:
        del layer.forward


@torch.no_grad()
def is_replaceable_head(model: Any) -> bool:
    """Whether `logps_for_logits` finds what the model's logits say, tried on three tokens. Before a model is split."""
    head = Head.of(model)
    if head is None or head.cap or head.scale != 1:  # the model would apply them to the log-probabilities
        return False
    ids = torch.tensor([[0, 1, 2]], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0].float()  # (3, V)
    expected = logits.log_softmax(dim=1)[:2].gather(1, ids[0, 1:, None])[:, 0]  # (2,)
    with logps_for_logits(model, (ids[0, :2] * 0, ids[0, :2]), ids[0, 1:], 1.0):
        logps = model(input_ids=ids, use_cache=False).logits
    return logps.shape == expected.shape and torch.allclose(logps.float(), expected, rtol=1e-2, equal_nan=True)


def token_logps(head: Head, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / temperature) of each target, (N,), in float32 (float64 for such weights).

    hidden: (N, d), the states from which each target is predicted.  targets: (N,).
    """
    result: Tensor = _TokenLogps.apply(hidden, head.weight, head.bias, targets, head.scale, head.cap, temperature)
    return result


class _TokenLogps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        cap: float,
        temperature: float,
    ) -> Tensor:
        head = Head(weight, bias, scale, cap)
        logps, normalizers = [], []
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        by_hidden = torch.empty_like(hidden) if needs_hidden and not (needs_weight or needs_bias) else None
        chunks, room = _chunks(hidden, head)
        for rows in chunks:
            logits = head.logits(hidden[rows], room)  # (c, V)
            slope = None if by_hidden is None else _slope(head, logits)
            if temperature != 1:
                logits.div_(temperature)
            of_target = logits.gather(1, targets[rows, None])[:, 0]  # (c,)
            highest = logits.amax(dim=1)  # (c,)
            sums = logits.sub_(highest[:, None]).exp_().sum(dim=1)  # (c,)
            normalizers.append(highest + sums.log())
            logps.append(of_target - normalizers[-1])
            if by_hidden is not None:
                errors = _errors(logits.div_(sums[:, None]), targets[rows], slope, hidden.dtype)  # (c, V)
                torch.mm(errors, weight, out=by_hidden[rows])
        if by_hidden is None:
            ctx.save_for_backward(hidden, weight, bias, targets, torch.cat(normalizers))
        else:
            ctx.save_for_backward(by_hidden)
        ctx.numbers = (scale, cap, temperature)
        return torch.cat(logps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scale, cap, temperature = ctx.numbers
        factors = gradient * (-scale / temperature)  # (N,)  of the errors
        if len(ctx.saved_tensors) == 1:  # only the hidden states need a gradient
            [by_hidden] = ctx.saved_tensors
            return by_hidden * factors[:, None].to(by_hidden.dtype), *[None] * 6
        hidden, weight, bias, targets, normalizers = ctx.saved_tensors
        head = Head(weight, bias, scale, cap)
        by_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        by_weight = torch.zeros_like(weight, dtype=normalizers.dtype) if ctx.needs_input_grad[1] else None
        by_bias = torch.zeros_like(bias, dtype=normalizers.dtype) if ctx.needs_input_grad[2] else None
        # Factors are of rows: at (c, d) they cost less than at (c, V).
        factors = factors[:, None].to(hidden.dtype)  # (N, 1)
        chunks, room = _chunks(hidden, head)
        for rows in chunks:
            logits = head.logits(hidden[rows], room)  # (c, V)
            slope = _slope(head, logits)
            if temperature != 1:
                logits.div_(temperature)
            errors = _errors(logits.sub_(normalizers[rows, None]).exp_(), targets[rows], slope, hidden.dtype)  # (c, V)
            if by_hidden is not None:
                torch.mm(errors, weight, out=by_hidden[rows])
            if by_weight is not None and by_weight.dtype == errors.dtype:
                by_weight.addmm_(errors.T, hidden[rows] * factors[rows])
            elif by_weight is not None:
                by_weight += errors.T @ (hidden[rows] * factors[rows])
            if by_bias is not None:
                by_bias += (errors.T @ factors[rows])[:, 0]
        by_hidden = None if by_hidden is None else by_hidden.mul_(factors)
        by_weight = None if by_weight is None else by_weight.to(weight.dtype)
        by_bias = None if by_bias is None or bias is None else by_bias.to(bias.dtype)
        return by_hidden, by_weight, by_bias, None, None, None, None


def _slope(head: Head, logits: Tensor) -> Tensor | None:
    """The derivative of capped logits by those before the cap, (c, V); None without a cap."""
    return 1 - (logits / head.cap).square() if head.cap else None


def _errors(softmax: Tensor, targets: Tensor, slope: Tensor | None, dtype: torch.dtype) -> Tensor:
    """softmax - one-hot, (c, V), with the slope of a cap: minus the gradient by logits, written over the softmax."""
    softmax.scatter_add_(1, targets[:, None], softmax.new_full((len(targets), 1), -1.0))
    return (softmax if slope is None else softmax.mul_(slope)).to(dtype)


def _chunks(hidden: Tensor, head: Head) -> tuple[list[slice], Tensor]:
    """The rows of each chunk, and room for the logits of one."""
    chunk_bytes = GPU_CHUNK_BYTES if hidden.is_cuda else CHUNK_BYTES
    size = min(len(hidden), max(1, chunk_bytes // (4 * len(head.weight))))
    slices = [slice(start, min(start + size, len(hidden))) for start in range(0, len(hidden), size)]
    return slices, hidden.new_empty(size, len(head.weight), dtype=head.dtype)
