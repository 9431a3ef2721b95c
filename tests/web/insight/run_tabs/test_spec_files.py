"""A run's settings as files: on the Config tab, by the API, and from the new-run form before anything is queued."""

from __future__ import annotations

import pytest
import yaml
from django.urls import reverse

from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.runs.models import Run
from tests.support.web.factories import launch_form, make_run
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db


def test_config_tab_offers_a_file_that_holds_the_run_and_so_does_the_api(client, owner):
    run = make_run(owner, 'pair "one" €')
    page = client.get(reverse("insight:run_config", args=[run.pk])).content.decode()
    path = reverse("insight:run_yaml", args=[run.pk])
    assert f'href="{path}"' in page
    answer = client.get(path)
    assert answer["Content-Disposition"] == 'attachment; filename="pair-one.yaml"'
    assert answer["Content-Type"] == "application/yaml; charset=utf-8"
    assert yaml.safe_load(answer.content) == run.spec
    assert client.get(f"/api/v1/runs/{run.pk}/config.yaml").content == answer.content


def test_settings_of_another_version_are_said_and_the_tab_stays(client, owner):
    run = make_run(owner)
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "of_tomorrow": 1})
    assert client.get(reverse("insight:run_config", args=[run.pk])).status_code == 200
    answer = client.get(reverse("insight:run_yaml", args=[run.pk]))
    assert (answer.status_code, "stored by another version" in answer.content.decode()) == (409, True)


def test_form_hands_out_its_settings_and_queues_nothing(client, owner, tmp_path):
    # A caution, which is asked about when a run is queued.
    form = launch_form(owner, name="to keep") | {"algorithm.delta": "0.8"}
    answer = client.post(reverse("runs:run_download"), form)
    assert answer.status_code == 200, answer.content.decode()
    assert answer["Content-Disposition"] == 'attachment; filename="to-keep.yaml"'
    spec = RunSpec.model_validate(yaml.safe_load(answer.content))
    assert (spec.name, spec.seed, spec.algorithm.delta) == ("to keep", 3, 0.8)
    file = tmp_path / "to-keep.yaml"
    file.write_bytes(client.post(reverse("runs:run_download"), form | {"confirm": "delta_above_half=0.8"}).content)
    assert yaml.safe_load(file.read_text())["confirm"] == ["delta_above_half"]
    assert RunSpec.from_file(file) == spec  # `python -m workers` trains it
    wrong = client.post(reverse("runs:run_download"), {**form, "seed": "-1"})
    assert wrong.status_code == 422
    assert "Must be at least 0" in wrong.content.decode()
    sent = {**form, "compare": "1", "algorithms": ["hacpo", "gspo"], "seeds": "0, 1", "confirm": "delta_above_half=0.8"}
    sweep = client.post(reverse("runs:run_download"), sent)
    assert sweep.status_code == 200, sweep.content.decode()
    kept = yaml.safe_load(sweep.content)
    assert (kept["algorithms"], kept["seeds"], kept["confirm"]) == (["hacpo", "gspo"], [0, 1], ["delta_above_half"])
    assert (kept["group"], kept["benchmark"]) == (AgentGroup.objects.get().name, Benchmark.objects.get().name)
    assert not Run.objects.exists()
