"""Kubernetes by its REST API: a Job of one pod for each attempt, from a template of the installation."""

from __future__ import annotations

import copy
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workers.cluster.schedulers import KEYS_VARIABLE, LABEL, SchedulerError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # of the pod that the worker runs in
TIMEOUT_S = 20
KEEP_S = 3600  # an ended Job is kept for people to look at
CONTAINER = "trainer"


class Kubernetes:
    """template: a Job whose container `trainer`, or first one, gets the command.  api: "" for the cluster around us."""

    def __init__(
        self, template: Mapping[str, Any], api: str = "", namespace: str = "", account: Path = ACCOUNT
    ) -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self.api = api.rstrip("/") or f"https://{f'[{host}]' if ':' in host else host}:{port}"
        self.template, self.account = template, account
        self.namespace = namespace or _text(account / "namespace") or "default"
        authority = account / "ca.crt"
        self._context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)

    def start(self, name: str, command: list[str], keys: str) -> None:
        attempt_name = f"{name}-{command[-1]}"
        if keys:
            labels = {"name": attempt_name, "labels": {LABEL: name}}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": labels, "stringData": {"keys": keys}}
            self._ask("POST", "/api/v1", "secrets", body=secret)
        self._ask("POST", "/apis/batch/v1", "jobs", body=job_of(self.template, name, attempt_name, command, bool(keys)))

    def state(self, name: str) -> str:
        """Pods count, not the Job: one that is being deleted may still train."""
        phases = [pod["status"].get("phase", "Unknown") for pod in self._list("/api/v1", "pods", name)]
        alive = [phase for phase in phases if phase not in ("Succeeded", "Failed")]
        if alive:
            return ", ".join(alive)
        waiting = [job for job in self._list("/apis/batch/v1", "jobs", name) if _is_open(job)]
        return "waits for its pod" if waiting and not phases else ""

    def cancel(self, name: str) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        self._ask("DELETE", "/apis/batch/v1", "jobs", query=f"?labelSelector={LABEL}%3D{name}", body=options)
        self._ask("DELETE", "/api/v1", "pods", query=f"?labelSelector={LABEL}%3D{name}")
        self.forget_keys(name)

    def forget_keys(self, name: str) -> None:
        self._ask("DELETE", "/api/v1", "secrets", query=f"?labelSelector={LABEL}%3D{name}")

    def _list(self, group: str, kind: str, name: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._ask("GET", group, kind, query=f"?labelSelector={LABEL}%3D{name}")["items"]
        return items

    def _ask(self, verb: str, group: str, kind: str, *, query: str = "", body: Any = None) -> dict[str, Any]:
        """Error: SchedulerError."""
        url = f"{self.api}{group}/namespaces/{self.namespace}/{kind}{query}"
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token := _text(self.account / "token"):  # read each time: it is renewed
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=verb)  # noqa: S310 - checked by the settings
        try:
            context = self._context if url.startswith("https:") else None
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310
                values: dict[str, Any] = json.loads(answer.read() or b"{}")
                return values
        except urllib.error.HTTPError as error:
            reason = error.read(2000).decode("utf-8", "replace")
            raise SchedulerError(f"Kubernetes refuses {verb} {kind} ({error.code}): {reason[:500]}") from error
        except (OSError, ValueError) as error:
            raise SchedulerError(f"Kubernetes does not answer: {error}") from error


def read_template(path: Path) -> dict[str, Any]:
    """Error: ValueError, with what is wrong and what to do."""
    try:
        job = yaml.safe_load(path.read_text())
        containers = job["spec"]["template"]["spec"]["containers"]
        if job["kind"] != "Job" or not containers[0]["image"]:
            raise KeyError("kind")
    except (OSError, yaml.YAMLError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"{path} is no template of a Kubernetes Job with a container and its image, see docs/schedulers.md: {error}"
        ) from None
    return dict(job)


def job_of(
    template: Mapping[str, Any], name: str, attempt_name: str, command: list[str], has_keys: bool
) -> dict[str, Any]:
    """The template with name, labels and command; it is never started a second time by Kubernetes itself."""
    job = copy.deepcopy(dict(template))
    job["metadata"] = {**(job.get("metadata") or {}), "name": attempt_name}
    job["metadata"]["labels"] = {**job["metadata"].get("labels", {}), LABEL: name}
    spec = job["spec"]
    spec |= {"backoffLimit": 0, "completions": 1, "parallelism": 1}
    spec.setdefault("ttlSecondsAfterFinished", KEEP_S)
    pod = spec["template"]
    pod["metadata"] = {**(pod.get("metadata") or {})}
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), LABEL: name}
    pod["spec"]["restartPolicy"] = "Never"
    containers = pod["spec"]["containers"]
    trainer = next((one for one in containers if one.get("name") == CONTAINER), containers[0])
    trainer["command"], trainer["args"] = command, []
    if has_keys:
        reference = {"secretKeyRef": {"name": attempt_name, "key": "keys"}}
        trainer["env"] = [*(trainer.get("env") or []), {"name": KEYS_VARIABLE, "valueFrom": reference}]
    return job


def _is_open(job: dict[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return not any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
