"""How large a bundle may be that an installation imports, and whether a run's checkpoints fit in one."""

from __future__ import annotations

from hacrl_web.insight.checkpoints.checkpoints import list_of_checkpoints
from hacrl_web.runs.models import Run

MAX_BUNDLE_BYTES = 4 * 2**30


def checkpoint_bytes(run: Run) -> int:
    """Of the checkpoints that are on this host."""
    return sum(one.size_bytes for one in list_of_checkpoints(run).checkpoints)


def bundle_size_refusal(num_bytes: int) -> str:
    """Why these checkpoints are not exported in a bundle, or empty."""
    if num_bytes <= MAX_BUNDLE_BYTES:
        return ""
    return (
        f"Its checkpoints take {num_bytes / 2**30:.1f} GiB, and a bundle of more than {MAX_BUNDLE_BYTES / 2**30:.0f} "
        "GiB is not imported: export it without them, and download the checkpoints on the Checkpoints tab."
    )
