"""Logs the bench's points with another tracker, in that tracker's Python: `python peers.py mlflow|trackio N FOLDER`.

Prints one JSON line: {"version", "seconds", "points"}. Started by tests/bench/telemetry.py; imports nothing of ours.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any


def values(step: int) -> dict[str, float]:
    """The 40 numbers of a step; tests/bench/telemetry.py sends the same."""
    return {f"metric/{number}": step * 0.001 + number / 7 for number in range(40)}


def with_mlflow(mlflow: Any, num_steps: int, folder: str) -> float:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("bench")
    with mlflow.start_run():
        mlflow.log_metrics(values(0), step=0)  # what is made at the first call is not counted
        began = time.perf_counter()
        for step in range(1, num_steps + 1):
            mlflow.log_metrics(values(step), step=step)
        return time.perf_counter() - began


def with_trackio(trackio: Any, num_steps: int, folder: str) -> float:
    trackio.init(project="bench", embed=False)
    trackio.log(values(0), step=0)
    began = time.perf_counter()
    for step in range(1, num_steps + 1):
        trackio.log(values(step), step=step)
    trackio.finish()  # waits until all is stored
    return time.perf_counter() - began


def main(name: str, num_steps: int, folder: str) -> None:
    os.environ["TRACKIO_DIR"] = folder
    module = importlib.import_module(name)
    seconds = {"mlflow": with_mlflow, "trackio": with_trackio}[name](module, num_steps, folder)
    found = {"version": module.__version__, "seconds": seconds, "points": 40 * num_steps}
    print(json.dumps(found), file=sys.__stdout__)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
