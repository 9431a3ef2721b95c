"""RunSpec's section of telemetry: what is recorded besides the metrics."""

from __future__ import annotations

from workers.contract.settings import Interval, Length, Million, SettingsSection, setting


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
