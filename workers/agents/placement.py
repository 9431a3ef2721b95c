"""Where agents live: `local`, all in this process, in turns; `ray`, each in its own process, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from workers.agents import ray_cluster
from workers.agents.interface import AgentInterface, Answer, Placement
from workers.agents.multi_process import make_agent
from workers.contract.spec.compute import INSTALL_RAY
from workers.contract.spec.run import RunSpec
from workers.model import memory
from workers.model.loading import choose_device
from workers.rollouts.engine import check_engine


class RayMissing(RuntimeError):
    """compute.placement is ray, and Ray is not installed."""


class LocalPlacement:
    """All agents in this process."""

    is_parallel = False

    def __init__(self, spec: RunSpec, folders: Sequence[Path] | None = None) -> None:
        """Load the agents: the spec's models, or a checkpoint folder for each. Error: EngineMissing."""
        check_engine(spec)
        if spec.compute.num_threads:
            torch.set_num_threads(spec.compute.num_threads)
        device = choose_device(spec)
        self.device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self._local = [
            make_agent(spec, index, None if folders is None else folders[index]) for index in range(len(spec.agents))
        ]
        self.agents: Sequence[AgentInterface] = self._local

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Each call begins when its answer is needed: one agent after the other."""
        return calls

    def used_bytes(self) -> tuple[int, int | None]:
        return memory.used_bytes()

    def close(self) -> None:
        """End the agents' engines and processes; the rest ends with this process."""
        for agent in self._local:
            agent.close()


def place(spec: RunSpec, run_dir: Path, folders: Sequence[Path] | None = None) -> Placement:
    """The agents by compute.placement. run_dir: of the run, on this host. Error: RayMissing."""
    if spec.compute.placement == "local":
        return LocalPlacement(spec, folders)
    ray_cluster.set_environment()
    try:
        from workers.agents.ray_placement import RayPlacement
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise RayMissing(
            f"compute.placement is ray, and Ray is not installed on this host: {INSTALL_RAY}; or choose local"
        ) from None
    return RayPlacement(spec, run_dir, folders)


def introduction(agent: AgentInterface) -> str:
    """One line about an agent for the log."""
    facts = agent.describe()
    size = f"{facts['num_parameters']:,} parameters, {facts['dtype']}"
    trained = facts["num_trained"]
    is_partly = trained not in (0, facts["num_parameters"])
    by_lora = f"; {trained:,} LoRA parameters are trained" if is_partly else ""
    return f"{agent.name}: {facts['architecture']}, {size}{by_lora}"
