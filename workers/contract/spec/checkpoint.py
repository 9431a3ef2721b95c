"""RunSpec's section of checkpoints."""

from __future__ import annotations

from workers.contract.settings import Count, OwnCount, SettingsSection, setting


class CheckpointSpec(SettingsSection):
    """Which checkpoints stay on disk."""

    save_steps: OwnCount = setting(
        None,
        label="Save a checkpoint every",
        help="Steps between checkpoints; empty: a tenth of the run; 0: only after the last step.",
        source="product",
        unit="steps",
        ge=0,
        le=1_000_000,
    )
    keep: Count = setting(
        2, label="Checkpoints to keep", help="Newest checkpoints kept.", source="product", ge=1, le=1000
    )
    keep_best: bool = setting(
        True,
        label="Keep the best",
        help="Also keep the checkpoint with the best evaluation (mean of all agents).",
        source="product",
    )
