"""MLflow: a run of an experiment on a tracking server.

The server keeps a value once for each key, step, time and value, so a batch that is sent again changes nothing. The
rollouts of a row are an artifact of its own, in the form of MLflow's tables, which is written again then.
"""

from __future__ import annotations

import json
import os
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from workers.mirrors.messages import COLUMNS, TABLE, MirrorProblem, Opened, Opening, Row, State, import_problem

TAG = "hacrl.run"
VALUES_AT_ONCE = 1000  # as the server allows
PARAMETERS_AT_ONCE = 100
PARAMETER_CHARACTERS = 500
TABLES_TAG = "mlflow.loggedArtifacts"  # the tables that its pages draw
TABLES_IN_TAG = 20  # the newest ones: a tag is short
STATUS = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
TIMEOUT_S = 20


def _environment(opening: Opening) -> None:
    os.environ |= {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(TIMEOUT_S),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    }
    user, colon, password = opening.secret.partition(":")
    if colon:
        os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
    elif opening.secret:
        os.environ["MLFLOW_TRACKING_TOKEN"] = opening.secret


class MlflowSession:
    """state: ids of the run and its experiment on the server, and the names of the newest tables."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        _environment(opening)
        try:
            from mlflow import entities
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise import_problem("mlflow-skinny") from None
        self._entities, self._error = entities, MlflowException
        self._address = opening.options["url"].rstrip("/")
        self._client: Any = MlflowClient(tracking_uri=self._address)
        self._state: State = {}

    def open(self) -> Opened:
        try:
            experiment = self._experiment()
            run_id = self._run_of(experiment)
        except self._error as error:
            raise MirrorProblem(f"MLflow at {self._address}: {str(error)[:200]}") from None
        is_same = self._opening.state.get("run_id") == run_id
        tables = self._opening.state.get("tables", []) if is_same else []
        self._state = {"run_id": run_id, "experiment_id": experiment, "tables": tables}
        url = f"{self._address}/#/experiments/{experiment}/runs/{run_id}"
        # A run that is not the one of the last time was deleted there: everything is sent again.
        return Opened(self._opening.after if is_same else 0, self._state, url)

    def _experiment(self) -> str:
        name = self._opening.options.get("experiment") or self._opening.run.project
        matches = self._client.get_experiment_by_name(name)
        return str(matches.experiment_id if matches else self._client.create_experiment(name))

    def _run_of(self, experiment: str) -> str:
        run = self._opening.run
        matches = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if matches:
            return str(matches[0].info.run_id)
        tags = {TAG: run.id, "hacrl.url": run.url, "hacrl.tags": ",".join(run.tags)}
        tags = {name: value for name, value in tags.items() if value}
        new = self._client.create_run(experiment, int(run.created * 1000), tags, run.name)
        run_id = str(new.info.run_id)
        values = ((name, str(value)[:PARAMETER_CHARACTERS]) for name, value in run.settings.items())
        while some := list(islice(values, PARAMETERS_AT_ONCE)):
            self._client.log_batch(run_id, params=[self._entities.Param(*pair) for pair in some])
        return run_id

    def send(self, rows: list[Row]) -> State:
        metrics = (
            self._entities.Metric(name, value, int(row.time * 1000), row.step)
            for row in rows
            for name, value in row.values.items()
        )
        try:
            self._send_tables([row for row in rows if row.rollouts])
            while some := list(islice(metrics, VALUES_AT_ONCE)):
                self._client.log_batch(self._state["run_id"], metrics=some)
        except self._error as error:
            raise MirrorProblem(f"MLflow at {self._address}: {str(error)[:200]}") from None
        return self._state

    def _send_tables(self, rows: list[Row]) -> None:
        if not rows:
            return
        self._check_place()
        for row in rows:
            path = f"{TABLE}/step-{row.step:06d}-attempt-{row.attempt}-{row.seq}.json"
            self._client.log_dict(self._state["run_id"], {"columns": list(COLUMNS), "data": row.table}, path)
            tables = [name for name in self._state["tables"] if name != path]
            self._state["tables"] = [*tables, path][-TABLES_IN_TAG:]
        tag = json.dumps([{"path": name, "type": "table"} for name in self._state["tables"]])
        self._client.set_tag(self._state["run_id"], TABLES_TAG, tag)

    def _check_place(self) -> None:
        """Error: MirrorProblem unless artifacts go to the server itself: another host need not be allowed."""
        place = urlsplit(self._client.get_run(self._state["run_id"]).info.artifact_uri)
        if place.scheme != "mlflow-artifacts" or place.netloc not in ("", urlsplit(self._address).netloc):
            raise MirrorProblem(
                f"MLflow at {self._address} keeps artifacts at {place.scheme}://{place.netloc}: rollouts are sent only "
                "to a server that takes artifacts itself (mlflow server --artifacts-destination). "
                "Start it so, or send no rollouts."
            )

    def close(self, status: str) -> State:
        if status:
            try:
                self._client.set_terminated(self._state["run_id"], STATUS.get(status, "FINISHED"))
            except self._error as error:
                raise MirrorProblem(f"MLflow at {self._address}: {str(error)[:200]}") from None
        return self._state
