"""The Helm chart beside what it must agree with: compose files, documentation and code."""

from __future__ import annotations

import re
import tomllib

import yaml

from hacrl_web.ops import preflight
from tests.support.helm import (
    CHART,
    GPUS,
    OUTSIDE,
    RELEASE,
    ROOT,
    SECRETS_FOLDER,
    VALUES,
    container,
    environment,
    named,
    objects,
    pod_of,
    render,
)
from tests.test_containers import BASE, documented


def test_roles_are_those_of_compose_with_its_variables_and_defaults():
    compose = BASE["services"]
    default = {name: re.sub(r"\$\{\w+:?-(.*)\}", r"\1", str(value)) for name, value in BASE["x-environment"].items()}
    default |= {
        "DATABASE_URL": f"postgres://hacrl@{RELEASE}-database:5432/hacrl",
        "REDIS_URL": f"redis://{RELEASE}-redis:6379/0",
        "HACRL_HOST": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    del default["HACRL_EMAIL_URL"]  # may hold a password: in values only as HACRL_EMAIL_URL_FILE
    for name in ("DATABASE_PASSWORD_FILE", "REDIS_PASSWORD_FILE", "HACRL_SECRET_KEY_FILE"):
        default[name] = default[name].replace("/run/secrets", SECRETS_FOLDER)
    for role in preflight.ROLES:
        one = container({}, role)
        more = {} if role in ("web", "worker") else {"HACRL_PULSE_FILE": "/tmp/pulse"}
        assert one["args"] == compose[role]["command"]
        assert environment(one) == default | more
        health = compose[role]["healthcheck"]["test"][1:]
        probes = {name for name in one if name.endswith("Probe")}
        assert {"startupProbe", "readinessProbe" if role == "worker" else "livenessProbe"} <= probes
        assert all(one[name]["exec"]["command"] == health for name in probes)
        assert {name.removesuffix("_FILE") for name in environment(one)} <= {*documented(), "HACRL_PULSE"}
    worker = pod_of({}, "worker")["spec"]
    assert f"{worker['terminationGracePeriodSeconds']}s" == compose["worker"]["stop_grace_period"]


def test_an_outage_of_the_database_ends_no_trainer():
    assert "livenessProbe" not in container({}, "worker")


def test_database_and_redis_are_those_of_compose():
    for role in ("database", "redis"):
        one, compose = container({}, role), BASE["services"][role]
        fence = pod_of({}, role)["spec"]["securityContext"]
        assert one["image"] == compose["image"]
        assert f"{fence['runAsUser']}:{fence['runAsGroup']}" == compose["user"]
        mounts = {mount["mountPath"] for mount in one["volumeMounts"]}
        assert {entry.partition(":")[0] for entry in compose["tmpfs"]} <= mounts
    variables = environment(container({}, "database"))
    assert variables.pop("PGDATA").startswith("/var/lib/postgresql/data/")
    assert variables == {
        name: value.replace("/run/secrets", SECRETS_FOLDER)
        for name, value in BASE["services"]["database"]["environment"].items()
    }
    text = str(BASE["services"]["redis"]["command"]).replace("/run/secrets", SECRETS_FOLDER)
    assert str(container({}, "redis")["command"]) == text


def test_a_training_pod_has_what_every_training_host_needs():
    variables = environment(container(GPUS, "worker"))
    assert {name for name, row in documented().items() if "on every host" in row} <= set(variables)
    assert (variables["HACRL_JUDGE_ALLOW"], variables["HACRL_REWARD_NETWORK"]) == ("judge.example.org", "1")


def test_gpus_are_where_trainers_run():
    cpu, gpu = container({}, "worker"), container(GPUS, "worker")
    assert (cpu["image"], cpu["resources"]["limits"]) == ("hacrl-worker:cpu", {})
    assert (gpu["image"], gpu["resources"]["limits"]) == ("hacrl-worker:cuda", {"nvidia.com/gpu": 2})
    assert "/dev/shm" in [mount["mountPath"] for mount in gpu["volumeMounts"]]
    pod = pod_of(GPUS, "worker")["spec"]
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "gpu"}, GPUS["worker"]["tolerations"])
    assert container(OUTSIDE, "worker")["resources"]["limits"] == {"memory": "64Gi"}


def test_ingress_has_tls_and_tells_the_product_its_address():
    spec = named(OUTSIDE, "Ingress", "web")["spec"]
    assert spec["tls"] == [{"hosts": ["hacrl.example.org"], "secretName": "hacrl-tls"}]
    [rule] = spec["rules"]
    [path] = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": f"{RELEASE}-web", "port": {"name": "http"}}
    variables = environment(container(OUTSIDE, "web"))
    assert variables["HACRL_ALLOWED_HOSTS"] == rule["host"] == "hacrl.example.org"
    assert (variables["HACRL_PUBLIC_URL"], variables["HACRL_TLS_PROXY"]) == ("https://hacrl.example.org", "1")
    assert variables["DATABASE_URL"] == OUTSIDE["database"]["address"]
    assert variables["REDIS_URL"] == OUTSIDE["redis"]["address"]
    assert variables["HACRL_EMAIL_URL_FILE"] == "/etc/hacrl/secrets/email_url"
    assert not [one for one in objects(OUTSIDE) if one["metadata"]["name"].endswith(("-database", "-redis"))]


def test_notes_say_how_to_log_in():
    assert "port-forward service/team-web 8000:8000" in render({})["NOTES.txt"]
    assert "https://hacrl.example.org" in render(OUTSIDE)["NOTES.txt"]
    for values in ({}, OUTSIDE):
        assert "exec deployment/team-web -- python manage.py login_link" in render(values)["NOTES.txt"]


def test_chart_has_the_version_of_the_product():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == product["version"]
    assert VALUES["images"]["web"] == f"hacrl-web:{product['version']}"
