"""Step 2 of Algorithm 1: sample responses with a transformers model, on a CPU or one GPU.

Each distinct prompt is read once and its KV cache repeated for its samples; finished rows leave the batch. A row's
tokens follow from its own key alone (inverse transform sampling with one uniform number per token).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers import heartbeat
from workers.randomness import uniforms
from workers.rollouts.kv_cache import sampling_cache

# Below this share of unfinished rows the batch is made smaller: copying the cache costs about two forward passes.
COMPACT_BELOW = 0.75


@dataclass(frozen=True)
class Sample:
    """One sampled response: its ids (EOS included), log-probabilities at the sampling temperature, summed entropy."""

    token_ids: list[int]
    logps: list[float]
    finished: bool
    entropy: float


def refuse_empty(prompts: Sequence[Sequence[int]]) -> None:
    """Error: ValueError where a prompt has no token: there is nothing to go on from."""
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {index} is empty: a rollout needs at least one token to go on from")


@torch.no_grad()  # not inference_mode: some rotary embeddings keep buffers that training then needs
def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    rows: Sequence[int],
    keys: Sequence[int],
    *,
    temperature: float,
    max_new_tokens: int,
    eos_ids: Sequence[int],
    batch_size: int,
) -> list[Sample]:
    """One response for each row; rows[i] is the index of row i's prompt, keys[i] its random key.

    temperature 0 is greedy (log-probabilities then at temperature 1). At most `batch_size` sequences at once.
    """
    # Prompts of like length share a batch: less padding. The order depends on the prompts only.
    order = sorted(range(len(rows)), key=lambda row: (len(prompts[rows[row]]), rows[row], row))
    noise_keys = np.array(keys, dtype=np.uint64)
    by_row: dict[int, Sample] = {}
    for start in range(0, len(order), batch_size):
        chunk = order[start : start + batch_size]
        distinct = list(dict.fromkeys(rows[row] for row in chunk))
        place = {prompt: index for index, prompt in enumerate(distinct)}
        samples = _sample_batch(
            model,
            [prompts[prompt] for prompt in distinct],
            [place[rows[row]] for row in chunk],
            noise_keys[chunk],
            temperature,
            max_new_tokens,
            eos_ids,
        )
        by_row.update(zip(chunk, samples, strict=True))
    return [by_row[row] for row in range(len(rows))]


def _sample_batch(
    model: Any,
    prompts: list[Sequence[int]],
    rows: list[int],
    keys: NDArray[np.uint64],
    temperature: float,
    max_new_tokens: int,
    eos_ids: Sequence[int],
) -> list[Sample]:
    """The loop itself: r rows, prompts padded on the left to P, at most T new tokens."""
    device = model.device
    num_rows = len(rows)
    batch = _Batch(model, prompts, rows, max_new_tokens)
    noise = torch.from_numpy(uniforms(keys, max_new_tokens)).to(device)  # (r, T)
    stops = torch.tensor(sorted(eos_ids), device=device)
    tokens = torch.zeros(num_rows, max_new_tokens, dtype=torch.long, device=device)
    logps = torch.zeros(num_rows, max_new_tokens, device=device)
    entropies = torch.zeros(num_rows, max_new_tokens, device=device)
    lengths = torch.full((num_rows,), max_new_tokens, device=device)
    finished = torch.zeros(num_rows, dtype=torch.bool, device=device)
    alive = torch.arange(num_rows, device=device)  # rows in the batch now
    for position in range(max_new_tokens):
        heartbeat.send_heartbeat()
        token, logp, entropy = _choose(batch.logits, noise[alive, position], temperature)  # (a,) each
        tokens[alive, position], logps[alive, position], entropies[alive, position] = token, logp, entropy
        ended = torch.isin(token, stops) & ~finished[alive]  # (a,)
        lengths[alive[ended]] = position + 1
        finished[alive[ended]] = True
        going = (~finished[alive]).nonzero()[:, 0]
        if not len(going) or position + 1 == max_new_tokens:
            break
        if len(going) < COMPACT_BELOW * len(alive):
            batch.keep(going)
            alive, token = alive[going], token[going]
        batch.advance(token)
    return _collect(tokens, logps, entropies, lengths, finished)


class _Batch:
    """The model's state while sampling: KV cache, attention mask, next positions and logits of the rows alive."""

    def __init__(self, model: Any, prompts: list[Sequence[int]], rows: list[int], max_new_tokens: int) -> None:
        self.model = model
        device = model.device
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
            room = torch.ones(len(rows), max_new_tokens, dtype=torch.long, device=device)
            self.mask = torch.cat([mask.long()[row], room], dim=1)  # (r, P + T)

    def keep(self, rows: Tensor) -> None:
        """Go on with some of the rows only."""
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


def _choose(logits: Tensor, noise: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Next tokens of logits (a, V), their log-probabilities and the distributions' entropies; (a,) each."""
    log_probabilities = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)  # (a, V)
    probabilities = log_probabilities.exp()
    if temperature == 0:
        token = logits.argmax(dim=-1)
    else:
        cumulative = probabilities.double().cumsum(dim=-1)  # (a, V); float32 would lose the tail of a large vocabulary
        target = (noise * cumulative[:, -1])[:, None]
        token = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    # -p log p with 0 where p is 0; special.entr would take every logarithm again.
    entropy = -(probabilities * log_probabilities.clamp(min=-1e30)).sum(dim=-1)
    return token, log_probabilities.gather(1, token[:, None])[:, 0], entropy


def _collect(tokens: Tensor, logps: Tensor, entropies: Tensor, lengths: Tensor, finished: Tensor) -> list[Sample]:
    columns = zip(tokens.tolist(), logps.tolist(), entropies.tolist(), lengths.tolist(), finished.tolist(), strict=True)
    return [
        Sample(ids[:length], row_logps[:length], is_finished, sum(row_entropies[:length]))
        for ids, row_logps, row_entropies, length, is_finished in columns
    ]
