"""The processes of agents. `local`: this one, in turns; `processes`, `ray`: one for each agent, at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from workers.agents import ray_cluster
from workers.agents.interface import AgentInterface, Answer, Placement
from workers.agents.local import bytes_elsewhere, make_agent
from workers.agents.multi_process import RankedAgent
from workers.agents.parallel import ParallelPlacement
from workers.contract.spec.compute import INSTALL_RAY
from workers.contract.spec.run import RunSpec
from workers.model import memory
from workers.model.loading import choose_device
from workers.rollouts.engine import check_engine


class RayMissing(RuntimeError):
    """compute.placement is ray, and Ray is not installed."""


def held_gpus(spec: RunSpec) -> float:
    """How many GPUs of this machine the agents' processes use together."""
    ranks = range(spec.compute.processes_per_agent)
    places = [choose_device(spec, index, rank) for index in range(len(spec.agents)) for rank in ranks]
    return float(len({str(place) for place in places if place.type == "cuda"}))


class LocalPlacement:
    """Keeps all agents in this process."""

    is_parallel = False

    def __init__(self, spec: RunSpec, folders: Sequence[Path] | None = None) -> None:
        """Load the agents: the spec's models, or a checkpoint folder for each. Error: EngineMissing."""
        check_engine(spec)
        if spec.compute.num_threads:
            torch.set_num_threads(spec.compute.num_threads)
        elif spec.rollout.samples_ahead:  # the samplers have the other half
            torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // 2)))
        device = choose_device(spec)
        self.device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.gpus = held_gpus(spec)
        self._local = [
            make_agent(spec, index, None if folders is None else folders[index]) for index in range(len(spec.agents))
        ]
        self.agents: Sequence[AgentInterface] = self._local

    def begin(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Each call begins when its answer is needed: one agent after the other."""
        return calls

    def has_ended_within(self, seconds: float) -> bool:
        """A call ends before it returns."""
        return True

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of the trainer and of its agents' further processes; the peak of the GPU that was used most."""
        return memory.bytes_together([memory.used_bytes(), *map(bytes_elsewhere, self._local)])

    def close(self) -> None:
        """End the agents' engines and processes; the rest ends with this process."""
        for agent in self._local:
            agent.close()


class ProcessesPlacement(ParallelPlacement):
    """Each agent in a process of its own on this machine."""

    def __init__(self, spec: RunSpec, folders: Sequence[Path] | None = None) -> None:
        """Load all agents at once. Errors: EngineMissing, AgentLost, AgentFailed."""
        check_engine(spec)
        indices = range(len(spec.agents))
        devices = [choose_device(spec, index) for index in indices]
        self.device_name = ", ".join(
            dict.fromkeys(torch.cuda.get_device_name(one) if one.type == "cuda" else "cpu" for one in devices)
        )
        self.gpus = held_gpus(spec)
        super().__init__(len(spec.agents))
        self._agents: list[RankedAgent] = []
        try:
            loads = [
                partial(RankedAgent, spec, index, None if folders is None else folders[index]) for index in indices
            ]
            for wait in self._calls.begin(loads):
                self._agents.append(wait())
        except BaseException:
            self.close()
            raise
        self.agents = self._agents

    def close(self) -> None:
        """End the agents' processes, even in the middle of a call."""
        for agent in self._agents:
            agent.close()
        self._calls.close()


def place(spec: RunSpec, run_dir: Path, folders: Sequence[Path] | None = None) -> Placement:
    """The agents by compute.placement; an unresolved `auto` means local. run_dir: of the run, on this host.

    Error: RayMissing.
    """
    if spec.compute.placement == "processes":
        return ProcessesPlacement(spec, folders)
    if spec.compute.placement != "ray":
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
