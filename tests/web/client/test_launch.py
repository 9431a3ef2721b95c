"""hacrl launch: files of users and of pages, and errors with line numbers."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
import yaml
from django.http import QueryDict

from hacrl_web.client import launch_file
from hacrl_web.insight.run_tabs.views import as_yaml
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.launch.again import request_of
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.launch.form import RunForm
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run
from tests.support.web.factories import launch_request, make_run, sweep_form
from tests.web.client.test_client import hacrl as hacrl  # its fixture
from tests.web.client.test_client import said_json

pytestmark = pytest.mark.django_db


def test_downloaded_file_of_a_confirmed_run_or_sweep_launches_again_without_asking(hacrl, user, tmp_path):
    form = sweep_form(user, **{"algorithm.delta": "0.8", "algorithm.peer_thoughts": "keep"})
    for agent, opens in zip(AgentGroup.objects.get().agents.all(), (["auto", "on"], []), strict=True):
        LanguageModel.objects.filter(pk=agent.model_id).update(facts=agent.model.facts | {"opens_thought": opens})
    request = launch_request(user, group=int(form["group"]), benchmark=int(form["benchmark"]))
    request |= {"algorithm": {"name": "hacpo", "delta": 0.8}}
    with pytest.raises(LaunchError, match="opens a thought before each answer"):
        launch(user, request)
    run = launch(user, request | {"confirm": ["thoughts_differ", "delta_above_half"]})
    post = QueryDict(mutable=True)
    for name, value in (form | {"confirm": ["thoughts_differ=keep", "delta_above_half=0.8"]}).items():
        post.setlist(name, value if isinstance(value, list) else [value])
    files = {"sweep": RunForm.posted(user, post).yaml(), "tab": as_yaml(run)}
    del post["compare"]
    files["form"] = RunForm.posted(user, post).yaml()
    for name, content in files.items():
        assert sorted(yaml.safe_load(content)["confirm"]) == ["delta_above_half", "thoughts_differ"], name
        (tmp_path / f"{name}.yaml").write_text(content)
        hacrl("launch", str(tmp_path / f"{name}.yaml"))
    assert Run.objects.count() == 1 + 1 + 1 + 4
    assert yaml.safe_load(as_yaml(launch(user, request_of(user, run) | {"draft": True}))).get("confirm") is None


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_file_is_launched_once_for_each_key(hacrl, user, tmp_path, suffix):
    request = launch_request(user, name="from a file")
    request["training"]["learning_rate"] = 1e-6
    file = tmp_path / f"run.{suffix}"
    file.write_text(json.dumps(request) if suffix == "json" else yaml.safe_dump(request).replace("1.0e-06", "1e-6"))
    cost = said_json(hacrl("launch", str(file), "--dry-run", "--json"))
    assert (cost["runs"], Run.objects.count()) == (1, 0)
    first = said_json(hacrl("launch", str(file), "--key", "k1", "--json"))
    assert "No run is like this" in hacrl("runs", "--state", "failed")
    assert said_json(hacrl("launch", str(file), "--key", "k1", "--json")) == first
    assert "used for another request" in hacrl("launch", str(file), "--key", "k1", "--seed", "9", status=1)
    run = Run.objects.get()
    assert (str(run.pk), run.spec["training"]["learning_rate"]) == (first["id"], 1e-6)
    hacrl("launch", str(file), "--name", "another", "--seed", "5")
    assert sorted(Run.objects.values_list("name", "seed")) == [("another", 5), ("from a file", 1)]


def test_group_and_benchmark_may_be_named_and_a_file_with_seeds_is_a_sweep(hacrl, user, tmp_path):
    made = make_run(user)
    request = launch_request(user)
    request |= {"group": made.group.name, "benchmark": made.benchmark.name, "algorithms": ["gspo"], "seeds": [1, 2]}
    del request["algorithm"], request["seed"]
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(request))
    assert "Sweep" in hacrl("launch", str(file))
    assert made.group.runs.count() == 3
    assert "complete" in hacrl("sweeps")
    request["group"] = "no such group"
    file.write_text(yaml.safe_dump(request))
    assert "There is no group" in hacrl("launch", str(file), status=4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must hold an object"),
        ("[]", "must hold an object"),
        ("{", "line 1, column 2: expected the node content"),
        ("!!python/object/apply:os.system [ls]", "line 1, column 1: could not determine"),
        ("\x00", "special characters"),
        ("name: a\nseed: 1\nname: b", "line 3, column 1: the name 'name' appears twice"),
        ("seed: .nan", "line 1, column 7: .nan is not a finite number"),
        ("a: &a [x]\nb: [*a, *a]", "line 2, column 5: settings have no aliases"),
        ("a: &a\n  b: *a", "line 2, column 6: settings have no aliases"),
        ("training:\n  1: 2", "line 2, column 3: a setting's name must be a text"),
        ("name: !!binary aGk=", "line 1, column 7: could not determine"),
        ("!!map [1]", "expected a mapping node"),
        ("training: !!map [[steps, 1]]", "line 1, column 11: expected a mapping node"),
        ("name: a\n---\nname: b", "another document"),
        ("[" * 5000, "nested too deeply"),
        ("a" * 300_000, "larger than 256 KiB"),
        ('name: "\\ud800"', "not YAML or JSON"),
        ("seed: 0x" + "f" * 5000, "not YAML or JSON"),
        ("seed: !!int ''", "is not a valid int"),
        ("seed: !!float _", "is not a valid float"),
        ("seed: " + "1:" * 400 + "1.5", "is not a valid float"),
        ("seed: .inf", ".inf is not a finite number"),
        ("schema_version: 4", "Another version"),
        ("agents: {}", "agents: Must be a list"),
        ("agents: [{name: A, model: /no/such}]", "No group has these agents"),
        ("group: 1\ndata: {benchmark: 1}", "data: Must name a benchmark"),
    ],
    ids=lambda text: text[:24],
)
def test_invalid_file_is_refused_before_anything_is_sent(hacrl, tmp_path, text, told):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    assert told in hacrl("launch", str(file), status=1)


def test_json_with_a_repeated_name_or_nan_is_refused(hacrl, tmp_path):
    file = tmp_path / "run.json"
    for text, told in (
        ('{"seed": 1, "seed": 2}', "'seed' appears twice"),
        ('{"seed": NaN}', "NaN is not a finite number"),
    ):
        file.write_text(text)
        assert told in hacrl("launch", str(file), status=1)


def test_refusal_names_the_line_and_a_date_is_a_text(hacrl, user, tmp_path):
    request = launch_request(user)
    file = tmp_path / "run.yaml"
    lines = [f"group: {request['group']}", f"benchmark: {request['benchmark']}", "# a comment", "name: a", "seed: 1"]
    lines += [
        "algorithm: {name: signed, delta: 0.8, betta: 0}",
        "training:",
        "  step: 3",
        "evaluation: {eval_interval: 2026-01-01}",
    ]
    file.write_text("\n".join(lines))
    told = hacrl("launch", str(file), status=1)
    assert "training.step: There is no setting of this name. [line 8]" in told
    assert "algorithm.delta: signed has no setting of this name. [line 6]" in told
    assert "algorithm.betta: signed has no setting of this name. Did you mean beta? [line 6]" in told
    assert "You gave '2026-01-01'. [line 9]" in told


def test_settings_downloaded_from_a_page_are_launched_unchanged(hacrl, user, tmp_path):
    run = make_run(user, name="swan")
    further = make_run(user, name="other").benchmark
    run.spec["evaluation"]["benchmarks"] = [{**data_values(further), "held_out_fraction": 0.0}]
    run.save(update_fields=["spec"])
    file = tmp_path / "swan.yaml"
    file.write_text(f"# of its Config tab\n{as_yaml(run)}")
    made = Run.objects.get(pk=said_json(hacrl("launch", str(file), "--json"))["id"])
    assert (made.group, made.benchmark) == (run.group, run.benchmark)
    assert {**made.spec, "evaluation": None} == {**run.spec, "evaluation": None}
    assert made.spec["evaluation"]["benchmarks"][0]["train_path"] == further.train_path

    # What was changed since is said, and not launched as something else.
    Benchmark.objects.filter(pk=run.benchmark_id).update(prompt_template="Say {question}")
    assert "data.prompt_template is 'Say {question}' there" in hacrl("launch", str(file), status=1)
    hacrl("launch", str(file), "--group", run.group.name, "--benchmark", str(run.benchmark_id))
    # Agents keep the settings of the file, also where their group has others now.
    Benchmark.objects.filter(pk=run.benchmark_id).update(prompt_template=run.benchmark.prompt_template)
    run.group.agents.update(learning_rate=1e-5)
    made = Run.objects.get(pk=said_json(hacrl("launch", str(file), "--json"))["id"])
    assert made.spec["agents"] == run.spec["agents"]
    assert made.agent_changes == {name: {"learning_rate": None} for name in run.agent_names}


def test_refusal_of_the_api_names_the_field(hacrl, user, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(launch_request(user, seed=-1, oops=1)))
    told = hacrl("launch", str(file), status=1)
    assert "seed: Must be at least 0" in told
    assert "oops: There is no setting" in told
    hacrl("launch", str(tmp_path / "missing.yaml"), status=1)


def test_caution_names_the_word_that_confirms_it(hacrl, user, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(launch_request(user, algorithm={"name": "hacpo", "delta": 0.8})))
    assert "(delta_above_half)" in hacrl("launch", str(file), status=1)
    hacrl("launch", str(file), "--confirm", "delta_above_half")


def test_requests_of_a_run_launch_it_again(hacrl, user, tmp_path):
    run = make_run(user, name="swan")
    file = tmp_path / "again.yaml"
    hacrl("export", "request", "swan", "-o", str(file))
    made = said_json(hacrl("launch", str(file), "--json"))
    assert made["cloned_from"] == str(run.pk)
    clone = Run.objects.get(pk=made["id"])
    assert clone.spec == run.spec


def test_yaml_reads_an_exponent_as_a_number(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a: 1e-6\nb: 12\nc: e-6\nd: 1.5\n")))
    assert launch_file.read_launch_file("-").values == {"a": 1e-6, "b": 12, "c": "e-6", "d": 1.5}


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_refusal_of_a_caution_names_the_option_that_confirms_it(hacrl, user, tmp_path, option):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(launch_request(user, algorithm={"name": "hacpo", "delta": 0.8})))
    assert "--confirm delta_above_half" in hacrl("launch", str(file), *option, status=1)
    hacrl("launch", str(file), *option, "--confirm", "delta_above_half")
