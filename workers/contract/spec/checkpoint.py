"""RunSpec's section of checkpoints."""

from __future__ import annotations

from workers.settings import Count, SettingsSection, setting


class CheckpointSpec(SettingsSection):
    """Which checkpoints stay on disk."""

    save_steps: Count = setting(
        0, help="Steps between checkpoints; 0: only after the last.", source="TRL", unit="steps", ge=0, le=1_000_000
    )
    keep: Count = setting(2, help="Newest checkpoints kept.", source="product", ge=1, le=1000)
    keep_best: bool = setting(
        True, help="Also keep the checkpoint with the best evaluation (mean of all agents).", source="product"
    )
