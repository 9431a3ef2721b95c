"""Algorithm 1, its step plan, scoring, evaluation, checkpoints, stop signals and telemetry."""
