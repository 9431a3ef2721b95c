"""`placement: ray`: each agent in its own process, on its own GPUs or another node; all work at the same time.

Agents give the same answers as in one process, bit for bit. A lost agent ends the attempt (AgentLost): its peers have
continued, so only the last checkpoint is a state of all of them.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workers import heartbeat
from workers.agents.interface import RemoteAgent
from workers.agents.local import bytes_elsewhere, make_agent
from workers.agents.messages import AgentLost
from workers.agents.parallel import ParallelPlacement
from workers.agents.ray_cluster import Cluster
from workers.contract.spec.run import RunSpec
from workers.model.loading import choose_device, quiet_transformers
from workers.model.memory import bytes_together, used_bytes
from workers.rollouts.engine import check_engine

PLACING_S = 120.0  # until a cluster has room for all agents
MARK_NAME = "ray-mark"  # a file that a node can read only if it sees the same run directory


class NoRoom(RuntimeError):
    """The cluster cannot hold all agents at once."""


class NotShared(RuntimeError):
    """An agent's node does not see the run directory."""


class AgentProcess:
    """The agent in its own process."""

    def load(self, index: int, spec_json: str, run_dir: Path, mark: str, folder: Path | None) -> tuple[str, str]:
        """Device and node. Errors: NotShared, EngineMissing, or what loading raises.

        Not the constructor, because Ray reports its errors as the death of the process.
        """
        spec = RunSpec.model_validate_json(spec_json)
        _check_mark(run_dir, mark)
        check_engine(spec)
        heartbeat.start(run_dir)
        quiet_transformers()
        # Without a number in the spec: this agent's share of the machine.
        torch.set_num_threads(spec.compute.num_threads or max(1, (os.cpu_count() or 1) // len(spec.agents)))
        device = choose_device(spec)
        self.agent = make_agent(spec, index, folder)
        device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return device_name, ray.get_runtime_context().get_node_id()

    def used_bytes(self) -> tuple[int, int | None]:
        """RAM of this and the agent's further processes; the peak of the GPU that was used most."""
        return bytes_together([used_bytes(), bytes_elsewhere(self.agent)])

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.agent, method)(*arguments, **options)


class RayAgent(RemoteAgent):
    """The trainer's side of an agent: each call waits for the answer of its process. Error: AgentLost."""

    def __init__(self, name: str, process: Any) -> None:
        super().__init__(name)
        self._process = process
        self.used_bytes()

    def _answer(self, method: str, *arguments: Any, **options: Any) -> Any:
        return answer_of(self.name, self._process.call.remote(method, *arguments, **options))

    def _measured_bytes(self) -> tuple[int, int | None]:
        measured: tuple[int, int | None] = answer_of(self.name, self._process.used_bytes.remote())
        return measured


class RayPlacement(ParallelPlacement):
    """Places each agent of a run in a process of its own."""

    def __init__(self, spec: RunSpec, run_dir: Path, folders: Sequence[Path] | None = None) -> None:
        """Start Ray if no cluster is named, and load all agents at once.

        Errors: NoRoom, NotShared, AgentLost, or what loading an agent raises.
        """
        super().__init__(len(spec.agents))
        self._processes: list[Any] = []
        self._agents: list[RayAgent] = []
        self._group: PlacementGroup | None = None
        self._cluster = Cluster(run_dir, len(spec.agents))
        try:
            gpus = gpus_of_agent(spec, ray.cluster_resources().get("GPU", 0.0))
            self.gpus = gpus * len(spec.agents)
            self._group = self._reserve(len(spec.agents), gpus)
            self._processes = self._start(len(spec.agents), gpus, self._group)
            self.device_name = self._load(spec, run_dir, folders)
            self._agents = [
                RayAgent(agent.name, process) for agent, process in zip(spec.agents, self._processes, strict=True)
            ]
        except BaseException:
            self.close()
            raise
        self.agents = self._agents

    def _reserve(self, num_agents: int, gpus: float) -> PlacementGroup:
        """One bundle for each agent, all of them or none. Error: NoRoom."""
        bundle = {"CPU": 1.0} | ({"GPU": gpus} if gpus else {})
        group = placement_group([dict(bundle) for _ in range(num_agents)], strategy="PACK")
        if not group.wait(PLACING_S):
            present = {name: count for name, count in ray.cluster_resources().items() if name in ("CPU", "GPU")}
            raise NoRoom(
                f"Ray found no room for {num_agents} agents with {bundle} each within {PLACING_S:.0f} s "
                f"(the cluster has {present}): lower compute.gpus_per_agent, add nodes, or wait for other runs"
            )
        return group

    def _start(self, num_agents: int, gpus: float, group: PlacementGroup) -> list[Any]:
        remote = ray.remote(AgentProcess)
        return [
            remote.options(
                num_cpus=1,
                num_gpus=gpus,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            ).remote()
            for index in range(num_agents)
        ]

    def _load(self, spec: RunSpec, run_dir: Path, folders: Sequence[Path] | None) -> str:
        """Load all agents at the same time. Returns their devices in words."""
        mark = secrets.token_hex(16)
        (run_dir / MARK_NAME).write_text(mark)
        loading = [
            process.load.remote(index, spec.to_json(), run_dir, mark, None if folders is None else folders[index])
            for index, process in enumerate(self._processes)
        ]
        try:
            places = [answer_of(agent.name, each) for agent, each in zip(spec.agents, loading, strict=True)]
        finally:
            (run_dir / MARK_NAME).unlink(missing_ok=True)
        devices, nodes = (set(column) for column in zip(*places, strict=True))
        return ", ".join(sorted(devices)) + (f" on {len(nodes)} nodes" if len(nodes) > 1 else "")

    def close(self) -> None:
        """End the agents' processes, even in the middle of a call, and a private cluster."""
        for process in self._processes:
            ray.kill(process)
        self._processes = []
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None
        self._calls.close()
        self._cluster.leave()


def answer_of(name: str, reference: Any) -> Any:
    """The answer of an agent's process; its own errors are raised unchanged. Error: AgentLost."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, Exception) and not isinstance(error.cause, RayError):
            raise error.cause from None
        raise
    except RayActorError as error:
        cause = " ".join(str(error).split())[:500]
        raise AgentLost(f"the process of agent {name} is gone: {cause}") from error


def gpus_of_agent(spec: RunSpec, cluster_gpus: float) -> float:
    """GPUs that an agent reserves: at least one for each of several processes."""
    uses_gpu = spec.compute.device == "cuda" or (spec.compute.device == "auto" and cluster_gpus > 0)
    if not uses_gpu:
        return 0.0
    processes = spec.compute.processes_per_agent
    return spec.compute.gpus_per_agent if processes == 1 else max(spec.compute.gpus_per_agent, float(processes))


def _check_mark(run_dir: Path, mark: str) -> None:
    """Error: NotShared if this node has a different folder at the run directory's path, or none."""
    path = run_dir / MARK_NAME
    if not path.is_file() or path.read_text() != mark:
        raise NotShared(
            f"node {socket.gethostname()} does not see the run directory {run_dir}: with agents on several nodes the "
            "data folder and the models must lie on a shared file system, at the same path on every node"
        )
