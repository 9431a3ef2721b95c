"""Runs of real size on one GPU: memory against the estimate, and seconds of a step by phase.

`python -m tests.bench.gpu [CASE ...] [--device cuda]`: each case trains two steps in a fresh process, with random
weights, and every response as long as it may be, so that every part of the memory has been there.
Peaks are of tensors, and of what torch reserved for them; the estimate is without the process's own context. A case
with `gib` sees a GPU of that size: torch refuses what goes beyond, and the batches are fitted to it. No checkpoint is
written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.bench.footprint import AnyAnswer
from tests.bench.models import Size, make_model, write_questions

GIB = 2**30
QWEN_05B = Size(151_643, 896, 4864, 24, 14, 2, 64, prompts=8, tokens=256)  # the body of Qwen2.5-0.5B
LLAMA_1B = Size(128_256, 2048, 8192, 16, 32, 8, 64, prompts=8, tokens=256)  # of Llama-3.2-1B
SMOKE = Size(512, 64, 192, 2, 4, 2, 16, prompts=2, tokens=8)
# What the preset gpu-24gb says (hacrl_web/runs/launch/presets.py).
PRESET_24GB: dict[str, Any] = {
    "training": {"train_batch_size": 32, "mini_batch_size": 16, "lora_rank": 16, "lora_learning_rate_factor": 10},
    "rollout": {"max_prompt_length": 512, "max_completion_length": 1024, "rollout_batch_size": 256},
}


@dataclass(frozen=True)
class Case:
    """The models, what differs from the defaults, and the memory of the GPU in GiB; 0: all that it has."""

    sizes: tuple[Size, ...]
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    gib: int = 0
    steps: int = 2


LORA = {"training": {"lora_rank": 16}}
CASES = {
    "smoke": Case((SMOKE, SMOKE)),
    "0.5B": Case((QWEN_05B,)),
    "0.5B, all activations": Case((QWEN_05B,), {"compute": {"gradient_checkpointing": False}}),
    "0.5B, float32": Case((QWEN_05B,), {"compute": {"dtype": "float32"}}),
    "0.5B, reference model": Case((QWEN_05B,), {"algorithm": {"beta": 0.001}}),
    "0.5B, AdamW in main memory": Case((QWEN_05B,), {"compute": {"offload": "optimizer"}}),
    "0.5B, LoRA": Case((QWEN_05B,), LORA),
    "0.5B, LoRA, all activations": Case((QWEN_05B,), {**LORA, "compute": {"gradient_checkpointing": False}}),
    "0.5B, one step off": Case((QWEN_05B,), {"rollout": {"max_staleness": 1}}),
    "1.2B": Case((LLAMA_1B,)),
    "1.2B, LoRA": Case((LLAMA_1B,), LORA),
    "0.5B + 1.2B": Case((QWEN_05B, LLAMA_1B)),
    "0.5B + 1.2B, idle agents in main memory": Case((QWEN_05B, LLAMA_1B), {"compute": {"offload": "idle"}}),
    "0.5B + 1.2B, all weights, 16 GiB": Case((QWEN_05B, LLAMA_1B), {"compute": {"offload": "both"}}, gib=16),
    "0.5B + 1.2B, preset gpu-24gb": Case((QWEN_05B, LLAMA_1B), PRESET_24GB, gib=24, steps=1),
}


def run_spec(place: Path, models: Sequence[Path], case: Case, device: str) -> Any:
    from workers.contract.spec.run import RunSpec

    size, changes = case.sizes[0], case.changes
    sections: dict[str, Any] = {
        "agents": [{"name": model.name, "model": str(model)} for model in models],
        "data": {"train_path": str(place / "questions.jsonl"), "held_out_fraction": 0.0},
        "algorithm": {"beta": 0.0, **({"name": "signed"} if len(case.sizes) > 1 else {})},
        "rollout": {"num_generations": size.group, "max_completion_length": size.tokens, "max_prompt_length": 16},
        "training": {"steps": case.steps, "train_batch_size": size.prompts, "mini_batch_size": size.prompts // 2},
        "evaluation": {"eval_interval": 0},
        "compute": {"device": device, "num_threads": 0},
    }
    for name, section in changes.items():
        sections[name] = {**sections[name], **section}
    return RunSpec.model_validate(sections)


def _pass_over_checkpoint(trainer: Any) -> None:
    """Writing one takes longer than the steps."""
    trainer.checkpoints.step = trainer.step


def train(name: str, root: Path, device: str) -> dict[str, Any]:
    """Train in this process; the numbers in bytes and seconds. Models stay in `root`, for other cases."""
    import torch

    from workers.contract.machine import Machine, with_settings
    from workers.contract.memory_footprint import CUDA_CONTEXT_BYTES, estimate_memory
    from workers.contract.spool import SPOOL_NAME, SpoolWriter, read_records
    from workers.trainer import preflight
    from workers.trainer.preflight import empty_model, model_shape
    from workers.trainer.stop_signals import StopFlag
    from workers.trainer.trainer import Trainer

    case, place = CASES[name], Path(tempfile.mkdtemp(dir=root))
    models = [root / f"agent {number} {size.hidden}" for number, size in enumerate(case.sizes)]
    for number, (folder, size) in enumerate(zip(models, case.sizes, strict=True)):
        if not folder.exists():
            make_model(folder, size, seed=number)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # the models were made there
    write_questions(place / "questions.jsonl", case.sizes[0])
    spec = run_spec(place, models, case, device)
    shapes = [shape for agent in spec.agents if (shape := model_shape(empty_model(agent.model, None)))]
    has_gpu = device == "cuda"
    patches: list[Any] = [mock.patch.object(Trainer, "save", _pass_over_checkpoint)]
    whole = torch.cuda.get_device_properties(0).total_memory if has_gpu else 0
    gpu = min(case.gib * GIB or whole, whole)
    if gpu < whole:
        torch.cuda.set_per_process_memory_fraction((gpu - CUDA_CONTEXT_BYTES) / whole)
        machine = preflight.this_machine(spec).model_copy(update={"gpus": (gpu,)})
        patches += [
            mock.patch.object(torch.cuda, "mem_get_info", return_value=(gpu - CUDA_CONTEXT_BYTES, gpu)),
            mock.patch.object(preflight, "this_machine", return_value=machine),
        ]
    for patch in patches:
        patch.start()
    verifier: Any = AnyAnswer()
    begun = time.monotonic()
    trainer = Trainer(spec, place, SpoolWriter(place, 1), verifier, StopFlag())
    trainer.train()
    trainer.close()
    seconds = time.monotonic() - begun
    records = [record for _, record in read_records(place / SPOOL_NAME)]
    started = next(record for record in records if record["type"] == "started")
    spec = with_settings(spec, started["settled"])
    steps = [record for record in records if record["type"] == "progress"]
    host = Machine(memory=2**40)
    estimated = estimate_memory(spec, shapes, Machine(gpus=(gpu,), memory=2**40) if has_gpu else host)
    return {
        "parameters": sum(shape.parameters for shape in shapes),
        "expected": (estimated.gpu - CUDA_CONTEXT_BYTES) if has_gpu else estimated.memory,
        "measured": max((step["device_peak_bytes"] or 0 for step in steps), default=0),
        "reserved": torch.cuda.max_memory_reserved() if has_gpu else 0,
        "host": max(step["resident_bytes"] for step in steps),
        "host_expected": estimated.memory,
        "seconds": seconds,
        "phase_s": steps[-1]["phase_s"],
        "step_s": sum(steps[-1]["phase_s"].values()),
        "settled": started["settled"],
        "steps": steps[-1]["step"],
        "logs": [record["message"] for record in records if record["type"] == "log" and "memory" in record["message"]],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--smoke", action="store_true", help="the smallest case, on the CPU")
    parser.add_argument("--here", help="one case in this process")
    parser.add_argument("--root", type=Path, help="of its models")
    parser.add_argument("--json", type=Path, help="all numbers, one line a case")
    options = parser.parse_args(arguments)
    if options.here:
        print(json.dumps(train(options.here, options.root, options.device)))
        return 0
    with tempfile.TemporaryDirectory() as root:
        measure(options, Path(root))
    return 0


def measure(options: argparse.Namespace, root: Path) -> None:
    """Each case in a fresh process, and its line."""
    device = "cpu" if options.smoke else options.device
    for name in ["smoke"] if options.smoke else options.names or list(CASES)[1:]:
        command = [sys.executable, "-m", "tests.bench.gpu", "--here", name, "--root", str(root), "--device", device]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed: {done.stderr[-1500:]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps({"case": name, **found}) + "\n")
        expected, measured = found["expected"] / GIB, found["measured"] / GIB
        print(
            f"{name}: {found['steps']} steps, the last in {found['step_s']:.1f} s; tensors {measured:.2f} GiB, "
            f"reserved {found['reserved'] / GIB:.2f} GiB, estimate {expected:.2f} GiB ({measured / expected:.2f}); "
            f"{found['settled']['training']['tokens_per_micro_batch']} tokens a micro-batch",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
