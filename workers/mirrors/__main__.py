"""`python -m workers.mirrors`: sends the rows of one run to one destination, as its standard input asks.

messages.py describes the requests. It has no access to the database; it ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers.mirrors.messages import MirroredRun, MirrorProblem, Opening, Row, Session, SessionMaker


def _tensorboard(opening: Opening) -> Session:
    from workers.mirrors.tensorboard import TensorBoardSession

    return TensorBoardSession(opening)


def _mlflow(opening: Opening) -> Session:
    from workers.mirrors.mlflow_server import MlflowSession

    return MlflowSession(opening)


def _wandb(opening: Opening) -> Session:
    from workers.mirrors.wandb_runs import WandbSession

    return WandbSession(opening)


def _trackio(opening: Opening) -> Session:
    from workers.mirrors.trackio_runs import TrackioSession

    return TrackioSession(opening)


KINDS: dict[str, SessionMaker] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
    "trackio": _trackio,
}


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
                session = KINDS[request["kind"]](opening)
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
