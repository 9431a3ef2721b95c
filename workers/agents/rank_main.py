"""One process of an agent: `python -m workers.agents.rank_main SOCKET [HEARTBEAT]`, from multi_process.py.

It loads the agent and makes calls with the same arguments as the agent's other processes, if there are some; within a
call they communicate (model/process_group.py). It ends with the trainer, however that ends.
"""

from __future__ import annotations

import signal
import sys
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from workers import heartbeat
from workers.agents.local import LocalAgent
from workers.agents.messages import AgentLost, RolloutsMissing
from workers.agents.multi_process import Failure, Start
from workers.death_watch import die_with_trainer
from workers.environments.base import EnvironmentFailed
from workers.model.call_limits import late_calls_end
from workers.model.loading import choose_device, quiet_transformers
from workers.model.memory import bytes_together, used_bytes

WRITING = ("save", "save_state")  # calls in which files are written last
# The longest that ranks may wait for each other; the trainer notices at once when one ends.
PATIENCE = timedelta(days=7)


def main() -> int:
    socket, *heartbeat_file = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the trainer handles Ctrl-C at a terminal
    die_with_trainer(socket)
    if heartbeat_file:
        heartbeat.take_over(*heartbeat_file)
    quiet_transformers()
    connection = Connection(socket)
    with late_calls_end(lambda reason: connection.send(Failure(reason))):
        serve_rank(connection)
    return 0


def serve_rank(connection: Connection) -> None:
    """Answer calls until the trainer ends."""
    agent: LocalAgent | None = None
    while True:
        answer: Any = None
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            if agent is None:
                agent = load(request)
            else:
                method, arguments, options = request
                if method == "used_bytes":
                    answer = bytes_together([used_bytes(), agent.sampler_bytes()])
                else:
                    answer = getattr(agent, method)(*arguments, **options)
        except AgentLost:  # its sampler's process is gone: end as it did
            raise
        except RolloutsMissing as error:  # out of memory, which all ranks report together
            answer = Failure(str(error), is_of_all=True)
        except EnvironmentFailed as error:
            answer = Failure(str(error), is_of_environment=True)
        except Exception as error:
            is_of_disk = isinstance(error, OSError | SafetensorError) and agent is not None and request[0] in WRITING
            if not is_of_disk:
                traceback.print_exc()
            answer = Failure(f"{type(error).__name__}: {error}", is_of_disk=is_of_disk)
        connection.send(answer)


def load(start: Start) -> LocalAgent:
    """Join the other processes, and load the agent."""
    spec, ranks = start.spec, start.ranks
    device = choose_device(spec, start.agent_index, ranks.rank)
    # Without a number in the spec: this process's share of the cores.
    sharers = ranks.size * (len(spec.agents) if spec.compute.placement == "processes" else 1)
    sharers *= 1 + spec.rollout.samples_ahead  # an agent and its sampler
    torch.set_num_threads(spec.compute.num_threads or max(1, torch.get_num_threads() // sharers))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if ranks.is_alone:
        return LocalAgent(spec.agents[start.agent_index], spec, device, start.folder)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        init_method=start.rendezvous.as_uri(),
        rank=ranks.rank,
        world_size=ranks.size,
        timeout=PATIENCE,
    )
    return LocalAgent(spec.agents[start.agent_index], spec, device, start.folder, ranks)


if __name__ == "__main__":
    sys.exit(main())
