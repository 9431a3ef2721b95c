"""The cache of fixed size with CUDA graphs: the same tokens, and milliseconds by token of each way.

`python -m tests.gpu.test_decoder [ROWS ...]` prints the times alone, one line of JSON each.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from workers.rollouts.decoder import FixedDecoder
from workers.rollouts.sampler import Sample, SampleRequest, sample

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
QWEN_05B = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


def qwen(**changes: Any) -> Any:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Qwen2ForCausalLM(Qwen2Config(**{**QWEN_05B, **changes})).to(torch.bfloat16).eval()


def gemma() -> Any:
    """Every other layer with a window of 64 tokens."""
    sizes = {"vocab_size": 5000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 64}
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Gemma2ForCausalLM(Gemma2Config(**sizes, **heads)).to(torch.bfloat16).eval()


def request(rows: int, tokens: int, vocabulary: int, **changes: Any) -> SampleRequest:
    """Eight rows of each prompt, of 16 to 143 tokens: some have whole blocks of padding."""
    prompts = [
        [(7 * index + place) % vocabulary for place in range(16 + 37 * index % 128)] for index in range(rows // 8)
    ]
    every = {"temperature": 1.0, "max_new_tokens": tokens, "batch_size": rows, **changes}
    return SampleRequest(prompts, [row // 8 for row in range(rows)], [*range(rows)], **every)


def tokens_of(samples: list[Sample]) -> list[list[int]]:
    return [one.token_ids for one in samples]


@pytest.mark.parametrize(
    "changes",
    [{}, {"temperature": 0.0}, {"top_k": 50, "top_p": 0.9}, {"top_p": 0.9}, {"limits": [*range(1, 161)]}],
    ids=str,
)
@pytest.mark.parametrize("make", [gemma, lambda: qwen(num_hidden_layers=4)], ids=["gemma2", "qwen2"])
def test_replayed_tokens_are_those_of_the_same_steps_without_graphs(make: Any, changes: dict[str, Any]) -> None:
    model = make()
    vocabulary = model.config.vocab_size
    wanted = request(160, 160, vocabulary, **changes)
    stops = [*range(0, vocabulary, 60)]  # a row ends after 60 tokens on average
    graphs = FixedDecoder()
    replayed = sample(model, wanted, stops, decoder=graphs)
    assert graphs._steps is not None
    assert graphs._steps._graphs
    assert tokens_of(replayed) == tokens_of(sample(model, wanted, stops, decoder=FixedDecoder(graphs=False)))
    assert replayed == sample(model, wanted, stops, decoder=graphs)  # the graphs are used again
    growing = sample(model, wanted, stops)
    same = [one.token_ids[:1] == other.token_ids[:1] for one, other in zip(replayed, growing, strict=True)]
    assert all(same)  # both begin with the same logits
    # Later tokens differ once bfloat16 rounds otherwise: log-probabilities up to there are near.
    for one, other in zip(replayed, growing, strict=True):
        pairs = zip(one.token_ids, one.logps, other.token_ids, other.logps, strict=False)
        for token, logp, expected, expected_logp in pairs:
            if token != expected:
                break
            assert logp == pytest.approx(expected_logp, abs=0.2)
    graphs.release()


def test_weights_that_were_updated_in_place_are_sampled_from() -> None:
    model, graphs = qwen(num_hidden_layers=2), FixedDecoder()
    wanted = request(64, 32, 151_936)
    before = sample(model, wanted, [], decoder=graphs)
    steps = graphs._steps
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    after = sample(model, wanted, [], decoder=graphs)
    assert graphs._steps is steps
    assert tokens_of(after) != tokens_of(before)
    assert tokens_of(after) == tokens_of(sample(model, wanted, [], decoder=FixedDecoder(graphs=False)))


def times(model: Any, rows: int, tokens: int = 128) -> list[dict[str, Any]]:
    """Of each way: milliseconds by token with a first call, and with a later one; and the peak of tensors."""
    found = []
    wanted = request(rows, tokens, model.config.vocab_size)
    ways = {"graphs": FixedDecoder(), "static without graphs": FixedDecoder(graphs=False), "growing": None}
    for name, decoder in ways.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        measured = []
        for _ in range(2):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            sample(model, wanted, [], decoder=decoder)
            torch.cuda.synchronize()
            measured.append(round(1000 * (time.perf_counter() - begun) / tokens, 2))
        peak = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        found.append({"rows": rows, "way": name, "first_ms": measured[0], "ms": measured[1], "peak_gib": peak})
        if decoder is not None:
            decoder.release()
    return found


def test_a_replayed_token_takes_less_time() -> None:
    model = qwen()
    by_way = {each["way"]: each for each in times(model, 64)}
    print(by_way)
    assert by_way["graphs"]["ms"] < by_way["growing"]["ms"]


if __name__ == "__main__":
    big = qwen()
    for count in map(int, sys.argv[1:] or ["64", "512"]):
        for line in times(big, count):
            print(json.dumps(line), flush=True)
