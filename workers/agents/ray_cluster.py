"""The Ray cluster of `placement: ray`: a private one, which ends with the trainer, or the one of RAY_ADDRESS.

The private one listens on the loopback interface only, requires a secret token, and has neither dashboard nor job API,
through which others could run code here. This module can be imported without Ray.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import tempfile
from functools import cache
from pathlib import Path

from workers.contract.trainer_process import SCRATCH_NAME, remove_scratch

ADDRESS_VARIABLE = "RAY_ADDRESS"  # set by the worker's operator: a running cluster
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"  # noqa: S105 - a name
OBJECT_STORE_BYTES = 100 * 2**20  # answers are text and numbers
# The trainer's own (trainer/stop_signals.py); Ray would replace their handlers.
SIGNALS = (signal.SIGTERM, signal.SIGINT)
ANY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an agent without GPUs sees none
}
OWN = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # despite its name: 127.0.0.1 instead of all interfaces
    "RAY_memory_monitor_refresh_ms": "0",  # it would kill agents for the memory of other processes
}


def set_environment() -> None:
    """Called before Ray is imported, because it reads some variables then."""
    os.environ.update(ANY)
    if not os.environ.get(ADDRESS_VARIABLE):
        os.environ.update(OWN)
        os.environ[TOKEN_VARIABLE] = _token()  # the Ray that init() starts requires it


@cache
def _token() -> str:
    """One per process: Ray reads it once."""
    return secrets.token_hex(32)


class Cluster:
    """The Ray that this process is connected to."""

    def __init__(self, run_dir: Path, num_agents: int) -> None:
        """Connect to the cluster of RAY_ADDRESS, else start one. Error: ConnectionError."""
        self._run_dir = run_dir
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            self._join(num_agents)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _join(self, num_agents: int) -> None:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        address = os.environ.get(ADDRESS_VARIABLE)
        if address:
            ray.init(address=address, configure_logging=False)
            return
        remove_scratch(self._run_dir)  # of a killed attempt
        folder = Path(tempfile.mkdtemp(prefix="hacrl-ray-"))  # a short path: that of a socket may have 107 bytes
        (self._run_dir / SCRATCH_NAME).symlink_to(folder)
        ray.init(
            address="local",
            num_cpus=num_agents,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            configure_logging=False,
            _temp_dir=str(folder),
        )
        del os.environ[TOKEN_VARIABLE]  # later processes are not part of the cluster

    def leave(self) -> None:
        """End the private cluster, or the connection to another."""
        import ray

        ray.shutdown()
        remove_scratch(self._run_dir)
