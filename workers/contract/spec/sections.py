"""RunSpec's sections of how a run proceeds: rollouts, training, checkpoints, hardware, telemetry."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.contract.spec.fields import Count, Number, SettingsSection, Share, setting

INSTALL_VLLM = "run `.venv/bin/python -m workers.rollouts.install_vllm` there"
INSTALL_RAY = "run `.venv/bin/pip install -c constraints.txt -e '.[ray]'` there"


class RolloutSpec(SettingsSection):
    """How responses are sampled."""

    engine: Literal["transformers", "vllm"] = setting(
        "transformers",
        label="Rollout engine",
        help="What generates rollouts. transformers: the trainer itself; vllm: a vLLM engine for each agent, in a "
        "separate process (faster from tens of millions of parameters; needs to be installed, see docs/gpu.md).",
        source="design",
    )
    num_generations: Count = setting(
        8,
        label="Rollouts per prompt",
        help="G: rollouts per prompt and agent (gspox2 takes twice as many).",
        source="Sec. 4.1",
        ge=1,
        le=1024,
    )
    temperature: Number = setting(
        1.0, help="Temperature of sampling and of log-probabilities.", source="Sec. 4.1", gt=0, le=5
    )
    max_prompt_length: Count = setting(
        1024, help="Longer prompts are skipped, and counted.", source="Sec. 4.1", unit="tokens", ge=1, le=1_000_000
    )
    max_completion_length: Count = setting(
        4096, help="Most tokens of a completion.", source="Sec. 4.1", unit="tokens", ge=1, le=1_000_000
    )
    rollout_batch_size: Count = setting(
        512, help="Sequences generated at the same time.", source="design", unit="sequences", ge=1, le=100_000
    )
    gpu_memory_utilization: Number = setting(
        0.3,
        label="GPU memory of vLLM",
        help="vllm on a GPU: share of its memory that an engine uses for weights and cache while it generates.",
        source="TRL",
        gt=0,
        lt=1,
    )
    importance_correction: Literal["none", "truncate"] = setting(
        "none",
        help="truncate: the weight of an own rollout in the loss is min(exp(mean log-probability by the trainer - by "
        "the engine), importance_cap), to correct for the two computing differently.",
        source="truncated importance sampling, Yao et al. 2025",
    )
    importance_cap: Number = setting(2.0, help="The highest such weight.", source="Yao et al. 2025", ge=1, le=100)


class TrainingSpec(SettingsSection):
    """Steps, batches and the optimizer (AdamW)."""

    steps: Count = setting(
        58,
        help="Training steps; 58 is one epoch of 7.5k questions at 128 prompts. 0: the agents are only evaluated.",
        source="Sec. 4.1",
        ge=0,
        le=1_000_000,
    )
    train_batch_size: Count = setting(
        128, help="B: prompts per step, the same for every agent.", source="Sec. 4.1", unit="prompts", ge=1, le=100_000
    )
    mini_batch_size: Count = setting(
        64, help="Prompts per update (gspox2 takes half).", source="Sec. 4.1", unit="prompts", ge=1, le=100_000
    )
    num_iterations: Count = setting(1, help="Passes over the rollouts of a step.", source="Sec. 4.1", ge=1, le=100)
    micro_batch_size: Count = setting(
        64,
        help="Sequences a forward pass; no effect on results.",
        source="design",
        unit="sequences",
        ge=1,
        le=100_000,
    )
    learning_rate: Number = setting(1e-6, help="Peak learning rate.", source="Sec. 4.1", gt=0, le=1)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "constant", label="Learning-rate schedule", help="Learning rate after the warm-up.", source="Sec. 4.1"
    )
    warmup_steps: Count = setting(0, help="Steps of linear warm-up.", source="Sec. 4.1", ge=0, le=100_000)
    weight_decay: Share = setting(0.01, help="AdamW weight decay.", source="AdamW")
    adam_beta1: Number = setting(0.9, help="AdamW beta 1.", source="AdamW", ge=0, lt=1)
    adam_beta2: Number = setting(0.999, help="AdamW beta 2.", source="AdamW", ge=0, lt=1)
    max_unscorable: Share = setting(
        0.5,
        help="Largest share of unscorable answers in a step; above it the run retries the verifier, then pauses.",
        source="design: guards",
    )
    max_grad_norm: Number = setting(
        1.0, help="Gradients with a larger norm are scaled down to it.", source="first public code", gt=0, le=1e6
    )

    @field_validator("mini_batch_size")
    @classmethod
    def _mini_batch_divides(cls, size: int, info: ValidationInfo) -> int:
        batch = info.data.get("train_batch_size")  # missing if it was itself refused
        if batch and batch % size:
            raise ValueError(f"must divide train_batch_size {batch}; {size} does not")
        return size


class CheckpointSpec(SettingsSection):
    """Which checkpoints stay on disk."""

    save_steps: Count = setting(
        0, help="Steps between checkpoints; 0: only after the last.", source="TRL", unit="steps", ge=0, le=1_000_000
    )
    keep: Count = setting(2, help="Newest checkpoints kept.", source="product", ge=1, le=1000)
    keep_best: bool = setting(
        True, help="Also keep the checkpoint with the best evaluation (mean of all agents).", source="product"
    )


class ComputeSpec(SettingsSection):
    """Devices, processes and number types."""

    device: Literal["auto", "cpu", "cuda"] = setting("auto", help="auto: a GPU if there is one.", source="product")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", label="Number type", help="Weights; auto: bfloat16 on a GPU, float32 on a CPU.", source="product"
    )
    num_threads: Count = setting(
        0, help="CPU threads of the trainer; 0: one per core.", source="product", ge=0, le=1024
    )
    stall_timeout_s: Count = setting(
        0,
        label="Stall time-out",
        help="A trainer without a sign of work (an event, a token, a micro-batch) for this long counts as hung: its "
        "stacks go to its log, and it restarts from the last checkpoint. 0: 20 times its longest step, at least 30 "
        "minutes.",
        source="product",
        unit="s",
        ge=0,
        le=604_800,
    )
    placement: Literal["local", "ray"] = setting(
        "local",
        help="local: all agents take turns in one process. ray: each agent has its own process, on its own GPUs or "
        "node, and all work at the same time; needs the extra ray (docs/clusters.md).",
        source="design",
    )
    gpus_per_agent: Number = setting(
        1.0,
        label="GPUs per agent",
        help="placement ray: GPUs reserved for each agent; 0.5: two agents share one.",
        source="design",
        gt=0,
        le=64,
    )
    agent_devices: Literal["shared", "own"] = setting(
        "shared",
        label="GPUs of the agents",
        help="shared: all agents take turns on the first GPU; own: each agent on the next GPU, or next GPUs.",
        source="product",
    )
    gradient_checkpointing: bool = setting(
        False,
        help="Recompute activations in backward passes: less memory, a third slower.",
        source="arXiv 1604.06174",
    )
    offload: Literal["none", "optimizer", "idle", "both"] = setting(
        "none",
        help="What is kept in the machine's memory instead of the GPU's. optimizer: AdamW's state and the float32 "
        "weights, which are updated there; idle: all of an agent between its turns.",
        source="ZeRO-Offload, arXiv 2101.06840",
    )
    processes_per_agent: Count = setting(
        1,
        help="Processes of one agent; each has its own GPU and its share of the rollouts and of every mini-batch.",
        source="product",
        ge=1,
        le=64,
    )
    sharding: Literal["none", "fsdp2"] = setting(
        "none",
        help="none: each process of an agent holds all weights; fsdp2: a share of weights, gradients and optimizer "
        "state, and all weights only while it generates.",
        source="PyTorch FSDP2",
    )

    @field_validator("gpus_per_agent")
    @classmethod
    def _whole_gpus(cls, count: float) -> float:
        if count > 1 and count != int(count):
            raise ValueError("above 1 only whole numbers are allowed: an agent has whole GPUs, or a share of one")
        return count

    @field_validator("sharding")
    @classmethod
    def _shards_need_processes(cls, sharding: str, info: ValidationInfo) -> str:
        if sharding == "fsdp2" and info.data.get("processes_per_agent", 2) < 2:
            raise ValueError("fsdp2 splits an agent over its processes: set processes_per_agent to 2 or more")
        if sharding == "fsdp2" and info.data.get("offload", "none") != "none":
            raise ValueError("fsdp2 already splits what offload moves away: set offload or sharding to none")
        return sharding

    @property
    def offloads_optimizer(self) -> bool:
        """Whether AdamW's state and the float32 weights stay in the machine's memory."""
        return self.offload in ("optimizer", "both")

    @property
    def offloads_idle(self) -> bool:
        """Whether an agent leaves the GPU between its turns."""
        return self.offload in ("idle", "both")


class TelemetrySpec(SettingsSection):
    """What is recorded besides the metrics."""

    rollout_interval: Count = setting(
        1, help="Steps between recordings of rollouts; 0: none.", source="product", unit="steps", ge=0, le=100_000
    )
    alignment_interval: Count = setting(
        10,
        help="Steps between measurements of gradient_alignment (each costs as much as a step's updates); 0: none.",
        source="Theorem 4.3",
        unit="steps",
        ge=0,
        le=100_000,
    )
    rollout_steps_kept: Count = setting(
        200,
        help="The database keeps the rollout texts of this many newest recorded steps, and of older ones only the "
        "numbers; 0: all texts.",
        source="product",
        unit="steps",
        ge=0,
        le=1_000_000,
    )
    spool_quota_mib: Count = setting(
        2048,
        label="Spool quota",
        help="Disk space for events that the database has not stored yet. Above half of it log lines and rollouts are "
        "left out, and counted; above nine tenths metrics too.",
        source="product",
        unit="MiB",
        ge=1,
        le=1_000_000,
    )
