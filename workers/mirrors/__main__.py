"""`python -m workers.mirrors`: writes the rows of runs to one destination, as its standard input asks.

destination.py describes the requests. It has no access to the database; it ends when its input does.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from workers.contract.mirrored_rows import Row
from workers.mirrors.destination import Destination

# By kind: module, class, and the package of its client.
KINDS = {
    "tensorboard": ("tensorboard", "TensorBoard", ""),
    "mlflow": ("mlflow_server", "Mlflow", "mlflow-skinny"),
    "wandb": ("wandb_runs", "Wandb", "wandb"),
    "trackio": ("trackio_runs", "Trackio", "trackio"),
}
MISSING = (
    "The Python package {0} is not installed on the host of the watcher: .venv/bin/pip install -c constraints.txt {0}"
)


def answers(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """An answer to each line."""
    runs: dict[str, Destination] = {}
    for line in lines:
        request = json.loads(line)
        op, run_id, package = request.pop("op"), request.pop("run"), ""
        run: Any = runs.pop(run_id, None)
        try:
            if op == "open":
                module, name, package = KINDS[request.pop("kind")]
                run = getattr(import_module(f"workers.mirrors.{module}"), name)(**request)
                run.open()
            elif op == "rows":
                run.send([Row(**row) for row in request["rows"]])
            else:
                run.close(request["status"])
        except ModuleNotFoundError:
            yield {"error": MISSING.format(package)}
        except Exception as error:  # the clients have many kinds
            traceback.print_exc()
            yield {"error": f"{run.place if run else 'The mirror'}: {str(error)[:200] or type(error).__name__}"}
        else:
            if op != "close":
                runs[run_id] = run
            yield {"after": run.after, "state": run.state, "url": run.url}


def main() -> None:
    # Requests and answers have places that no library reads or prints to, and no helper of one inherits.
    requests, output = (os.fdopen(os.dup(place), mode, encoding="utf-8") for place, mode in ((0, "r"), (1, "w")))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for answer in answers(requests):
        output.write(json.dumps(answer) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
