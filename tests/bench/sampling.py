"""Time of sampling at a large vocabulary against the model's own forward passes: `python -m tests.bench.sampling`.

Both read the same prompts and write as many tokens with the same KV cache; the forward passes alone choose nothing.
They take turns in one process, and the ratio is of medians of processor time, with --device cuda of wall time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

PROMPT = 16  # tokens
TEMPERATURE = 0.06  # of random weights: the distribution is as peaked as a trained model's at 1


def seconds(work: Callable[[], Any], device: str) -> float:
    import torch

    clock = time.perf_counter if device == "cuda" else time.process_time
    began = clock()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=151_643)
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a small model, once")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.vocabulary, options.hidden, options.layers, options.tokens, options.repeats = 20_000, 64, 1, 4, 1

    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from workers.model.chunked_logprobs import Head
    from workers.rollouts.decoder import FixedDecoder
    from workers.rollouts.sampler import SampleRequest, _Batch, sample

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Qwen2Config(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=5 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.hidden // 64),
        num_key_value_heads=max(1, options.hidden // 448),
        tie_word_embeddings=True,
    )
    with torch.device(options.device):
        model = Qwen2ForCausalLM(config).to(getattr(torch, options.dtype)).eval()
    head = Head.of(model)
    prompts = torch.randint(0, options.vocabulary, (options.rows, PROMPT)).tolist()
    count = range(options.rows)

    def request(**settings: Any) -> SampleRequest:
        return SampleRequest(prompts, count, [*count], TEMPERATURE, options.tokens, options.rows, **settings)

    @torch.no_grad()
    def forward_passes() -> None:
        batch, token = _Batch(model, request()), torch.zeros(options.rows, dtype=torch.long, device=options.device)
        for _ in range(options.tokens - 1):
            batch.advance(token)

    decoder = FixedDecoder()
    ways: dict[str, Callable[[], Any]] = {
        "forward passes": forward_passes,
        "sampling": lambda: sample(model, request(), [], head=head),
        "with a cache of fixed size": lambda: sample(model, request(), [], head=head, decoder=decoder),
        "with top_p .95": lambda: sample(model, request(top_p=0.95), [], head=head),
        "with top_k 50": lambda: sample(model, request(top_k=50), [], head=head),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    forward_passes()
    ways["with a cache of fixed size"]()  # checks the model, and on a GPU captures graphs
    for _ in range(options.repeats):
        for name, work in ways.items():
            times[name].append(seconds(work, options.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    passes = medians.pop("forward passes")
    parameters = sum(one.numel() for one in model.parameters())
    print(f"{parameters:,} parameters, vocabulary {options.vocabulary:,}, {options.dtype}, {options.rows} rows:")
    for name, value in medians.items():
        print(f"  {name}: {value / passes:.2f} of the forward passes ({value:.2f} and {passes:.2f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
