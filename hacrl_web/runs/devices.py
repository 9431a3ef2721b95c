"""What this host has to train on, and how full it is: GPUs through NVML, processors, memory and disk through psutil.

Read by the host's heartbeat every few seconds, without torch: a GPU is seen, but no context is made on it.
"""

from __future__ import annotations

import logging
import platform
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

try:
    import pynvml
except ImportError:  # an installation without the package has no GPU to show
    pynvml = None

log = logging.getLogger(__name__)
Device = dict[str, Any]


psutil.cpu_percent()  # measures from one call to the next: this is the first


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
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory() -> Device:
    usage = psutil.virtual_memory()
    return {"kind": "memory", "total_bytes": usage.total, "used_bytes": usage.total - usage.available}


def disk(folder: Path) -> Device:
    """The file system that holds the runs."""
    usage = psutil.disk_usage(str(folder))
    return {"kind": "disk", "total_bytes": usage.total, "used_bytes": usage.total - usage.free}


def gpus() -> list[Device]:
    """The GPUs with their memory, load and the processes that hold memory; none where there is no driver."""
    if not _has_nvml():
        return []
    cards = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            cards.append(_gpu(index))
    except pynvml.NVMLError as error:
        log.warning("the GPUs cannot be read: %s", error)
    return cards


@cache
def _has_nvml() -> bool:
    if pynvml is None:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _gpu(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    held = pynvml.nvmlDeviceGetMemoryInfo(handle)
    device: Device = {
        "kind": "gpu",
        "index": index,
        "name": _text(pynvml.nvmlDeviceGetName(handle)),
        "total_bytes": held.total,
        "used_bytes": held.used,
    }
    # Not every board tells these.
    try:
        device["used"] = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except pynvml.NVMLError:
        device["used"] = None
    try:
        device["processes"] = [_holder(one) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError:
        device["processes"] = []
    return device


def _holder(process: Any) -> dict[str, Any]:
    """A process on a GPU and its ancestors: a run's trainer descends from the run's worker process."""
    try:
        ancestors = [one.pid for one in psutil.Process(process.pid).parents()]
    except psutil.Error:
        ancestors = []
    return {"pid": process.pid, "used_bytes": process.usedGpuMemory, "ancestors": ancestors}


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
