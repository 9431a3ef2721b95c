"""The Helm chart without a cluster: rendered by Helm's engine, and its objects checked against Kubernetes' schemas and
for what holds between them."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from hacrl_web.ops import preflight
from tests.support.helm import (
    CASES,
    CHART,
    NAMESPACE,
    OUTSIDE,
    RELEASE,
    SECRETS_FOLDER,
    VALUES,
    ValuesRefused,
    environment,
    lint,
    named,
    objects,
    pod_of,
    pods,
)

each_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
SECRET = re.compile("PASSWORD|SECRET|TOKEN|KEY")


def selects(labels: dict[str, str], pod: dict[str, Any]) -> bool:
    return labels.items() <= pod["metadata"]["labels"].items()


@each_case
def test_helm_finds_nothing_to_complain_about(values):
    assert lint(values) == []


@pytest.mark.parametrize("version", ["1.25.0", "1.32.0", "1.37.0"])
@each_case
def test_every_object_is_one_of_kubernetes(values, version):
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for one in objects(values):
        assert schemas.validate(one, version, strict=True) == version.removesuffix(".0")


def test_helm_of_this_machine_agrees(tmp_path):
    """Where the program is: the same objects, and nothing to complain about."""
    if (helm := shutil.which("helm")) is None:
        pytest.skip("no program named helm on PATH")
    for values in CASES.values():
        (tmp_path / "values.yaml").write_text(json.dumps(values))
        options = [str(CHART), "--namespace", NAMESPACE, "--values", str(tmp_path / "values.yaml")]
        subprocess.run([helm, "lint", "--strict", *options], check=True, timeout=60)
        text = subprocess.check_output([helm, "template", RELEASE, *options], text=True, timeout=60)
        answer = [one for one in yaml.safe_load_all(text) if one]
        assert sorted(answer, key=str) == sorted(objects(values), key=str)


@each_case
def test_every_pod_is_fenced_in(values):
    for pod in pods(values):
        spec, fence = pod["spec"], pod["spec"]["securityContext"]
        assert fence["runAsNonRoot"] is True
        assert fence["seccompProfile"] == {"type": "RuntimeDefault"}
        assert min(fence["runAsUser"], fence["runAsGroup"], fence["fsGroup"]) > 0
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        assert not any("hostPath" in volume for volume in spec["volumes"])
        assert spec["enableServiceLinks"] is False  # or a Service named hacrl sets HACRL_PORT
        for one in spec["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert "/tmp" in [mount["mountPath"] for mount in one["volumeMounts"]]
            assert "startupProbe" in one or "livenessProbe" in one


@each_case
def test_no_pod_has_an_account_of_the_cluster(values):
    assert not any(pod["spec"]["automountServiceAccountToken"] for pod in pods(values))
    assert not {"ServiceAccount", "Role", "RoleBinding"} & {one["kind"] for one in objects(values)}


@each_case
def test_secrets_are_files_of_a_secret_that_exists_already(values):
    assert "Secret" not in {one["kind"] for one in objects(values)}
    for pod in pods(values):
        for one in pod["spec"]["containers"]:
            for name, value in environment(one).items():
                is_path = name.endswith("_FILE") and str(value).startswith(f"{SECRETS_FOLDER}/")
                assert is_path or not SECRET.search(name), name
                assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), f"{name} holds a password"
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] == VALUES["secretName"]
                assert volume["secret"]["defaultMode"] == 0o440
    for role in () if values == OUTSIDE else ("database", "redis"):
        assert f"'path': '{role}_password'" in str(pod_of(values, role))


@each_case
def test_volumes_are_mounted_where_nothing_else_is(values):
    claims = {one["metadata"]["name"] for one in objects(values) if one["kind"] == "PersistentVolumeClaim"}
    assert claims == (set() if values == OUTSIDE else {f"{RELEASE}-data"})
    for pod in pods(values):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for one in pod["spec"]["containers"]:
            paths = [mount["mountPath"] for mount in one["volumeMounts"]]
            assert len(set(paths)) == len(paths)
            # The token of an account is mounted below /run/secrets, and cannot be below a read-only volume.
            assert not any(path.startswith(("/run/secrets", "/var/run")) for path in paths)
            # Those of volumeClaimTemplates are not in the pod's list.
            assert {mount["name"] for mount in one["volumeMounts"]} - {"database"} == set(volumes)
        if "persistentVolumeClaim" in volumes.get("data", {}):
            assert volumes["data"]["persistentVolumeClaim"]["claimName"] in claims | {"lab-data"}


@each_case
def test_selectors_and_services_find_their_pods(values):
    controllers = [one for one in objects(values) if one["kind"] in ("Deployment", "StatefulSet")]
    templates = {one["metadata"]["name"]: one["spec"]["template"] for one in controllers}
    for one in controllers:
        [match] = [name for name, pod in templates.items() if selects(one["spec"]["selector"]["matchLabels"], pod)]
        assert match == one["metadata"]["name"]
        assert one["spec"].get("strategy", {"type": "Recreate"}) == {"type": "Recreate"}
    for service in (one for one in objects(values) if one["kind"] == "Service"):
        [match] = [name for name, pod in templates.items() if selects(service["spec"]["selector"], pod)]
        assert match == service["metadata"]["name"]
        ports = {
            port["name"]: port["containerPort"] for port in templates[match]["spec"]["containers"][0].get("ports", ())
        }
        for port in service["spec"].get("ports", ()):
            assert ports[port["targetPort"]] == port["port"]


def test_database_and_redis_are_reached_by_the_product_alone():
    for role, port in (("database", 5432), ("redis", 6379)):
        policy = named({}, "NetworkPolicy", role)["spec"]
        assert selects(policy["podSelector"]["matchLabels"], pod_of({}, role))
        assert sorted(policy["policyTypes"]) == ["Egress", "Ingress"]
        assert "egress" not in policy
        [rule] = policy["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": port}]
        [source] = rule["from"]
        [condition] = source["podSelector"]["matchExpressions"]
        assert (condition["operator"], set(condition["values"])) == ("In", set(preflight.ROLES))
        for one in preflight.ROLES:
            assert selects(source["podSelector"]["matchLabels"], pod_of({}, one))
    for values in (OUTSIDE, {"networkPolicy": {"enabled": False}}):
        assert "NetworkPolicy" not in {one["kind"] for one in objects(values)}


@pytest.mark.parametrize(
    "values",
    [
        {"environment": {"HACRL_SECRET_KEY": "s"}},
        {"environment": {"HACRL_JUDGE_KEY": "s"}},
        {"environment": {"DATABASE_PASSWORD": "s"}},
        {"environment": {"HACRL_EMAIL_URL": "smtp://user:s@host"}},
        {"environment": {"HACRL_HOST": "main"}},
        {"environment": {"HACRL_TLS_PROXY": 1}},
        {"database": {"builtin": False}},
        {"database": {"address": "postgres://hacrl:s@db/hacrl"}},
        {"redis": {"builtin": False, "address": "redis://:s@redis:6379/0"}},
        {"ingress": {"enabled": True, "host": "hacrl.example.org"}},
        {"worker": {"gpu": 2}},
        {"wroker": {}},
        {"secretName": ""},
    ],
    ids=str,
)
def test_secrets_and_mistakes_in_values_are_refused(values):
    with pytest.raises(ValuesRefused):
        objects(values)


def test_values_with_jobs_of_the_version_before_are_refused_with_the_way_out():
    with pytest.raises(ValuesRefused, match="remove it; the workers train"):
        objects({"worker": {"trainerPlace": "kubernetes"}})
    assert objects({"worker": {"trainerPlace": "local"}}) == objects({})


def test_every_value_is_in_the_schema_and_explained():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(VALUES) == set(schema) - {"global"}
    for name, one in schema.items():
        if "properties" in one and name != "global":
            assert set(VALUES[name]) == set(one["properties"]) - {"trainerPlace"}, name
    lines = (CHART / "values.yaml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"\w+:", line) and line.split(":")[0] not in ("dispatcher", "watcher"):
            assert before.startswith("#"), line
