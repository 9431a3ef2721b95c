"""Two agents with real tokenizers on one machine: is the run accepted, and what does it take?

`python -m tests.bench.real_shapes [42M | 0.5B ...] [--questions FILE]`

42M: a Qwen3 and a Llama with random weights, the tokenizers of Qwen3 and Llama 3.1 (151,643 and 128,000 pieces), one
step of 8 prompts x 4 rollouts x 256 tokens, all other settings at their defaults but the evaluation, which asks 4
questions. 0.5B: the bodies of Qwen2.5-0.5B and a Llama of that size, LoRA in bfloat16, two steps of 2 prompts x 4
rollouts x 64 tokens. Each run is one of `python -m workers` in a fresh process; its peak is that of the whole process
group, looked at every 50 ms. Questions: a JSONL file with question (or problem) and answer, such as GSM8K's; without
one, sums.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.workers.real_tokenizers import real_tokenizer

# (layers, hidden size, feed-forward size, heads, key-value heads, head size) by family; 42M at a vocabulary of 152k.
BODIES: dict[str, dict[str, tuple[int, int, int, int, int, int]]] = {
    "smoke": {"qwen3": (1, 16, 16, 1, 1, 16), "llama": (1, 16, 16, 1, 1, 16)},
    "42M": {"qwen3": (6, 256, 768, 4, 2, 64), "llama": (8, 288, 864, 4, 2, 72)},
    "0.5B": {"qwen3": (24, 896, 4864, 14, 2, 64), "llama": (22, 960, 4096, 15, 5, 64)},
}
RUNS: dict[str, dict[str, Any]] = {
    "smoke": {"prompts": 2, "group": 2, "tokens": 4, "steps": 1},
    "42M": {"prompts": 8, "group": 4, "tokens": 256, "steps": 1},
    "0.5B": {"prompts": 2, "group": 4, "tokens": 64, "steps": 2, "lora": 16, "dtype": "bfloat16"},
}
# Rollouts without an advantage are not trained on. About half of random texts end like this.
HALF_OF_TEXTS = r"(?s).*[a-m].{0,3}"


def make_model(folder: Path, family: str, body: tuple[int, int, int, int, int, int]) -> int:
    """A model folder with random weights and the family's real tokenizer; the number of parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(real_tokenizer(family))
    layers, hidden, feed_forward, heads, kv_heads, head_dim = body
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return int(sum(parameter.numel() for parameter in model.parameters()))


def spec_of(name: str, folders: dict[str, Path], questions: Path) -> dict[str, Any]:
    run = RUNS[name]
    spec: dict[str, Any] = {
        "agents": [
            {"name": family, "model": str(folder), "lora_rank": run.get("lora", 0)}
            for family, folder in folders.items()
        ],
        "data": {"train_path": str(questions), "held_out_fraction": 0.5, "verifier": "regex"},
        "rollout": {"num_generations": run["group"], "max_completion_length": run["tokens"]},
        "training": {"steps": run["steps"], "train_batch_size": run["prompts"], "mini_batch_size": run["prompts"]},
        "evaluation": {"eval_interval": 0, "max_questions": 4},
        "compute": {"device": "cpu", "num_threads": 1},
    }
    if "dtype" in run:
        spec["compute"]["dtype"] = run["dtype"]
    return spec


def measure(name: str, questions: Path | None) -> dict[str, Any]:
    """Parameters by family, whether it completed, its settled batch, seconds, estimated and measured peak in bytes."""
    from workers.contract.machine import Machine, with_settings
    from workers.contract.memory_footprint import estimate_memory
    from workers.contract.spec.run import RunSpec
    from workers.contract.spool import SPOOL_NAME, read_records
    from workers.trainer.preflight import empty_models, model_shape

    with tempfile.TemporaryDirectory() as root:
        place = Path(root)
        folders = {family: place / family for family in BODIES[name]}
        parameters = {family: make_model(folders[family], family, body) for family, body in BODIES[name].items()}
        texts = [f"What is {a} + {b}?" for a in range(10) for b in range(10)]
        if questions is not None:
            rows = [json.loads(line) for line in questions.read_text().splitlines()]
            texts = [row.get("question") or row["problem"] for row in rows]
        file = place / "questions.jsonl"
        file.write_text("\n".join(json.dumps({"question": text, "answer": HALF_OF_TEXTS}) for text in texts))
        spec_path = place / "spec.json"
        spec_path.write_text(json.dumps(spec_of(name, folders, file)))
        command = [sys.executable, "-m", "workers", str(spec_path), str(place / "run"), "--attempt", "1"]
        begun = time.monotonic()
        process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
        peak = _peak_of(process)
        seconds = time.monotonic() - begun
        assert process.stderr is not None
        if process.returncode:
            raise RuntimeError(process.stderr.read().decode()[-2000:])
        records = [record for _, record in read_records(place / "run" / SPOOL_NAME)]
        settled = next(record["settled"] for record in records if record["type"] == "started")
        spec = with_settings(RunSpec.from_file(spec_path), settled)
        shapes = [shape for model in empty_models(spec) if (shape := model_shape(model)) is not None]
        return {
            "parameters": parameters,
            "outcome": records[-1]["outcome"],
            "tokens_per_micro_batch": settled["training"]["tokens_per_micro_batch"],
            "seconds": seconds,
            "estimate": estimate_memory(spec, shapes, Machine(memory=2**40)).memory,
            "peak": peak,
        }


def _peak_of(process: subprocess.Popen[bytes]) -> int:
    """The most that a process and its descendants held together, until it ended."""
    peak, whole = 0, psutil.Process(process.pid)
    while process.poll() is None:
        resident = 0
        for one in [whole, *whole.children(recursive=True)]:
            try:
                resident += one.memory_info().rss
            except psutil.Error:  # it has ended
                continue
        peak = max(peak, resident)
        time.sleep(0.05)
    return peak


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[[], *RUNS], default=[])
    parser.add_argument("--questions", type=Path, help="JSONL with question and answer")
    parser.add_argument("--smoke", action="store_true", help="the smallest shapes")
    options = parser.parse_args(arguments)
    for name in ["smoke"] if options.smoke else options.names or ["42M", "0.5B"]:
        found = measure(name, options.questions)
        sizes = ", ".join(f"{family} {count:,}" for family, count in found["parameters"].items())
        print(
            f"{name}: {found['outcome']} in {found['seconds']:.0f} s; {sizes} parameters; peak "
            f"{found['peak'] / 2**30:.2f} GiB, estimate {found['estimate'] / 2**30:.2f} GiB, "
            f"{found['tokens_per_micro_batch']} tokens a micro-batch"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
