"""Measured peak memory against the estimate, on the CPU: `python -m tests.bench.footprint [CASE ...]`.

Each case trains in a fresh process, two steps, so that every part has been there: weights, AdamW, snapshot,
gradients, activations, logits, KV cache. Its peak is counted above what the imported libraries took; where a run
starts further processes (agents of their own, samplers, vLLM), theirs count whole, as the estimate does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from tests.bench.models import BenchVerifier, Size, make_model, write_questions

# Every response is as long as max_completion_length: the models cannot end one.
SIZES = {
    "smoke": Size(512, 64, 192, 2, 4, 2, 16, prompts=2, tokens=8),
    "5M": Size(4096, 256, 768, 5, 8, 4, 32, prompts=8, tokens=96),
    "30M": Size(8192, 512, 1536, 8, 8, 4, 64, prompts=2, tokens=40),
    "100M": Size(16384, 768, 2304, 12, 12, 4, 64, prompts=2, tokens=24, group=4),
}
SIZES["152k"] = Size(151_643, 128, 384, 4, 4, 2, 32, prompts=4, tokens=128)
SIZES["long"] = Size(4096, 256, 768, 5, 8, 4, 32, prompts=2, tokens=400)
PAIR = {"agents": 2, "algorithm": {"name": "signed", "beta": 0.0}}
LORA = {"training": {"lora_rank": 16}}
# Size, and what differs from one agent in float32 with a reference model.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("smoke", "5M", "30M", "100M", "152k", "long")},
    "5M, beta 0": ("5M", {"algorithm": {"beta": 0.0}}),
    "5M, bfloat16": ("5M", {"compute": {"dtype": "bfloat16"}}),
    "5M, recomputed layers": ("5M", {"compute": {"gradient_checkpointing": True}}),
    "5M, 1,000 tokens a micro-batch": ("5M", {"training": {"tokens_per_micro_batch": 1000}}),
    "5M, pair": ("5M", PAIR),
    "30M, LoRA": ("30M", LORA),
    "30M, LoRA, bfloat16": ("30M", {**LORA, "compute": {"dtype": "bfloat16"}}),
    "30M, pair, LoRA": ("30M", {**PAIR, **LORA}),
    "100M, bfloat16": ("100M", {"compute": {"dtype": "bfloat16"}}),
    "152k, LoRA": ("152k", LORA),
    "152k, bfloat16": ("152k", {"compute": {"dtype": "bfloat16"}}),
    "152k, top_p": ("152k", {"rollout": {"top_p": 0.9}}),
    "30M, sampling ahead": ("30M", {"rollout": {"max_staleness": 1}}),
    "30M, LoRA, sampling ahead": ("30M", {**LORA, "rollout": {"max_staleness": 1}}),
    "5M, pair, processes": ("5M", {**PAIR, "compute": {"placement": "processes"}}),
    "30M, vLLM": ("30M", {"rollout": {"engine": "vllm"}}),
    "30M, LoRA, vLLM": ("30M", {**LORA, "rollout": {"engine": "vllm"}}),
    "100M, LoRA, vLLM": ("100M", {**LORA, "rollout": {"engine": "vllm"}}),
    "30M, LoRA, bfloat16, vLLM": (
        "30M",
        {**LORA, "rollout": {"engine": "vllm"}, "compute": {"dtype": "bfloat16"}},
    ),
}
WITH_VLLM = [name for name in CASES if name.endswith("vLLM")]
DESCENDANTS_EVERY = 50  # looks at the memory: finding them takes longer
PROMPT_TOKENS = 16  # at most; most are 10 to 15


def run_spec(place: Path, size: Size, changes: dict[str, Any]) -> Any:
    from workers.contract.spec.run import RunSpec

    changes = dict(changes)
    sections: dict[str, Any] = {
        "agents": [{"name": name, "model": str(place / "model")} for name in "AB"[: changes.pop("agents", 1)]],
        "data": {"train_path": str(place / "questions.jsonl"), "held_out_fraction": 0.0},
        "algorithm": {"beta": 0.001},
        "rollout": {
            "num_generations": size.group,
            "max_completion_length": size.tokens,
            "max_prompt_length": PROMPT_TOKENS,
        },
        "training": {"steps": 2, "train_batch_size": size.prompts, "mini_batch_size": size.prompts // 2},
        "evaluation": {"eval_interval": 0},
        "compute": {"device": "cpu", "num_threads": 1},
    }
    for name, section in changes.items():
        sections[name] = {**sections[name], **section}
    return RunSpec.model_validate(sections)


class AnyAnswer(BenchVerifier):
    """Rewards by a hash of the text; no reference answer is doubted."""

    def doubts(self, answers: list[str]) -> list[str]:
        return [""] * len(answers)


class Peak:
    """The highest resident memory of this process and its descendants between start and stop, looked at every 2 ms."""

    def __init__(self) -> None:
        self._processes = [psutil.Process()]
        self.before = self.highest = self._resident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        for look in itertools.count():
            if self._ended.wait(0.002):
                return
            if look % DESCENDANTS_EVERY == 0:
                self._processes[1:] = self._processes[0].children(recursive=True)
            self.highest = max(self.highest, self._resident())

    def _resident(self) -> int:
        total = 0
        for process in self._processes:
            with contextlib.suppress(psutil.Error):  # it has ended
                total += process.memory_info().rss
        return total

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self.highest - self.before


def measure(case: str) -> dict[str, float]:
    """The estimate and the peak of one run in a fresh process, in bytes, without what the process itself takes."""
    with tempfile.TemporaryDirectory() as place:
        _in_fresh_process("make", case, place)
        found: dict[str, float] = json.loads(_in_fresh_process("train", case, place))
    return found


def _in_fresh_process(*arguments: str) -> str:
    """The last line that this file, run with these arguments, prints."""
    # Freed memory goes back at once.
    variables = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.bench.footprint", *arguments]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.splitlines()[-1] if done.stdout else ""


def train(case: str, place: Path) -> None:
    """Train, and print the numbers. The peak counts from before the model is loaded."""
    from workers.contract.memory.footprint import PROCESS_BYTES, estimate_memory
    from workers.contract.memory.machine import Machine
    from workers.contract.spool import SpoolWriter
    from workers.trainer.preflight import empty_model, model_shape
    from workers.trainer.stop_signals import StopFlag
    from workers.trainer.trainer import Trainer

    size, changes = CASES[case]
    spec = run_spec(place, SIZES[size], changes)
    shape = model_shape(empty_model(str(place / "model"), None))
    assert shape is not None
    expected = estimate_memory(spec, [shape] * len(spec.agents), Machine(memory=2**40)).memory - PROCESS_BYTES
    verifier: Any = AnyAnswer()
    trainer = Trainer(spec, place, SpoolWriter(place, 1), verifier, StopFlag())
    peak, began = Peak(), time.monotonic()
    trainer.train()
    measured = peak.stop()
    trainer.close()
    seconds = time.monotonic() - began
    print(json.dumps({"parameters": shape.parameters, "expected": expected, "measured": measured, "seconds": seconds}))


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["make"]:
        size = SIZES[CASES[arguments[1]][0]]
        make_model(Path(arguments[2]) / "model", size, seed=0)
        write_questions(Path(arguments[2]) / "questions.jsonl", size)
        return
    if arguments[:1] == ["train"]:
        train(arguments[1], Path(arguments[2]))
        return
    print(f"{'case':>30} {'parameters':>12} {'estimate':>10} {'measured':>10} {'ratio':>6}")
    possible = [case for case in list(CASES)[1:] if case not in WITH_VLLM or find_spec("vllm")]
    for case in ["smoke"] if arguments == ["--smoke"] else arguments or possible:
        found = measure(case)
        expected, measured = found["expected"] / 2**20, found["measured"] / 2**20
        sizes = f"{found['parameters']:12,} {expected:6.0f} MiB {measured:6.0f} MiB {measured / expected:6.3f}"
        print(f"{case:>30} {sizes}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
