"""MLflow: a run of an experiment on a tracking server.

The server keeps a value once for each key, step, time and value, so a batch that is sent again changes nothing. The
rollouts of a row are an artifact of its own, in the form of MLflow's tables, which is written again then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from workers.contract.mirrored_rows import COLUMNS, TABLE, Row
from workers.mirrors.destination import Destination

TAG = "hacrl.run"
VALUES_AT_ONCE = 1000  # as the server allows
PARAMETERS_AT_ONCE = 100
PARAMETER_CHARACTERS = 500
TABLES_TAG = "mlflow.loggedArtifacts"  # the tables that its pages draw
TABLES_IN_TAG = 20  # the newest ones: a tag is short
STATUS = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
TIMEOUT_S = 20


def _parts(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part


class Mlflow(Destination):
    """state: ids of the run and its experiment on the server, and the names of the newest tables."""

    def open(self) -> None:
        self._address = self.options["url"].rstrip("/")
        self.place = f"MLflow at {self._address}"
        self._set_environment()
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._entities, self._client = entities, MlflowClient(tracking_uri=self._address)
        experiment = self._experiment()
        run_id = self._run_of(experiment)
        if self.state.get("run_id") != run_id:  # the run of the last time was deleted there: all of it is sent again
            self.after, self.state = 0, {}
        self.state = {"run_id": run_id, "experiment_id": experiment, "tables": self.state.get("tables", [])}
        self.url = f"{self._address}/#/experiments/{experiment}/runs/{run_id}"

    def _set_environment(self) -> None:
        os.environ |= {
            "MLFLOW_HTTP_REQUEST_TIMEOUT": str(TIMEOUT_S),
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
        }
        user, colon, password = self.secret.partition(":")
        if colon:
            os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
        elif self.secret:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.secret

    def _experiment(self) -> str:
        name = self.options.get("experiment") or self.run.project
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._client.create_experiment(name))

    def _run_of(self, experiment: str) -> str:
        run = self.run
        runs = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        tags = {TAG: run.id, "hacrl.url": run.url, "hacrl.tags": ",".join(run.tags)}
        tags = {name: value for name, value in tags.items() if value}
        new = self._client.create_run(experiment, int(run.created * 1000), tags, run.name)
        values = (self._entities.Param(name, str(value)[:PARAMETER_CHARACTERS]) for name, value in run.settings.items())
        for part in _parts(values, PARAMETERS_AT_ONCE):
            self._client.log_batch(new.info.run_id, params=part)
        return str(new.info.run_id)

    def send(self, rows: list[Row]) -> None:
        self._send_tables([row for row in rows if row.rollouts])
        metrics = (
            self._entities.Metric(name, value, int(row.time * 1000), row.step)
            for row in rows
            for name, value in row.values.items()
        )
        for part in _parts(metrics, VALUES_AT_ONCE):
            self._client.log_batch(self.state["run_id"], metrics=part)

    def _send_tables(self, rows: list[Row]) -> None:
        if not rows:
            return
        self._check_artifacts_place()
        for row in rows:
            path = f"{TABLE}/step-{row.step:06d}-attempt-{row.attempt}-{row.seq}.json"
            self._client.log_dict(self.state["run_id"], {"columns": list(COLUMNS), "data": row.table}, path)
            tables = [name for name in self.state["tables"] if name != path]
            self.state["tables"] = [*tables, path][-TABLES_IN_TAG:]
        tag = json.dumps([{"path": name, "type": "table"} for name in self.state["tables"]])
        self._client.set_tag(self.state["run_id"], TABLES_TAG, tag)

    def _check_artifacts_place(self) -> None:
        """Error: ValueError unless artifacts go to the server itself: another host need not be allowed."""
        place = urlsplit(self._client.get_run(self.state["run_id"]).info.artifact_uri)
        if place.scheme != "mlflow-artifacts" or place.netloc not in ("", urlsplit(self._address).netloc):
            raise ValueError(
                f"it keeps artifacts at {place.scheme}://{place.netloc}, but rollouts are sent only to a server that "
                "takes them itself (mlflow server --artifacts-destination). Start it so, or send no rollouts."
            )

    def close(self, status: str) -> None:
        if status:
            self._client.set_terminated(self.state["run_id"], STATUS.get(status, "FINISHED"))
