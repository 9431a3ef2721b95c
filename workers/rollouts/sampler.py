"""Step 2 of Algorithm 1: sample responses with a transformers model, on a CPU or one GPU.

Each distinct prompt is read once and its KV cache repeated for its samples; finished rows leave the batch. A row's
tokens depend on its own key alone (inverse transform sampling with one uniform number per token). The cache grows with
each token; decoder.py has the other way, with a cache of fixed size, for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from workers import heartbeat
from workers.model.chunked_logprobs import Head
from workers.randomness import uniforms
from workers.rollouts.token_sampling import SMALL_VOCABULARY, Buffers, choose_tokens

# Below this share of unfinished rows the batch shrinks: copying the cache costs about two forward passes.
COMPACT_BELOW = 0.75
# Tokens of free space at each growth of the cache. transformers' layer has none: every token copies all of it.
ROOM = 64


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
    textless: ids that are never sampled, for no tokenizer has a text for them; log-probabilities are as with them.
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
    textless: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Most tokens of any row."""
        return max(self.limits, default=self.max_new_tokens)

    @property
    def noise(self) -> Tensor:
        """The uniform number of each token, (r, T), in float64."""
        return torch.from_numpy(uniforms(np.array(self.keys, dtype=np.uint64), self.longest))

    @property
    def stop_tail(self) -> int:
        """Last tokens that hold any stop string, and the character that it begins in: each has at least one byte."""
        return max((len(text.encode()) for text in self.stop), default=0) + 4

    def __post_init__(self) -> None:
        for index, prompt in enumerate(self.prompts):
            if not prompt:
                raise ValueError(f"prompt {index} is empty: a rollout needs a prompt of at least one token")


class BatchSampler(Protocol):
    """Another way to sample a batch than `sample_growing`: decoder.FixedDecoder."""

    def expect(self, request: SampleRequest) -> None:
        """Prepare for a request, which comes in batches."""

    def sample_batch(
        self,
        model: Any,
        request: SampleRequest,
        eos_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str] | None,
        head: Head | None,
    ) -> list[Sample]: ...


@torch.no_grad()  # not inference_mode: some rotary embeddings keep buffers that training then needs
def sample(
    model: Any,
    request: SampleRequest,
    eos_ids: Sequence[int],
    decode: Callable[[Sequence[int]], str] | None = None,
    head: Head | None = None,
    decoder: BatchSampler | None = None,
) -> list[Sample]:
    """One response for each row of a request.

    decode: the text of ids; needed for stop strings.  head: the model's output layer if that is all that follows its
    hidden states; with a large vocabulary on a CPU it saves half of a token's time.  decoder: of this model, to
    sample with a cache of fixed size.
    """
    is_large = model.config.get_text_config().vocab_size > SMALL_VOCABULARY
    head = head if is_large and model.device.type == "cpu" else None
    if decoder is not None:
        decoder.expect(request)
    sample_batch = sample_growing if decoder is None else decoder.sample_batch
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
        by_row.update(zip(chunk, sample_batch(model, batch, eos_ids, decode, head), strict=True))
    return [by_row[row] for row in range(len(rows))]


def sample_growing(
    model: Any,
    request: SampleRequest,
    eos_ids: Sequence[int],
    decode: Callable[[Sequence[int]], str] | None,
    head: Head | None,
) -> list[Sample]:
    """One batch, with a cache that grows: r rows, prompts padded on the left to P, at most T new tokens."""
    device, num_rows = model.device, len(request.rows)
    max_new_tokens = request.longest
    limits = torch.tensor(request.limits or [max_new_tokens] * num_rows, device=device)  # (r,)
    batch = _Batch(model, request, head)
    noise = request.noise.to(device)  # (r, T)
    stops = torch.tensor(sorted(eos_ids), device=device)
    tokens = torch.zeros(num_rows, max_new_tokens, dtype=torch.long, device=device)
    logps = torch.zeros(num_rows, max_new_tokens, device=device)
    entropies = torch.zeros(num_rows, max_new_tokens, device=device)
    lengths = limits.clone()
    finished = torch.zeros(num_rows, dtype=torch.bool, device=device)
    has_stop = torch.zeros(num_rows, dtype=torch.bool, device=device)
    alive = torch.arange(num_rows, device=device)  # rows in the batch now
    for position in range(max_new_tokens):
        heartbeat.send_heartbeat()
        token, logp, entropy = choose_tokens(batch.logits, noise[alive, position], request, batch.buffers)  # (a,) each
        tokens[alive, position], logps[alive, position], entropies[alive, position] = token, logp, entropy
        ended = torch.isin(token, stops) & ~finished[alive]  # (a,)
        if request.stop and decode is not None:
            last = tokens[alive, max(0, position + 1 - request.stop_tail) : position + 1].tolist()
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
    return samples_of((tokens, logps, entropies), lengths, finished, has_stop.tolist())


def samples_of(columns: Sequence[Tensor], lengths: Tensor, finished: Tensor, has_stop: Sequence[bool]) -> list[Sample]:
    """Rows of tokens, log-probabilities and entropies, (r, T) each, cut to their lengths (r,)."""
    ends = zip(lengths.tolist(), finished.tolist(), has_stop, strict=True)
    return [
        Sample(ids[:length], row_logps[:length], is_finished, sum(row_entropies[:length]), at_stop)
        for ids, row_logps, row_entropies, (length, is_finished, at_stop) in zip(
            *(column.tolist() for column in columns), ends, strict=True
        )
    ]


@dataclass(frozen=True)
class ReadPrompts:
    """p prompts that a model has read, padded on the left to P.

    mask: (p, P), True = a token; None without padding.  lengths: (p,).  logits: of the next tokens, (p, V).
    """

    cache: Any
    mask: Tensor | None
    lengths: Tensor
    width: int
    logits: Tensor


def read_prompts(model: Any, prompts: Sequence[Sequence[int]]) -> ReadPrompts:
    """All prompts in one pass."""
    device, width = model.device, max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)  # (p, P)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)  # (p,)
    mask = torch.arange(width, device=device)[None, :] >= (width - lengths)[:, None]  # (p, P)
    is_padded = not bool(mask.all())  # without padding the model takes its fast causal path
    cache = sampling_cache(model.config)
    logits = model(
        input_ids=ids,
        attention_mask=mask.long() if is_padded else None,
        position_ids=(mask.long().cumsum(1) - 1).clamp(min=0) if is_padded else None,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits[:, -1]  # (p, V)
    return ReadPrompts(cache, mask if is_padded else None, lengths, width, logits)


def next_logits(model: Any, head: Head | None, inputs: dict[str, Any], out: Tensor | None = None) -> Tensor:
    """Logits of each row's next token, (a, V), after a pass over one more. out: room for those of a head."""
    if head is None:
        logits: Tensor = model(**inputs, logits_to_keep=1).logits[:, -1]
        return logits
    return head.logits(model.base_model(**inputs).last_hidden_state[:, -1], out)


class _Batch:
    """The model's state while sampling: KV cache, attention mask, next positions and logits of the rows alive."""

    def __init__(self, model: Any, request: SampleRequest, head: Head | None = None) -> None:
        self.model = model
        self.head = head
        rows, prompts = request.rows, read_prompts(model, request.prompts)
        self.cache = prompts.cache
        row = torch.tensor(rows, device=model.device)  # (r,)
        if rows != list(range(len(request.prompts))):
            self.cache.batch_select_indices(row)
        self.logits = prompts.logits[row]  # (r, V)
        if head is not None:  # it writes the next ones over them
            self.logits = self.logits.to(head.dtype)
        self.buffers = Buffers(len(rows), self.logits.shape[-1], model.device, request.textless)
        self.position = prompts.lengths[row]  # (r,)
        self.width = prompts.width
        self.mask: Tensor | None = None
        if prompts.mask is not None:
            room = torch.ones(len(rows), request.max_new_tokens, dtype=torch.long, device=model.device)
            self.mask = torch.cat([prompts.mask.long()[row], room], dim=1)  # (r, P + T)

    def select(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self.cache.batch_select_indices(rows)
        self.position = self.position[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def advance(self, token: Tensor) -> None:
        """Read one more token in each row, (a,); `logits` are then those of the next."""
        self.width += 1
        inputs = {
            "input_ids": token[:, None],
            "attention_mask": None if self.mask is None else self.mask[:, : self.width],
            "position_ids": self.position[:, None],
            "past_key_values": self.cache,
            "use_cache": True,
        }
        self.logits = next_logits(self.model, self.head, inputs, self.logits)
        self.position = self.position + 1


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
