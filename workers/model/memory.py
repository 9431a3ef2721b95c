"""Memory: how much the trainer uses, and smaller batches if a device runs out of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil
import torch

Result = TypeVar("Result")
LOWER_LENGTH = "lower max_completion_length or max_prompt_length"


class OutOfMemory(RuntimeError):
    """One sequence alone does not fit into memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; on a CPU it is a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def resident_bytes() -> int:
    """Memory of this process that is in RAM now, its children not counted."""
    return int(psutil.Process().memory_info().rss)


def device_peak_bytes() -> int | None:
    """Peak memory of tensors since the last call, on the GPU that used most; None without a GPU."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    devices = range(torch.cuda.device_count())
    peak = max(torch.cuda.max_memory_allocated(device) for device in devices)
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    return peak


def used_bytes() -> tuple[int, int | None]:
    """resident_bytes and device_peak_bytes of this process."""
    return resident_bytes(), device_peak_bytes()


def bytes_together(sizes: Iterable[tuple[int, int | None]]) -> tuple[int, int | None]:
    """Of several processes, from the used_bytes of each: RAM of all, and the peak of the GPU that was used most."""
    residents, peaks = zip(*sizes, strict=True)
    return sum(residents), max((peak for peak in peaks if peak is not None), default=None)


def free_memory() -> None:
    """Free what failed work held. Call it after the except block: the error references its tensors."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def halving(work: Callable[[int], Result], size: int, what: str, advice: str, notes: list[str]) -> tuple[Result, int]:
    """work(size), with size halved as often as memory runs out. Returns its result and the size that fitted.

    `work` starts from the beginning each time. notes: gets a line for each halving. Error: OutOfMemory.
    """
    while True:
        try:
            return work(size), size
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error).splitlines()[0][:200]
        free_memory()
        if size == 1:
            raise OutOfMemory(f"out of memory with one sequence at a time: {advice} ({reason})")
        size = (size + 1) // 2
        notes.append(f"out of memory: {what} is now {size} ({reason})")
