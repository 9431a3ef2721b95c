"""RunSpec's section of hardware: devices, processes and number types."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.contract.settings import Count, If, Number, OwnSwitch, SettingsSection, setting

INSTALL_RAY = "run `.venv/bin/pip install -c constraints.txt -e '.[ray]'` there"


class ComputeSpec(SettingsSection):
    """Device and precision."""

    device: Literal["auto", "cpu", "cuda"] = setting("auto", help="auto: a GPU if there is one.", source="product")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", label="Precision", help="Weights; auto: bfloat16 on a GPU, float32 on a CPU.", source="product"
    )
    num_threads: Count = setting(
        0, label="CPU threads", help="CPU threads of the trainer; 0: one per core.", source="product", ge=0, le=1024
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
    placement: Literal["auto", "local", "processes", "ray"] = setting(
        "auto",
        help="local: all agents take turns in one process. processes: each agent has a process of its own on this "
        "machine, and all work at the same time. ray: the same, on the nodes of a cluster; needs the extra ray "
        "(docs/clusters.md). auto: processes where each agent has a GPU of its own, else local.",
        source="design",
    )
    gpus_per_agent: Number = setting(
        1.0,
        label="GPUs per agent",
        help="placement ray: GPUs reserved for each agent; 0.5: two agents share one.",
        source="design",
        needs=[If("placement", "ray")],
        gt=0,
        le=64,
    )
    agent_devices: Literal["auto", "shared", "own"] = setting(
        "auto",
        label="GPUs of the agents",
        help="shared: all agents take turns on the first GPU; own: each agent on the next GPU, or next GPUs; auto: own "
        "where there are enough.",
        source="product",
        needs=[If("device", "auto", "cuda"), If("placement", "auto", "local", "processes")],
    )
    gradient_checkpointing: OwnSwitch = setting(
        None,
        help="Recompute activations in backward passes: less memory, a third slower. Empty: on a GPU.",
        source="arXiv 1604.06174",
    )
    offload: Literal["none", "optimizer", "idle", "both"] = setting(
        "none",
        help="What is kept in the machine's memory instead of the GPU's. optimizer: AdamW's state and the float32 "
        "weights, which are updated there; idle: all of an agent between its turns.",
        source="ZeRO-Offload, arXiv 2101.06840",
        needs=[If("device", "auto", "cuda")],
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
    def is_parallel(self) -> bool:
        """Whether agents work at the same time; after `auto` is settled."""
        return self.placement in ("processes", "ray")

    @property
    def offloads_optimizer(self) -> bool:
        """Whether AdamW's state and the float32 weights stay in the machine's memory."""
        return self.offload in ("optimizer", "both")

    @property
    def offloads_idle(self) -> bool:
        """Whether an agent leaves the GPU between its turns."""
        return self.offload in ("idle", "both")
