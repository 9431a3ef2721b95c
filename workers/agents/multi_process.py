"""An agent in one or several processes of its own, which the trainer sees as one agent; rank_main.py is their code.

Each call goes to all processes, over a socket pair each; the first one's answer is the agent's. They belong to the
trainer's process group, and end when it does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from workers import heartbeat
from workers.agents.interface import RemoteAgent, forwarded
from workers.agents.messages import AgentLost, RolloutsMissing
from workers.contract.repository import ROOT
from workers.contract.spec.run import RunSpec
from workers.environments.base import EnvironmentFailed
from workers.model.loading import choose_device
from workers.model.memory import bytes_together
from workers.model.process_group import Ranks
from workers.rollouts.vllm_engine import remove_abandoned_weights

GRACE_S = 5.0  # for a process that has closed its connection to end


class AgentFailed(RuntimeError):
    """A call failed in a process of an agent; the text gives the reason."""


@dataclass(frozen=True)
class Start:
    """The first message to a process of an agent. rendezvous: the file by which the processes find each other."""

    spec: RunSpec
    agent_index: int
    ranks: Ranks
    folder: Path | None
    rendezvous: Path


@dataclass(frozen=True)
class Failure:
    """The error of a call in one process. is_of_all: all processes raised it together.

    is_of_disk: a file could not be written, after the processes communicated, so none waits for another.
    is_of_environment: all processes raised it, and its cause is not the agent.
    """

    error: str
    is_of_all: bool = False
    is_of_disk: bool = False
    is_of_environment: bool = False


class RankedAgent(RemoteAgent):
    """One agent in `processes_per_agent` processes."""

    def __init__(self, spec: RunSpec, agent_index: int, folder: Path | None) -> None:
        """Start the processes and wait until they have loaded. Errors: AgentLost, AgentFailed."""
        super().__init__(spec.agents[agent_index].name)
        size, is_sharded = spec.compute.processes_per_agent, spec.compute.sharding == "fsdp2"
        choose_device(spec, agent_index)  # raises what the processes would raise, before any starts
        self._has_vllm = spec.rollout.engine == "vllm"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        meeting = Path(tempfile.mkdtemp(prefix="hacrl-ranks-"))
        try:
            for rank in range(size):
                self._start(rank, size)
                start = Start(spec, agent_index, Ranks(rank, size, is_sharded), folder, meeting / "file")
                with contextlib.suppress(BrokenPipeError):  # _answers reports how it ended
                    self._connections[rank].send(start)
            self._answers("load")
            self.used_bytes()
        except BaseException:
            self.close()
            raise
        finally:
            shutil.rmtree(meeting, ignore_errors=True)

    def _start(self, rank: int, size: int) -> None:
        ours, theirs = Pipe()
        heartbeat_file = heartbeat.descriptor()
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GLOO_SOCKET_IFNAME": loopback,
            "NCCL_SOCKET_IFNAME": loopback,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        with theirs:
            descriptors = [theirs.fileno(), *([] if heartbeat_file is None else [heartbeat_file])]
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "workers.agents.rank_main", *map(str, descriptors)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=descriptors,
                    env={**os.environ, **variables},
                )
            )
        self._connections.append(ours)

    def _answer(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call every process. Errors: AgentLost, AgentFailed; RolloutsMissing and OSError do not end the agent."""
        return self._answers_of_all(method, arguments, options)[0]

    def _measured_bytes(self) -> tuple[int, int | None]:
        return bytes_together(self._answers_of_all("used_bytes", (), {}))

    sample_with = forwarded("sample_with")  # of an agent that samples for another process

    def _answers_of_all(self, method: str, arguments: Any, options: Any) -> list[Any]:
        if not self._connections:
            raise AgentLost(f"{self.name} has ended")
        for connection in self._connections:
            with contextlib.suppress(BrokenPipeError):
                connection.send((method, arguments, options))
        return self._answers(method)

    def _answers(self, method: str) -> list[Any]:
        answers: list[Any] = [None] * len(self._connections)
        waiting = dict(zip(self._connections, range(len(self._connections)), strict=True))
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    answers[rank] = connection.recv()
                except (EOFError, ConnectionResetError):
                    reason = self._ending(rank)
                    self.close()
                    raise AgentLost(f"{self._name_of(rank)} {reason} in {method}") from None
                failure = answers[rank]
                if isinstance(failure, Failure) and not (
                    failure.is_of_all or failure.is_of_disk or failure.is_of_environment
                ):
                    self.close()  # the other processes would wait for this one
                    raise AgentFailed(f"{self._name_of(rank)} failed in {method}: {failure.error}")
        for rank, failure in enumerate(answers):
            if isinstance(failure, Failure):
                if failure.is_of_disk:
                    raise OSError(f"{self._name_of(rank)}: {failure.error}")
                if failure.is_of_environment:
                    raise EnvironmentFailed(failure.error)
                raise RolloutsMissing(failure.error)
        return answers

    def _ending(self, rank: int) -> str:
        try:
            status = self._processes[rank].wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return "no longer answers"
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"

    def _name_of(self, rank: int) -> str:
        count = len(self._processes)
        return f"process {rank + 1} of {count} of {self.name}" if count > 1 else f"the process of {self.name}"

    def close(self) -> None:
        """End the processes."""
        for connection in self._connections:
            connection.close()
        self._connections = []
        for process in self._processes:
            process.kill()  # idle ones lose nothing, busy ones wait for each other
        for process in self._processes:
            process.wait()
        if self._has_vllm:
            remove_abandoned_weights()
