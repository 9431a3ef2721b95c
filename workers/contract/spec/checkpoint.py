"""RunSpec's sections of what a run keeps: checkpoints, and what is recorded besides the metrics."""

from __future__ import annotations

from workers.contract.settings import Count, Interval, Length, Million, OwnCount, SettingsSection, setting


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


class TelemetrySpec(SettingsSection):
    """What is recorded besides the metrics."""

    rollout_interval: Interval = setting(
        1,
        label="Record rollouts every",
        help="Steps between recordings of rollouts; 0: none.",
        source="product",
        unit="steps",
    )
    alignment_interval: Interval = setting(
        10,
        label="Measure alignment every",
        help="Steps between measurements of gradient_alignment (each costs as much as a step's updates); 0: none.",
        source="Theorem 4.3",
        unit="steps",
    )
    rollout_steps_kept: Million = setting(
        200,
        label="Steps of rollouts kept",
        help="The database keeps the rollout texts of this many newest recorded steps, and of older ones only the "
        "numbers; 0: all texts.",
        source="product",
        unit="steps",
    )
    spool_quota_mib: Length = setting(
        2048,
        label="Spool quota",
        help="Disk space for events that the database has not stored yet. Above half of it log lines and rollouts are "
        "left out, and counted; above nine tenths metrics too.",
        source="product",
        unit="MiB",
    )
