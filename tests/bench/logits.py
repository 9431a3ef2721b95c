"""Memory and time of one micro-batch's log-probabilities and gradients: chunks against all logits at once.

`python -m tests.bench.logits [--vocabulary 152000] [--hidden 256] [--layers 4] [--dtype float32] [--device cpu]
[--compare trl]`: each
measurement is a process of its own, so that its peak is its own; both take turns, and ratios are of medians.
--device cuda: wall seconds once the GPU has warmed up, and the peak of its tensors; else processor seconds, and the
peak of the process.

--compare trl: whole GSPO steps of our trainer and of TRL's, sampling included, of 8 rollouts of 256 tokens to one
prompt, as tests/bench/trainer.py times them. Peaks there are above the imported libraries: weights, gradients and AdamW
are in them, and with ours the copy of them to which an update is rolled back.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SHAPES = {"8 rows x 256": (8, 256), "1 row x 4,096": (1, 4096)}
KINDS = ("at once", "by chunks")
TRAINERS = ("TRL", "ours")
PROMPT = 16  # tokens
STEPS = 2  # of a trainer, after one to warm up
PASSES = 5  # on a GPU, after one to warm up


class Meter:
    """Seconds and peak bytes on a device, from its making on."""

    def __init__(self, device: str) -> None:
        import torch

        self._cuda = torch.cuda if device == "cuda" else None
        if self._cuda:
            self._cuda.synchronize()
            self._cuda.reset_peak_memory_stats()
        self._bytes = self._cuda.memory_allocated() if self._cuda else _resident_peak()
        self._start = self._now()

    def _now(self) -> float:
        return time.perf_counter() if self._cuda else time.process_time()

    def seconds(self) -> float:
        if self._cuda:
            self._cuda.synchronize()
        return self._now() - self._start

    def bytes(self) -> int:
        return (int(self._cuda.max_memory_allocated()) if self._cuda else _resident_peak()) - self._bytes


def _resident_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind: str, rows: int, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a forward and backward pass, peak bytes above the model, and the numbers to compare."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from workers.model import chunked_logprobs
    from workers.model.policy import Policy

    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Qwen3Config(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    policy = Policy.__new__(Policy)  # its tokenizer and optimizer have no part in this
    with torch.device(options.device):
        policy.model = Qwen3ForCausalLM(config).to(getattr(torch, options.dtype))
    policy.temperature, policy._has_linear_head = 1.0, chunked_logprobs.is_linear_head(policy.model)
    policy._replaces_head = False
    if kind == "at once":
        chunked_logprobs.MIN_LOGITS = sys.maxsize
    ids = torch.randint(0, options.vocabulary, (rows, PROMPT + tokens)).tolist()
    prompts, responses = [row[:PROMPT] for row in ids], [row[PROMPT:] for row in ids]
    policy.token_logps([[0, 1]], [[2, 3]])  # libraries load what they need
    passes = []
    for _ in range(1 + (PASSES if options.device == "cuda" else 0)):
        policy.model.zero_grad()
        meter = Meter(options.device)
        logps, _ = policy.token_logps(prompts, responses)
        loss = -logps.mean()
        loss.backward()
        passes.append(meter.seconds())
    seconds = statistics.median(passes[1:] or passes)
    weights = [one for one in policy.model.parameters() if one.grad is not None]
    norm = sum(one.grad.float().square().sum().item() for one in weights if one.grad is not None) ** 0.5
    probe = [one.grad.flatten()[:3].tolist() for one in weights[:4] if one.grad is not None]
    return {"seconds": seconds, "bytes": meter.bytes(), "loss": loss.item(), "norm": norm, "probe": probe}


def train(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Median seconds of a trainer's steps, and its peak bytes above the imported libraries."""
    import torch
    import transformers

    from tests.bench.models import Size, dense_reward, make_model, make_spec, write_questions
    from tests.bench.timing import Steps
    from tests.bench.trl_steps import run_trl

    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    rows, tokens = (2, 8) if options.smoke else SHAPES["8 rows x 256"]
    hidden, layers = options.hidden, options.layers
    size = Size(
        options.vocabulary,
        hidden,
        3 * hidden,
        layers,
        heads=4,
        kv_heads=2,
        head_dim=64,
        prompts=1,
        tokens=tokens,
        group=rows,
    )
    with tempfile.TemporaryDirectory() as folder:
        model, questions = Path(folder) / "model", write_questions(Path(folder) / "questions.jsonl", size)
        _apart(lambda: make_model(model, size, seed=0))
        meter = Meter(options.device)
        if name == "TRL":
            steps = run_trl(model, questions, Path(folder) / "run", size, STEPS, lambda: None, options.device)
        else:
            spec = make_spec([model], questions, size, 1, name="gspo")
            compute = spec.compute.model_copy(update={"device": options.device})
            ours = Steps(spec.model_copy(update={"compute": compute}), Path(folder) / "run")
            steps = [ours.step(dense_reward) for _ in range(STEPS + 1)][1:]
            ours.close()
    assert all(step.tokens == rows * tokens for step in steps)
    seconds = [step.wall_s if options.device == "cuda" else step.cpu_s for step in steps]
    return {"seconds": statistics.median(seconds), "bytes": meter.bytes()}


def _apart(work: Callable[[], Any]) -> None:
    """Do it in a process of its own, whose memory is not counted here."""
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the model could not be written")


def child(kind: str, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a process of its own."""
    same = [f"--{name}={getattr(options, name)}" for name in ("vocabulary", "hidden", "layers", "dtype", "device")]
    same += ["--smoke"] if options.smoke else []
    command = [sys.executable, "-m", "tests.bench.logits", *same, "--kind", kind, "--shape", shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _tell(what: str, found: dict[str, Any]) -> None:
    """One measurement on the error output, as it comes."""
    print(f"{what}: {found['seconds']:.3f} s, {found['bytes'] / 1e9:.2f} GB", file=sys.stderr, flush=True)


def compare_trainers(options: argparse.Namespace) -> None:
    """Print our step beside TRL's."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in TRAINERS}
    for _ in range(options.repeats):
        for name in TRAINERS:
            results[name].append(child(name, "8 rows x 256", options))
            _tell(f"a step, {name}", results[name][-1])
    trl, ours = (
        {name: statistics.median(one[name] for one in results[trainer]) for name in ("seconds", "bytes")}
        for trainer in TRAINERS
    )
    print(
        f"a step, vocabulary {options.vocabulary:,}: ours {ours['seconds']:.2f} s, TRL {trl['seconds']:.2f} s "
        f"({ours['seconds'] / trl['seconds']:.2f}); ours {ours['bytes'] / 1e9:.2f} GB, TRL {trl['bytes'] / 1e9:.2f} GB "
        f"({ours['bytes'] / trl['bytes']:.2f})"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=152_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compare", choices=("trl",))
    parser.add_argument("--kind", choices=KINDS + TRAINERS)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--smoke", action="store_true", help="a small vocabulary, once")
    options = parser.parse_args(arguments)
    if options.kind and options.shape:
        is_trainer = options.kind in TRAINERS
        found = train(options.kind, options) if is_trainer else measure(options.kind, *SHAPES[options.shape], options)
        print(json.dumps(found))
        return 0
    if options.smoke:
        options.vocabulary, options.layers, options.repeats = 20_000, 1, 1
    if options.compare:
        compare_trainers(options)
        return 0
    for shape in SHAPES:
        results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for _ in range(options.repeats):
            for kind in KINDS:
                results[kind].append(child(kind, shape, options))
                _tell(f"{shape}, {kind}", results[kind][-1])
        whole, chunks = (
            {
                name: statistics.median(one[name] for one in results[kind])
                for name in ("seconds", "bytes", "loss", "norm")
            }
            for kind in KINDS
        )
        print(
            f"{shape}, vocabulary {options.vocabulary:,}, {options.dtype}: "
            f"{whole['bytes'] / 1e9:.2f} to {chunks['bytes'] / 1e9:.2f} GB ({chunks['bytes'] / whole['bytes']:.2f}), "
            f"{whole['seconds']:.3f} to {chunks['seconds']:.3f} s ({chunks['seconds'] / whole['seconds']:.2f}); "
            f"difference of the loss {abs(whole['loss'] - chunks['loss']):.1e}, "
            f"of the gradient's norm {abs(whole['norm'] - chunks['norm']) / whole['norm']:.1e}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
