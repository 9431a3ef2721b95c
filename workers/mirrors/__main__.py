"""`python -m workers.mirrors`: sends the rows of one run to one destination, as its standard input asks.

messages.py describes the requests. It has no access to the database; it ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from workers.mirrors.messages import MirroredRun, MirrorProblem, Opening, Row, Session

# Module and class; a module imports the client of its destination.
SESSIONS = {
    "tensorboard": ("tensorboard", "TensorBoardSession"),
    "mlflow": ("mlflow_server", "MlflowSession"),
    "wandb": ("wandb_runs", "WandbSession"),
    "trackio": ("trackio_runs", "TrackioSession"),
}


def _session(kind: str, opening: Opening) -> Session:
    module, name = SESSIONS[kind]
    session: Session = getattr(import_module(f"workers.mirrors.{module}"), name)(opening)
    return session


def answer_lines(lines: Any, answer: Callable[[dict[str, Any]], None]) -> None:
    """Answer each line until the run is closed, the input ends, or something is refused."""
    session: Session | None = None
    for line in lines:
        request = json.loads(line)
        try:
            if request["op"] == "open":
                names = ("options", "secret", "after", "state")
                run = MirroredRun(**request["run"])
                opening = Opening(run=run, folder=Path(request["folder"]), **{name: request[name] for name in names})
                session = _session(request["kind"], opening)
                answer(asdict(session.open()))
            elif session is None:
                raise MirrorProblem("The first request opens a run.")
            elif request["op"] == "rows":
                rows = [Row(**row) for row in request["rows"]]
                answer({"state": session.send(rows), "ack": rows[-1].seq})
            else:
                answer({"state": session.close(request["status"])})
                return
        except MirrorProblem as problem:
            answer({"error": str(problem)})
            return
        except Exception as error:  # of a library that knows nothing of us
            answer({"error": f"{type(error).__name__}: {str(error)[:300]}"})
            raise


def main() -> None:
    # Libraries print to standard output, which carries the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(body: dict[str, Any]) -> None:
        answers.write(json.dumps(body) + "\n")
        answers.flush()

    answer_lines(sys.stdin, answer)


if __name__ == "__main__":
    main()
