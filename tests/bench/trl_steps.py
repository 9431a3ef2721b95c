"""TRL's GRPOTrainer in GSPO form, stopped after each of its optimizer steps so that others may run in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl.trainer.grpo_trainer import GRPOConfig, GRPOTrainer

from tests.bench.models import Size, dense_reward
from tests.bench.timing import Timed, tell


class Between(TrainerCallback):
    """Times what lies between two ends of a step, all of TRL's own loop included, and lets others run at each end."""

    def __init__(self, others: Callable[[], None]) -> None:
        self.others = others
        self.steps: list[Timed] = []
        self.tokens = 0
        self.start = (0.0, 0.0)

    def on_step_begin(self, *arguments: Any, **more: Any) -> None:
        if self.start == (0.0, 0.0):  # the first step, a warm-up, begins here
            self.start = time.perf_counter(), time.process_time()

    def on_step_end(self, *arguments: Any, **more: Any) -> None:
        wall, cpu = time.perf_counter() - self.start[0], time.process_time() - self.start[1]
        self.steps.append(Timed(wall, cpu, tokens=self.tokens))
        tell("TRL", self.steps[-1])
        self.tokens = 0
        self.others()
        self.start = time.perf_counter(), time.process_time()


def run_trl(
    folder: Path,
    questions: Path,
    root: Path,
    size: Size,
    repeats: int,
    others: Callable[[], None],
    device: str = "cpu",
    **changes: Any,
) -> list[Timed]:
    """`repeats` steps of TRL after one to warm up, `others` after each of them. changes: of its settings."""
    between = Between(others)

    def reward(completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
        between.tokens += sum(map(len, completion_ids))
        return [dense_reward(text, gold) for text, gold in zip(completions, answer, strict=True)]

    settings: dict[str, Any] = {
        "output_dir": str(root),
        "use_cpu": device == "cpu",
        "bf16": False,
        "report_to": [],
        "logging_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "optim": "adamw_torch_fused",
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 1.0,
        "weight_decay": 0.01,
        "max_steps": repeats + 1,
        "per_device_train_batch_size": size.prompts * size.group,
        "num_generations": size.group,
        "max_completion_length": size.tokens,
        "temperature": 1.0,
        "beta": 0.0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "dataloader_pin_memory": False,
    }
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16 if changes.get("bf16") else torch.float32
        ),
        reward_funcs=reward,
        args=GRPOConfig(**settings | changes),
        train_dataset=Dataset.from_json(str(questions)).rename_column("question", "prompt"),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[between],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return between.steps[1:]
