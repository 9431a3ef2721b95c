"""A file of settings fills in the new-run form, and queues nothing; what cannot be read is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from hacrl_web.runs.models import Run
from hacrl_web.web.settings_file import MAX_BYTES
from tests.support.web.factories import make_benchmark, make_run

pytestmark = pytest.mark.django_db


def send(client: Any, data: bytes) -> Any:
    return client.post(reverse("runs:run_import"), {"file": SimpleUploadedFile("settings.yaml", data)})


def value_of(page: str, path: str) -> str:
    return page.split(f'name="{path}"')[1].split('value="')[1].split('"')[0]


def test_settings_of_a_run_come_back_into_the_form(client, user):
    client.force_login(user)
    run = make_run(user, name="swan", rollout={"temperature": 0.75}, seed=42)
    file = client.get(reverse("insight:run_yaml", args=[run.pk])).getvalue()
    answer = send(client, file)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert [value_of(page, path) for path in ("name", "seed", "rollout.temperature")] == ["swan", "42", "0.75"]
    assert Run.objects.count() == 1, "nothing is queued"


def test_launch_request_as_json_fills_in_group_and_benchmark(client, user):
    client.force_login(user)
    run = make_run(user)
    asked = {"name": "goose", "algorithm": "gspo", "group": run.group_id, "training": {"steps": 7}}
    page = send(client, json.dumps(asked).encode()).content.decode()
    assert value_of(page, "training.steps") == "7"
    assert f'<option value="{run.group_id}" selected>' in page


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "must hold an object"),
        (b"[1, 2]", "must hold an object"),
        (b"\xff\xfe\x00", "not YAML or JSON"),
        (b"a: [", "line 1, column 5: expected the node content"),
        (b"[" * 5000, "nested too deeply"),
        (b"!!python/object/apply:os.system [ls]", "line 1, column 1: could not determine"),
        (b"a" * (MAX_BYTES + 1), "larger than 256 KiB"),
        (b"swan: 1", "There is no setting of this name"),
        (b"training: {swan: 1}", "training.swan"),
        (b"training: 3", "Must be an object with settings"),
        (b"training: {steps: [1]}", "Must be a number"),
        (b"seed: 0x" + b"f" * 3000, "Must be a number"),
        (b"seed: 0x" + b"f" * 5000, "not YAML or JSON"),
        (b'name: "\\ud800"', "not YAML or JSON"),
        (b'"\\ud800": 1', "not YAML or JSON"),
        (b'name: "\\UFFFFFFFF"', "not YAML or JSON"),
        (b"seed: 1\nseed: 2", "line 2, column 1: the name &#x27;seed&#x27; appears twice"),
        (b"a: &a {k: v}\nb: {<<: [*a, *a]}", "line 2, column 10: settings have no aliases"),
        (b"seed: !!int ''", "line 1, column 7: &#x27;&#x27; is not a valid int"),
        (b"seed: !!float _", "&#x27;_&#x27; is not a valid float"),
        (b"seed: !!bool swan", "&#x27;swan&#x27; is not a valid bool"),
        (b"name: !!timestamp swan", "could not determine a constructor"),
        (b"seed: " + b"1:" * 400 + b"1.5", "is not a valid float"),
        (b"seed: .inf", ".inf is not a finite number"),
        (b"schema_version: 0", "Another version"),
        (b"seeds: [1, 2]", "launches a sweep"),
    ],
)
def test_odd_file_is_refused_with_a_reason(client, user, data, said):
    client.force_login(user)
    answer = send(client, data)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert said in page
    if "YAML" in said:
        assert "marked beside" not in page, "a file has no field"
    assert not Run.objects.exists()


def test_training_sets_of_a_file_fill_in_their_weights_and_unknown_ones_are_named(client, user):
    client.force_login(user)
    first, second = make_benchmark(user), make_benchmark(user)
    answer = send(client, f"training: {{benchmarks: [{first.pk}, {{benchmark: {second.pk}, weight: 5}}]}}".encode())
    page = answer.content.decode()
    assert f'name="training.benchmarks.{first.pk}" value="1"' in page
    assert f'name="training.benchmarks.{second.pk}" value="5"' in page
    assert "is not among these benchmarks" not in page
    page = send(client, f"training: {{benchmarks: [{second.name}, sumB]}}".encode()).content.decode()
    assert f'name="training.benchmarks.{second.pk}" value="1"' in page
    assert "The training set “sumB” is not among these benchmarks" in page


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("5", "Must be a list."),
        ("sumB", "Must be a list."),
        ("null", "Must be a list."),
        ("[[1]]", "Must be a benchmark, by its name or id"),
        ("[true]", "Must be a benchmark, by its name or id"),
        ("[{weight: 2}]", "Must be a benchmark, by its name or id"),
        ("[{benchmark: a, weight: [1]}]", "Must be a number."),
        ("[{benchmark: a, weight: 1}, {benchmark: a, weight: 2}]", "“a” is listed twice"),
    ],
)
def test_odd_training_sets_of_a_file_are_refused(client, user, value, said):
    client.force_login(user)
    answer = send(client, f"training: {{benchmarks: {value}}}".encode())
    assert answer.status_code == 422
    assert said in answer.content.decode()


def test_odd_further_benchmarks_and_no_file_are_no_error_of_ours(client, user):
    client.force_login(user)
    assert send(client, b"evaluation: {benchmarks: [{benchmark: [1]}, 3, {benchmark: x}]}").status_code == 422
    row, other = make_benchmark(user), make_benchmark(user)
    page = send(client, f"evaluation: {{benchmarks: [{row.pk}, {{benchmark: x}}]}}".encode()).content.decode()
    assert f'value="{row.pk}" checked' in page
    assert f'value="{other.pk}" checked' not in page
    assert client.post(reverse("runs:run_import")).status_code == 422
