"""The devices of this host and their load: GPUs through NVML; processors, memory and disk through psutil.

The heartbeat reads them every few seconds, without torch, so no CUDA context is created.
"""

from __future__ import annotations

import contextlib
import logging
import platform
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from hacrl_web.ops.disk_space import full_disk

try:
    import pynvml
except ImportError:  # an installation without the package has no GPU to show
    pynvml = None

log = logging.getLogger(__name__)
Device = dict[str, Any]


psutil.cpu_percent()  # measures from one call to the next; this is the first


def devices() -> list[Device]:
    """Every device of this host. What cannot be read is left out."""
    return [*gpus(), processors(), memory(), disk(Path(settings.DATA_DIR))]


def processors() -> Device:
    """`used`: share of all cores since the last call, 0 to 1."""
    return {
        "kind": "cpu",
        "name": _processor_name(),
        "cores": psutil.cpu_count() or 0,
        "used": round(psutil.cpu_percent() / 100, 3),
    }


@cache
def _processor_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory() -> Device:
    usage = psutil.virtual_memory()
    return {"kind": "memory", "total_bytes": usage.total, "used_bytes": usage.total - usage.available}


def disk(folder: Path) -> Device:
    """The file system that holds the runs. `full`: what is said of a full disk, this or another one; else empty."""
    usage = psutil.disk_usage(str(folder))
    used = usage.total - usage.free
    return {"kind": "disk", "total_bytes": usage.total, "used_bytes": used, "full": full_disk()}


def gpus() -> list[Device]:
    """The GPUs with their memory, load and the processes that hold memory; empty without a driver."""
    if not _has_nvml():
        return []
    devices_of_host = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            devices_of_host.append(_gpu(index))
    except pynvml.NVMLError as error:
        log.warning("the GPUs cannot be read: %s", error)
    return devices_of_host


@cache
def _has_nvml() -> bool:
    if pynvml is not None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            return True
    return False


def _gpu(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory_info = pynvml.nvmlDeviceGetMemoryInfo(handle)
    device: Device = {
        "kind": "gpu",
        "index": index,
        "name": pynvml.nvmlDeviceGetName(handle),
        "total_bytes": memory_info.total,
        "used_bytes": memory_info.used,
        "used": None,
        "processes": [],
    }
    # Some boards do not report these.
    with contextlib.suppress(pynvml.NVMLError):
        device["used"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    with contextlib.suppress(pynvml.NVMLError):
        device["processes"] = [_holder(one) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    return device


def _holder(process: Any) -> dict[str, Any]:
    """A process on a GPU and its ancestors: a run's trainer descends from the run's worker process."""
    try:
        ancestors = [one.pid for one in psutil.Process(process.pid).parents()]
    except psutil.Error:
        ancestors = []
    return {"pid": process.pid, "used_bytes": process.usedGpuMemory, "ancestors": ancestors}
