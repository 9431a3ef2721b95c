"""Runs and sweeps, from the request to the end: tables, launch, worker, telemetry, live updates, archive."""
