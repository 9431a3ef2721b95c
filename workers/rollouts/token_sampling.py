"""The choice of a next token: inverse transform sampling of softmax(logits / temperature), with top-p and top-k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

# Up to this vocabulary all sums are in double precision; above, those of blocks of this many tokens and within one.
SMALL_VOCABULARY, BLOCK = 2**14, 512
RANKED = 1024  # tokens that are ranked for top_p, unless their probabilities are too small for it


class TokenDistribution(Protocol):
    """Which tokens may be chosen: of a SampleRequest."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...


class Buffers:
    """Memory for what is computed of r rows of logits, (r, V) each.

    Fresh memory for each token would take as long as its softmax.
    """

    def __init__(self, num_rows: int, size: int, device: torch.device, textless: Sequence[int] = ()) -> None:
        """textless: ids that are never chosen."""
        self.logps, self.probabilities = torch.empty(2, num_rows, size, device=device)
        ids = [one for one in textless if one < size]
        self.textless = torch.tensor(ids, device=device) if ids else None


def choose_tokens(
    logits: Tensor, noise: Tensor, request: TokenDistribution, buffers: Buffers, ranked: int = RANKED
) -> tuple[Tensor, Tensor, Tensor]:
    """Next tokens of logits (a, V), their log-probabilities and the distributions' entropies; (a,) each.

    ranked: as in `likeliest`. With all V nothing waits for the device, and all of it can be in a CUDA graph.
    """
    logits, temperature = logits.float(), request.temperature
    logps, probabilities = buffers.logps[: len(logits)], buffers.probabilities[: len(logits)]  # (a, V)
    # Scaled logits may lie in the buffer of probabilities: these are written after the last use of them.
    scaled = logits if temperature in (0, 1) else torch.div(logits, temperature, out=probabilities)
    torch.log_softmax(scaled, dim=-1, out=logps)
    torch.exp(logps, out=probabilities)
    textless = buffers.textless
    if temperature == 0:
        token = (logits if textless is None else logits.index_fill(1, textless, -torch.inf)).argmax(dim=-1)
    else:
        place = _place if logits.shape[-1] <= SMALL_VOCABULARY else _place_by_blocks
        if textless is not None:
            hidden = probabilities[:, textless]
            probabilities.index_fill_(1, textless, 0.0)
        token = place(likeliest(probabilities, request.top_p, request.top_k, ranked), noise)
        if textless is not None:
            probabilities.index_copy_(1, textless, hidden)
    logp = logps.gather(1, token[:, None])[:, 0]
    # -p log p with 0 where p is 0; special.entr would take every logarithm again.
    entropy = -logps.clamp_(min=-1e30).mul_(probabilities).sum(dim=-1)
    return token, logp, entropy


def likeliest(probabilities: Tensor, top_p: float, top_k: int, ranked: int = RANKED) -> Tensor:
    """Probabilities (a, V) with 0 for the tokens that are not sampled. Ties at an edge are kept.

    First all but the top_k, then of the rest all but the most probable ones whose share reaches top_p (nucleus
    sampling, Holtzman et al. 2020).  ranked: tokens that are ranked for top_p at first; all, if they are too few.
    """
    size = probabilities.shape[-1]
    if 0 < top_k < size:
        edge = probabilities.topk(top_k, dim=-1).values[:, -1:]  # (a, 1)
        probabilities = probabilities.masked_fill(~(probabilities >= edge), 0.0)
    if top_p < 1:
        needed = top_p * probabilities.double().sum(dim=-1, keepdim=True)  # (a, 1)
        ranks, sums = _ranked(probabilities, top_k or ranked)
        if not top_k and ranked < size and bool((sums[:, -1:] < needed).any()):
            ranks, sums = _ranked(probabilities, size)
        num_kept = (sums - ranks < needed).sum(dim=-1, keepdim=True)  # those before which it is not reached
        edge = ranks.gather(1, num_kept.clamp(min=1) - 1)  # (a, 1)
        probabilities = probabilities.masked_fill(~(probabilities >= edge), 0.0)
    return probabilities


def _ranked(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest probabilities of each row in order, and their sums in double precision; (a, count) each."""
    ranked = probabilities.topk(min(count, probabilities.shape[-1]), dim=-1).values
    return ranked, ranked.double().cumsum(dim=-1)


def _place(weights: Tensor, noise: Tensor) -> Tensor:
    """Inverse transform sampling: the place in each row at which its sums pass noise times their total, (a,).

    weights: (a, n).  noise: (a,), from 0 to 1.  In double precision: float32 would lose the tail of a large n.
    """
    sums = weights.double().cumsum(dim=-1)  # (a, n)
    return torch.searchsorted(sums, (noise * sums[:, -1])[:, None], right=True)[:, 0].clamp(max=weights.shape[-1] - 1)


def _place_by_blocks(weights: Tensor, noise: Tensor) -> Tensor:
    """The same in two steps, with double precision for the sums of blocks and within one of them."""
    num_rows, size = weights.shape
    whole = size // BLOCK * BLOCK
    blocks = weights[:, :whole].view(num_rows, -1, BLOCK).sum(dim=-1)  # (a, n / BLOCK)
    blocks = torch.cat([blocks, weights[:, whole:].sum(dim=-1, keepdim=True)], dim=1).double()
    block = _place(blocks, noise)  # (a,)
    sums = blocks.cumsum(dim=-1)  # (a, n / BLOCK + 1)
    own = blocks.gather(1, block[:, None])[:, 0]  # (a,)
    before = sums.gather(1, block[:, None])[:, 0] - own
    places = (block[:, None] * BLOCK + torch.arange(BLOCK, device=weights.device)).clamp(max=size)  # (a, BLOCK)
    inside = weights.gather(1, places.clamp(max=size - 1)).masked_fill(places >= size, 0.0)  # (a, BLOCK)
    rest = ((noise * sums[:, -1] - before) / own).clamp(0, 1 - 1e-12)  # (a,)
    return (block * BLOCK + _place(inside, rest)).clamp(max=size - 1)
