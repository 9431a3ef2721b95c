"""Helm for tests: the engine and linter of Helm 4 in the wheel helm-python-sdk, in a process of its own.

The wheel is a shared library of Go, which would put its signal handlers into the process of the tests.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "docker" / "helm" / "hacrl-web"
RELEASE, NAMESPACE = "team", "ml"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
GPUS = {
    "worker": {
        "gpus": 2,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "gpu"},
        "replicas": 3,
    },
    "environment": {"HACRL_JUDGE_ALLOW": "judge.example.org", "HACRL_REWARD_NETWORK": "1"},
    "images": {"pullSecrets": ["registry-login"]},
}
OUTSIDE = {
    "ingress": {"enabled": True, "host": "hacrl.example.org", "tlsSecret": "hacrl-tls", "className": "nginx"},
    "data": {"existingClaim": "lab-data"},
    "database": {"builtin": False, "address": "postgres://hacrl@db.example.org:5432/hacrl?sslmode=require"},
    "redis": {"builtin": False, "address": "redis://redis.example.org:6379/0"},
    "environment": {"HACRL_EMAIL_URL_FILE": "/etc/hacrl/secrets/email_url"},
    "worker": {"replicas": 0, "resources": {"limits": {"memory": "64Gi"}}},
}
CASES = {"as it is": {}, "GPUs": GPUS, "outside": OUTSIDE}
SECRETS_FOLDER = "/etc/hacrl/secrets"
WARNING = 2  # severity of a message of the linter
PROGRAM = """
import json, sys
import helm_python as helm
chart, values, release, namespace = json.load(sys.stdin)
answer = {"lint": helm.lint(chart, values, strict=True, namespace=namespace)}
try:
    with helm.Chart.load(chart) as one:
        one.validate_schema(values)
        answer["files"] = one.render(values, name=release, namespace=namespace)
except helm.HelmError as error:
    answer["error"] = str(error)
json.dump(answer, sys.stdout)
"""


class ValuesRefused(Exception):
    """Helm refuses the values; the text is its own."""


def lint(values: dict[str, Any]) -> list[str]:
    """The warnings and errors of `helm lint --strict`."""
    report = _helm(json.dumps(values))["lint"]
    messages = [one["error"] for one in report["messages"] if one["severity"] >= WARNING]
    return [*messages, *(report["errors"] or [])]


def render(values: dict[str, Any]) -> dict[str, str]:
    """The text of each template, by its file name. Error: ValuesRefused."""
    answer = _helm(json.dumps(values))
    if "error" in answer:
        raise ValuesRefused(answer["error"])
    return {Path(name).name: text for name, text in answer["files"].items()}


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The Kubernetes objects of the chart. Error: ValuesRefused."""
    texts = [text for name, text in render(values).items() if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def named(values: dict[str, Any], kind: str, component: str) -> dict[str, Any]:
    """The object of this kind for a part of the product."""
    [one] = [
        one for one in objects(values) if one["kind"] == kind and one["metadata"]["name"] == f"{RELEASE}-{component}"
    ]
    return one


def pod_of(values: dict[str, Any], role: str) -> dict[str, Any]:
    """What describes the pods of a role."""
    kind = "StatefulSet" if role in ("worker", "database") else "Deployment"
    template: dict[str, Any] = named(values, kind, role)["spec"]["template"]
    return template


def container(values: dict[str, Any], role: str) -> dict[str, Any]:
    [only] = pod_of(values, role)["spec"]["containers"]
    return dict(only)


def environment(one: dict[str, Any]) -> dict[str, Any]:
    """The variables of a container: their text, or where it comes from."""
    return {line["name"]: line.get("value", line.get("valueFrom")) for line in one.get("env", ())}


def pods(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What describes a pod in the controllers of the chart."""
    for one in objects(values):
        if "template" in one.get("spec", {}):
            yield one["spec"]["template"]


@functools.cache
def _helm(values: str) -> dict[str, Any]:
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("Helm's engine is not installed: pip install helm-python-sdk (x86-64 Linux)")
    words = json.dumps([str(CHART), json.loads(values), RELEASE, NAMESPACE])
    process = subprocess.run([sys.executable, "-c", PROGRAM], input=words, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer
