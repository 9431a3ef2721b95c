"""Step 2 of Algorithm 1: sample responses with a transformers model, on a CPU or one GPU.

Each distinct prompt is read once and its KV cache repeated for its samples; finished rows leave the batch. A row's
tokens depend on its own key alone (inverse transform sampling with one uniform number per token).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from workers import heartbeat
from workers.randomness import uniforms

# Below this share of unfinished rows the batch shrinks: copying the cache costs about two forward passes.
COMPACT_BELOW = 0.75
# Tokens of free space at each growth of the cache. transformers' layer has none: every token copies all of it.
ROOM = 64
# Up to this vocabulary all sums are in double precision; above, those of blocks of this many tokens and within one.
SMALL_VOCABULARY, BLOCK = 2**14, 512
RANKED = 1024  # tokens that are ranked for top_p, unless their probabilities are too small for it


@dataclass(frozen=True)
class Sample:
    """One sampled response: its ids (EOS included), log-probabilities at the sampling temperature, summed entropy.

    has_stop: it ended with a stop string, and so without an EOS.
    """

    token_ids: list[int]
    logps: list[float]
    finished: bool
    entropy: float
    has_stop: bool = False

    @property
    def has_eos(self) -> bool:
        """Whether the last token is an EOS."""
        return self.finished and not self.has_stop

    @property
    def num_sampled(self) -> int:
        """Tokens that the agent itself wrote."""
        return len(self.token_ids)


@dataclass(frozen=True)
class SampleRequest:
    """Responses to sample: rows[i] is the index of row i's prompt, keys[i] its random key.

    temperature 0 is greedy (log-probabilities then at temperature 1).  batch_size: sequences at once, if the engine
    does not decide that itself.  top_p, top_k: see RolloutSpec; they do not change log-probabilities and entropy.
    stop: texts that end a response.  limits: most tokens of each row, if they differ; at most max_new_tokens.
    Error: ValueError if a prompt is empty.
    """

    prompts: Sequence[Sequence[int]]
    rows: Sequence[int]
    keys: Sequence[int]
    temperature: float
    max_new_tokens: int
    batch_size: int
    top_p: float = 1.0
    top_k: int = 0
    stop: Sequence[str] = ()
    limits: Sequence[int] = ()

    def __post_init__(self) -> None:
        for index, prompt in enumerate(self.prompts):
            if not prompt:
                raise ValueError(f"prompt {index} is empty: a rollout needs a prompt of at least one token")


@torch.no_grad()  # not inference_mode: some rotary embeddings keep buffers that training then needs
def sample(
    model: Any, request: SampleRequest, eos_ids: Sequence[int], decode: Callable[[Sequence[int]], str] | None = None
) -> list[Sample]:
    """One response for each row of a request. decode: the text of ids; needed for stop strings."""
    prompts, rows = request.prompts, request.rows
    # Prompts of similar length share a batch: less padding. The order depends on the prompts only.
    order = sorted(range(len(rows)), key=lambda row: (len(prompts[rows[row]]), rows[row], row))
    by_row: dict[int, Sample] = {}
    for start in range(0, len(order), request.batch_size):
        chunk = order[start : start + request.batch_size]
        distinct = list(dict.fromkeys(rows[row] for row in chunk))
        place = {prompt: index for index, prompt in enumerate(distinct)}
        batch = replace(
            request,
            prompts=[prompts[prompt] for prompt in distinct],
            rows=[place[rows[row]] for row in chunk],
            keys=[request.keys[row] for row in chunk],
            limits=[request.limits[row] for row in chunk] if request.limits else (),
        )
        by_row.update(zip(chunk, _sample_batch(model, batch, eos_ids, decode), strict=True))
    return [by_row[row] for row in range(len(rows))]


def _sample_batch(
    model: Any, request: SampleRequest, eos_ids: Sequence[int], decode: Callable[[Sequence[int]], str] | None
) -> list[Sample]:
    """The loop itself: r rows, prompts padded on the left to P, at most T new tokens."""
    device, num_rows = model.device, len(request.rows)
    max_new_tokens = max(request.limits, default=request.max_new_tokens)
    limits = torch.tensor(request.limits or [max_new_tokens] * num_rows, device=device)  # (r,)
    batch = _Batch(model, request)
    noise = torch.from_numpy(uniforms(np.array(request.keys, dtype=np.uint64), max_new_tokens)).to(device)  # (r, T)
    stops = torch.tensor(sorted(eos_ids), device=device)
    tokens = torch.zeros(num_rows, max_new_tokens, dtype=torch.long, device=device)
    logps = torch.zeros(num_rows, max_new_tokens, device=device)
    entropies = torch.zeros(num_rows, max_new_tokens, device=device)
    lengths = limits.clone()
    finished = torch.zeros(num_rows, dtype=torch.bool, device=device)
    has_stop = torch.zeros(num_rows, dtype=torch.bool, device=device)
    # Every token has at least one byte: no more tokens hold a stop string and a character that it begins in.
    tail = max((len(text.encode()) for text in request.stop), default=0) + 4
    alive = torch.arange(num_rows, device=device)  # rows in the batch now
    for position in range(max_new_tokens):
        heartbeat.send_heartbeat()
        token, logp, entropy = _choose(batch.logits, noise[alive, position], request)  # (a,) each
        tokens[alive, position], logps[alive, position], entropies[alive, position] = token, logp, entropy
        ended = torch.isin(token, stops) & ~finished[alive]  # (a,)
        if request.stop and decode is not None:
            last = tokens[alive, max(0, position + 1 - tail) : position + 1].tolist()
            holds = [any(text in written for text in request.stop) for written in map(decode, last)]
            at_stop = torch.tensor(holds, device=device) & ~ended & ~finished[alive]  # (a,)
            has_stop[alive[at_stop]] = True
            ended = ended | at_stop
        lengths[alive[ended]] = position + 1
        finished[alive[ended]] = True
        is_at_limit = limits[alive] == position + 1  # (a,)
        unfinished = (~finished[alive] & ~is_at_limit).nonzero()[:, 0]
        if not len(unfinished) or position + 1 == max_new_tokens:
            break
        # A row at its limit may be at the end of the model's context.
        if len(unfinished) < COMPACT_BELOW * len(alive) or (request.limits and bool(is_at_limit.any())):
            batch.select(unfinished)
            alive, token = alive[unfinished], token[unfinished]
        batch.advance(token)
    ends = zip(lengths.tolist(), finished.tolist(), has_stop.tolist(), strict=True)
    columns = zip(tokens.tolist(), logps.tolist(), entropies.tolist(), ends, strict=True)
    return [
        Sample(ids[:length], row_logps[:length], is_finished, sum(row_entropies[:length]), at_stop)
        for ids, row_logps, row_entropies, (length, is_finished, at_stop) in columns
    ]


class _Batch:
    """The model's state while sampling: KV cache, attention mask, next positions and logits of the rows alive."""

    def __init__(self, model: Any, request: SampleRequest) -> None:
        self.model = model
        device, prompts, rows = model.device, request.prompts, request.rows
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)  # (p, P)
        length = torch.tensor([len(prompt) for prompt in prompts], device=device)  # (p,)
        mask = torch.arange(width, device=device)[None, :] >= (width - length)[:, None]  # (p, P)
        is_padded = not bool(mask.all())  # without padding the model takes its fast causal path
        self.cache = sampling_cache(model.config)
        output = model(
            input_ids=ids,
            attention_mask=mask.long() if is_padded else None,
            position_ids=(mask.long().cumsum(1) - 1).clamp(min=0) if is_padded else None,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        row = torch.tensor(rows, device=device)  # (r,)
        if rows != list(range(len(prompts))):
            self.cache.batch_select_indices(row)
        self.logits = output.logits[:, -1][row]  # (r, V)
        self.position = length[row]  # (r,)
        self.width = width
        self.mask: Tensor | None = None
        if is_padded:
            room = torch.ones(len(rows), request.max_new_tokens, dtype=torch.long, device=device)
            self.mask = torch.cat([mask.long()[row], room], dim=1)  # (r, P + T)

    def select(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.cache.batch_select_indices(rows)
        self.position = self.position[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def advance(self, token: Tensor) -> None:
        """Read one more token in each row, (a,); `logits` are then those of the next."""
        self.width += 1
        output = self.model(
            input_ids=token[:, None],
            attention_mask=None if self.mask is None else self.mask[:, : self.width],
            position_ids=self.position[:, None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits = output.logits[:, -1]
        self.position = self.position + 1


def _choose(logits: Tensor, noise: Tensor, request: SampleRequest) -> tuple[Tensor, Tensor, Tensor]:
    """Next tokens of logits (a, V), their log-probabilities and the distributions' entropies; (a,) each."""
    logits, temperature = logits.float(), request.temperature
    log_probabilities = torch.log_softmax(logits if temperature in (0, 1) else logits / temperature, dim=-1)  # (a, V)
    probabilities = log_probabilities.exp()
    if temperature == 0:
        token = logits.argmax(dim=-1)
    else:
        place = _place if logits.shape[-1] <= SMALL_VOCABULARY else _place_by_blocks
        token = place(likeliest(probabilities, request.top_p, request.top_k), noise)
    # -p log p with 0 where p is 0; special.entr would take every logarithm again.
    entropy = -(probabilities * log_probabilities.clamp(min=-1e30)).sum(dim=-1)
    return token, log_probabilities.gather(1, token[:, None])[:, 0], entropy


def likeliest(probabilities: Tensor, top_p: float, top_k: int) -> Tensor:
    """Probabilities (a, V) with 0 for the tokens that are not sampled. Ties at an edge are kept.

    First all but the top_k, then of the rest all but the most probable ones whose share reaches top_p (nucleus
    sampling, Holtzman et al. 2020).
    """
    size = probabilities.shape[-1]
    if 0 < top_k < size:
        edge = probabilities.topk(top_k, dim=-1).values[:, -1:]  # (a, 1)
        probabilities = probabilities.where(probabilities >= edge, 0.0)
    if top_p < 1:
        needed = top_p * probabilities.double().sum(dim=-1, keepdim=True)  # (a, 1)
        ranked, sums = _ranked(probabilities, top_k or min(RANKED, size))
        if not top_k and bool((sums[:, -1:] < needed).any()):
            ranked, sums = _ranked(probabilities, size)
        num_kept = (sums - ranked < needed).sum(dim=-1, keepdim=True)  # those before which it is not reached
        edge = ranked.gather(1, num_kept.clamp(min=1) - 1)  # (a, 1)
        probabilities = probabilities.where(probabilities >= edge, 0.0)
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
    inside = torch.where(places < size, weights.gather(1, places.clamp(max=size - 1)), 0.0)  # (a, BLOCK)
    rest = ((noise * sums[:, -1] - before) / own).clamp(0, 1 - 1e-12)  # (a,)
    return (block * BLOCK + _place(inside, rest)).clamp(max=size - 1)


class RoomyLayer(DynamicLayer):
    """A cache layer that writes a new token in place and copies nothing before it.

    Keys and values are views of larger tensors, (r, heads, tokens + room, head_dim).
    """

    def __init__(self) -> None:
        super().__init__()
        self._rooms: dict[str, Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the states of new tokens, (r, heads, new, head_dim); returns those of all tokens."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    def _append(self, name: str, present: Tensor | None, new: Tensor) -> Tensor:
        past = present if present is not None and present.numel() else None
        start = 0 if past is None else past.shape[-2]
        end = start + new.shape[-2]
        room = self._rooms.get(name)
        # Rows that were selected or repeated since then are another tensor, without room.
        if room is None or room.shape[-2] < end or (past is not None and past.data_ptr() != room.data_ptr()):
            room = self._rooms[name] = new.new_empty(*new.shape[:-2], end + ROOM, new.shape[-1])
            if past is not None:
                room[..., :start, :] = past
        room[..., start:end, :] = new
        return room[..., :end, :]


def sampling_cache(config: Any) -> DynamicCache:
    """An empty cache for a model's configuration. Sliding windows and other kinds of layers are transformers' own."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
