"""Logs the bench's points with another tracker, in that tracker's Python: `python peers.py mlflow|trackio N FOLDER`.

Prints one JSON line: {"version", "seconds", "cpu_s", "points"}. Started by tests/bench/telemetry.py.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

NAMES = tuple(f"metric/{number}" for number in range(40))
NUMBERS = tuple(number / 7 for number in range(40))


def values(step: int) -> dict[str, float]:
    """The 40 numbers of a step; tests/bench/telemetry.py sends the same."""
    moved = step * 0.001
    return dict(zip(NAMES, [moved + number for number in NUMBERS], strict=True))


class Watch:
    """Seconds on the wall and of all threads since it was made."""

    def __init__(self) -> None:
        self.began, self.cpu_began = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.began, "cpu_s": time.process_time() - self.cpu_began}


def with_mlflow(mlflow: Any, num_steps: int, folder: str) -> dict[str, float]:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("bench")
    with mlflow.start_run():
        mlflow.log_metrics(values(0), step=0)  # what is made at the first call is not counted
        watch = Watch()
        for step in range(1, num_steps + 1):
            mlflow.log_metrics(values(step), step=step)
        return watch.read()


def with_trackio(trackio: Any, num_steps: int, folder: str) -> dict[str, float]:
    trackio.init(project="bench", embed=False)
    trackio.log(values(0), step=0)
    watch = Watch()
    for step in range(1, num_steps + 1):
        trackio.log(values(step), step=step)
    trackio.finish()  # waits until all is stored
    return watch.read()


def main(name: str, num_steps: int, folder: str) -> None:
    os.environ["TRACKIO_DIR"] = folder
    module = importlib.import_module(name)
    took = {"mlflow": with_mlflow, "trackio": with_trackio}[name](module, num_steps, folder)
    print(json.dumps({"version": module.__version__, **took, "points": 40 * num_steps}), file=sys.__stdout__)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
