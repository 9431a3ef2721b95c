"""RunSpec's section of training: steps, batches and the optimizer."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.contract.settings import (
    Batch,
    Count,
    Decay,
    If,
    Interval,
    Million,
    Number,
    Part,
    SettingsSection,
    Share,
    setting,
)
from workers.contract.spec.data import TrainingBenchmark


class TrainingSpec(SettingsSection):
    """Steps, batches and the optimizer (AdamW)."""

    steps: Million = setting(
        58,
        help="Training steps; 58 is one epoch of 7.5k questions at 128 prompts. 0: the agents are only evaluated.",
        source="Sec. 4.1",
    )
    train_batch_size: Batch = setting(
        128,
        label="Prompts per step",
        help="B: prompts per step, the same for every agent.",
        source="Sec. 4.1",
        unit="prompts",
    )
    mini_batch_size: Batch = setting(
        64,
        label="Prompts per update",
        help="Prompts per update (gspox2 takes half).",
        source="Sec. 4.1",
        unit="prompts",
    )
    num_iterations: Count = setting(
        1,
        label="Passes over the rollouts",
        help="Passes over the rollouts of a step. Where rollouts are shared, more passes taught more in every "
        "comparison so far: docs/science.md.",
        source="Sec. 4.1",
        ge=1,
        le=100,
    )
    micro_batch_size: Batch = setting(
        64,
        label="Sequences per forward pass",
        help="Most sequences of a forward pass; no effect on results.",
        source="design",
        changes_results=False,
        unit="sequences",
    )
    tokens_per_micro_batch: Count = setting(
        0,
        label="Tokens per forward pass",
        help="Most tokens of a forward pass, padding included; 0: as many as the memory holds that is free when the "
        "run starts. No effect on results.",
        source="design",
        changes_results=False,
        unit="tokens",
        ge=0,
        le=100_000_000,
    )
    learning_rate: Part = setting(1e-6, help="Peak learning rate.", source="Sec. 4.1")
    lora_rank: Count = setting(
        0,
        label="LoRA rank",
        help="LoRA rank of the agents to which their group gives none; 0: they train all weights.",
        source="LoRA, arXiv 2106.09685",
        ge=0,
        le=1024,
    )
    lora_learning_rate_factor: Number = setting(
        10.0,
        label="LoRA learning-rate factor",
        help="An agent with LoRA has this many times the learning rate, unless its group gives it one of its own.",
        source="Schulman et al., LoRA Without Regret, 2025",
        gt=0,
        le=1000,
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "constant", label="Learning-rate schedule", help="Learning rate after the warm-up.", source="Sec. 4.1"
    )
    warmup_steps: Interval = setting(0, label="Warm-up steps", help="Steps of linear warm-up.", source="Sec. 4.1")
    weight_decay: Share = setting(0.01, help="AdamW weight decay.", source="AdamW")
    adam_beta1: Decay = setting(0.9, label="AdamW beta 1", help="AdamW beta 1.", source="AdamW")
    adam_beta2: Decay = setting(0.999, label="AdamW beta 2", help="AdamW beta 2.", source="AdamW")
    max_unscorable: Share = setting(
        0.5,
        label="Largest unscorable share",
        help="Largest share of unscorable answers in a step; above it the run retries the verifier, then pauses.",
        source="design: guards",
    )
    max_grad_norm: Number = setting(
        1.0,
        label="Largest gradient norm",
        help="Gradients with a larger norm are scaled down to it.",
        source="first public code",
        gt=0,
        le=1e6,
    )

    benchmarks: tuple[TrainingBenchmark, ...] = setting(
        (),
        label="Further training sets",
        help="Further benchmarks whose training questions the run trains on, each with a weight: how often its "
        "questions are drawn, relative to benchmark_weight of the run's own. Each question keeps the prompt and the "
        "verifier of its benchmark.",
        source="product",
        max_length=20,
    )
    benchmark_weight: Number = setting(
        1.0,
        label="Weight of the run's benchmark",
        help="How often questions of the run's own benchmark are drawn, relative to the further training sets.",
        source="product",
        needs=[If("benchmarks")],
        gt=0,
        le=1e6,
    )

    @field_validator("benchmarks")
    @classmethod
    def _benchmarks_differ(cls, benchmarks: tuple[TrainingBenchmark, ...]) -> tuple[TrainingBenchmark, ...]:
        names = [one.benchmark for one in benchmarks]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is listed twice: remove one of the two, and give the other its weight")
        return benchmarks

    @field_validator("mini_batch_size")
    @classmethod
    def _mini_batch_divides(cls, size: int, info: ValidationInfo) -> int:
        batch = info.data.get("train_batch_size")  # missing if it was itself refused
        if batch and batch % size:
            raise ValueError(f"must divide train_batch_size {batch}; {size} does not")
        return size
