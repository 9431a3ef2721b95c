"""What bfloat16 takes from an exported LoRA model, measured while the trainer's own weights are at hand.

The sum of bfloat16 weights and an update is no number of bfloat16: rounded to it, most updated weights are what they
were. So the folder holds the sum in float32, and a file beside it says how far a bfloat16 copy would be off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from workers.contract.checkpoint_manifest import PRECISION_FILE
from workers.model.memory import is_out_of_memory

MOST_TOKENS = 64  # of each response that is compared
Rows = Sequence[tuple[Sequence[int], Sequence[int]]]  # token ids of a prompt and of its response


@torch.no_grad()
def write_precision(
    folder: Path,
    token_logps: Callable[..., Any],
    device: torch.device,
    merged: Any,
    surviving: float | None,
    rows: Rows,
) -> None:
    """Write the file. token_logps: as `Policy.token_logps`; merged: the exported model, float32, afterwards bfloat16.

    surviving: share of the weights changed by the update that differ from their start in bfloat16 too.
    rows: of recent rollouts; none: no log-probability is compared.
    """
    prompts = [prompt for prompt, _ in rows]
    responses = [response[:MOST_TOKENS] for _, response in rows]
    nats: dict[str, float | None] = {"float32": None, "bfloat16": None}
    try:
        if rows:
            trained, mask = token_logps(prompts, responses, temperature=1.0)  # (b, T) each
            for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
                for weight in merged.to(device).parameters():  # buffers, such as angles of positions, stay float32
                    weight.data = weight.data.to(dtype)
                exported, _ = token_logps(prompts, responses, model=merged, temperature=1.0)  # (b, T)
                nats[name] = (exported - trained).abs()[mask].mean().item()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    values = {"surviving_in_bfloat16": surviving, "nats": nats, "tokens": sum(map(len, responses))}
    (folder / PRECISION_FILE).write_text(json.dumps(values, indent=2) + "\n")
