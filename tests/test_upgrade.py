"""A data folder of the version of 26 November 2026 (commit ca894bb6), which had begun as one of 0.1.0, in this version.

The fixture is described in tests/data/upgrade/README.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from django.db.migrations.recorder import MigrationRecorder
from pydantic import ValidationError

from hacrl_web.ops import schema
from hacrl_web.runs.launch.form import COMPARED
from tests.support.marks import in_full
from tests.support.upgrade import FIXTURE, flat
from workers.algorithms.registry import algorithms, own_settings
from workers.contract.spec.run import RunSpec

ROOT = Path(__file__).resolve().parents[1]
ADDRESSES: list[dict[str, Any]] = json.loads((FIXTURE / "addresses.json").read_text())
SPECS = sorted(path for path in (FIXTURE / "specs").glob("*.json") if not path.name.startswith("request_"))
PARTS = ("status", "type", "location", "csv")
MISSING = "no such value"
# Of a new run's form; a clone or a draft keeps what its run had.
NEW_DEFAULTS = {
    "algorithm.beta": "0.0",
    "rollout.engine": "auto",
    "evaluation.max_questions": "500",
    "checkpoint.save_steps": "",
    "compute.placement": "auto",
    "compute.agent_devices": "auto",
    "compute.gradient_checkpointing": "auto",
}
SESSIONS = "/sessions"  # leads to the account, which logs out everywhere
COMPARE = "/compare"  # leads to the comparison of the workspace of runs
# Saved queries (the address of the Rollouts tab is the query), and verl's settings (docs/own-model.md has two lines).
GONE = (
    *("/api/v1/saved-queries", "/runs/991fb336-cb1f-4f1c-bd0a-d156672fcfe4/verl.yaml"),
    *("/benchmarks/1/overlap?other=2", "/api/v1/benchmarks/1/overlap?other=2"),
)
# Settings that left, and fields of answers about them.
LEFT = {
    *("replay_steps", "anchor", "anchor_clip", "omega_scope", "omega_shrinkage", "curriculum_rest"),
    *("omega_spread", "gguf", "num_tries", "next_try_at", "audit", "has_benchmarks", "replayed"),
}
RUNS: dict[str, dict[str, Any]] = json.loads((FIXTURE / "runs.json").read_text())
# Runs and drafts whose settings act by what left: they are shown, and cannot be trained again.
LEFT_RUNS = (
    *("transfer", "anchor own", "gate balance", "gate truncated", "gate tapered", "omega by prompt", "replay"),
    *("curriculum", "draft with replay", "draft with a curriculum", "draft of transfer"),
)
UNTRAINABLE = {RUNS[name]["id"] for name in LEFT_RUNS}


def child(folder: Path, *words: str) -> Any:
    """What the restored folder answers, from a process of its own: settings are read once a process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HACRL_", "DJANGO_"))}
    command = [sys.executable, "-m", "tests.support.upgrade", str(folder), *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict[str, Any]]:
    return child(tmp_path_factory.mktemp("upgrade") / "data", "ask")


def is_of_another_algorithm(path: str, values: dict[str, Any]) -> bool:
    """Whether a value of an answer is a setting that its algorithm did not use, and since version 2 does not have."""
    section, _, name = path.rpartition("/")
    algorithm = values.get(f"{section}/name")
    return (
        section.endswith("/algorithm")
        and algorithm in algorithms()
        and name not in algorithms()[algorithm].model_fields
    )


# What a page calls a chart, and a word of a formula: shown to people, not stored.
RENAMED = (
    ("lower-positive", "clipping"),
    ("right", "correct"),
    ("every byte matches its checksum", "verified"),
    ("cleared: ", "ended with the run: "),  # of an alert that was open when its run ended
)


# Fields of the API that have another name since.
FIELDS = {
    "right": "correct",
    "positives_are_right": "positives_are_correct",
    "not_heard": "not_drawn",
    "warn": "avoided",
    "lesson": "prompt_kind",
    "device_hours": "training_hours",
    "told apart by": "differs in",  # a column of a board's CSV
    "device-hours": "training hours",
}


def has_left(path: str) -> bool:
    """Whether a value is one of what left."""
    return bool(LEFT & set(re.split(r"[/.]", path)))


def untrainable(address: str) -> bool:
    return any(run_id in address for run_id in UNTRAINABLE)


def value_now(values: dict[str, Any], path: str, before: dict[str, Any]) -> object:
    """The value of a field of old, by its name of today if it has another one; of an alert rule, by its kind."""
    if match := re.fullmatch(r"/rules/\d+(?=/)(.+)", path):
        rule = path.removesuffix(match[1])
        places = [one for one, kind in values.items() if one.endswith("/kind") and kind == before[f"{rule}/kind"]]
        path = places[0].removesuffix("/kind") + match[1] if places else path
    renamed = "/".join(FIELDS.get(part, part) for part in path.split("/"))
    return values.get(path, values.get(renamed, MISSING))


def csv_now(csv: dict[str, Any]) -> dict[str, Any]:
    """What is known of a CSV file of old, with the names that its columns have today."""
    return csv | {"header": [FIELDS.get(name, name) for name in csv["header"]]}


def is_renamed(path: str, before: object, now: object) -> bool:
    """Whether a chart's name, its address, a formula's text, a check or an alert says the same in today's words."""
    if not isinstance(before, str) or not path.endswith(("/chart", "/url", "formula", "/checked", "/what")):
        return False
    return any(before.replace(old, new) == now for old, new in RENAMED)


@pytest.mark.integration
def test_every_old_address_answers_as_it_did(answers):
    """Lists with filters, tabs with their parameters, boards, forms of clones and drafts, CSV, and the API."""
    assert len(answers) == len(ADDRESSES) > 200
    differences = []
    for before, now in zip(ADDRESSES, answers, strict=True):
        if before["address"] == SESSIONS:
            assert (now["status"], now["location"]) == (302, "/account")
            continue
        if before["address"] in GONE:
            assert now["status"] == 404
            continue
        if untrainable(before["address"]) and before["address"].endswith("/request"):
            assert now["status"] == 409
            assert "cannot be trained by this version" in now["values"]["/error/message"]
            continue
        page, _, query = before["address"].partition("?")
        if page == COMPARE:
            assert now["status"] == 302
            assert parse_qs(now["location"].removeprefix("/runs/?")).get("runs") == parse_qs(query).get("runs")
            assert "tab=compare" in now["location"]
            continue
        pairs = [(name, before[name], now.get(name)) for name in ("status", "type", "location") if name in before]
        pairs += [("csv", csv_now(before["csv"]), now.get("csv"))] if "csv" in before else []
        values = before.get("values", {})
        pairs += [
            (path, value, value_now(now.get("values", {}), path, values))
            for path, value in values.items()
            if not is_of_another_algorithm(path, values)
            and not path.endswith(("/advice", "/formula", "/text", "/trap"))  # texts of the code, not stored
            and not ("/rows/" in path and "/settings/" in path and path not in now.get("values", {}))
            and not has_left(path)
            and path != "/rules/#"  # there are more
            and not path.startswith("/rows/24/")  # the audit acts on functions alone now, so two rows are one
            # No settings, no limits of their clip to speak of.
            and not (untrainable(before["address"]) and path.startswith("/sentences/"))
        ]
        differences += [(before["address"], *pair) for pair in pairs if pair[1] != pair[2] and not is_renamed(*pair)]
    assert differences == [], differences


@pytest.mark.integration
def test_forms_of_clones_and_drafts_hold_the_settings_that_they_held(answers):
    forms = [(before, now["form"]) for before, now in zip(ADDRESSES, answers, strict=True) if "form" in before]
    assert len(forms) > 10
    for before, form in forms:
        expected = {name: value for name, value in before["form"].items() if not LEFT & set(name.split("."))}
        if untrainable(before["address"]):  # what left has its default, and nothing to confirm
            expected = {
                name: value
                for name, value in expected.items()
                if name not in ("confirm", "algorithm.name", "algorithm.cross_gate")
            }
        if before["address"].startswith("/evaluate") and expected.get("max_completion_length") == "4096":
            expected["max_completion_length"] = ""  # chosen by the context unless it is given
        if expected.get("algorithms") == ["hacpo", "gspo", "gspox2"]:  # what Compare offers first
            expected["algorithms"] = list(COMPARED)
        if before["address"] in ("/runs/new", "/runs/new?compare=1&group=1&benchmark=1"):
            expected |= {name: value for name, value in NEW_DEFAULTS.items() if name in expected}
        if before["address"] == "/runs/new":  # begins with the newest run's
            expected |= {"group": "1", "benchmark": "1"}
        if expected.get("search.method") == "grid":  # no search: a switch says so now
            del expected["search.method"]
        if before["address"].startswith("/runs/new?compare=1"):
            expected["name"] = "sweep"  # where it was "run"
        assert {name: as_number(form.get(name)) for name in expected} == {
            name: as_number(value) for name, value in expected.items()
        }, before["address"]


def as_number(value: object) -> object:
    """`2.0` and `2` are one setting."""
    try:
        return float(str(value))
    except ValueError:
        return value


def events_by_key(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without the version of the verifier, which is that of the code which judges, not of the run's start."""
    keys = ("type", "step", "agent", "source", "benchmark", "first")
    return {
        json.dumps([event.get(key) for key in keys]): {
            path: value for path, value in flat(event) if not path.startswith("/verifier")
        }
        for event in events
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["killed", *in_full("paused")])
def test_interrupted_run_of_before_resumes_to_the_same_end(tmp_path, name):
    """It ends as its twin that nobody interrupted did in the version before: weights, optimizers, metrics.

    To the same bits where the processor rounds as the one does that trained the twin.
    """
    twin = json.loads((FIXTURE / "resumed.json").read_text())
    end = child(tmp_path / "data", "resume", name)[name]
    assert end["state"] == ["completed", 4, 2]
    assert_end_of_twin(end, twin["sha256_of_checkpoint_4"], twin["events"])


@pytest.mark.full
@pytest.mark.timeout(900)
def test_interrupted_run_of_every_algorithm_of_before_resumes_to_the_same_end(tmp_path):
    twins = json.loads((FIXTURE / "algorithms.json").read_text())
    ends = child(tmp_path / "data", "algorithms")
    assert ends.keys() == twins.keys() == set(algorithms())
    for name, end in ends.items():
        assert end["state"] == ["completed", 6, 2], name
        assert_end_of_twin(end, twins[name]["sha256"], twins[name]["events"])


def assert_end_of_twin(end: dict[str, Any], checksums: dict[str, str], twin_events: list[dict[str, Any]]) -> None:
    """The same bits, or the same numbers where the processor rounds otherwise."""
    assert end["checksums"].keys() == checksums.keys()
    is_rounded = end["checksums"] != checksums
    events, of_twin = events_by_key(end["events"]), events_by_key(twin_events)
    assert events.keys() == of_twin.keys()
    for key, values in events.items():
        expected = of_twin[key]
        if is_rounded:
            floats = {path: value for path, value in expected.items() if isinstance(value, float)}
            expected = expected | {path: pytest.approx(value, rel=1e-4, abs=1e-6) for path, value in floats.items()}
        # The version before did not count text that is not what was sampled.
        known = {path: value for path, value in values.items() if not path.startswith("/values/text_difference/")}
        assert known == expected, key


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_stored_settings_of_before_are_accepted_and_unchanged(path):
    stored = json.loads(path.read_text())
    if path.stem.removeprefix("stored_").replace("_", " ") in LEFT_RUNS:
        with pytest.raises(ValidationError, match="left this version"):
            RunSpec.model_validate(stored)
        return
    spec = RunSpec.model_validate(stored)
    dumped = spec.model_dump(mode="json")

    def part(whole: Any, of: Any) -> Any:
        """Of the whole, the fields that `of` names and that have not left."""
        if isinstance(of, list):
            return [part(one, other) for one, other in zip(whole, of, strict=True)]
        named = of.keys() - LEFT if isinstance(of, dict) else ()
        return {key: part(whole[key], of[key]) for key in named} if isinstance(of, dict) else whole

    # Version 1 had every algorithm's settings in every run.
    expected = stored | {"schema_version": 3}
    if "algorithm" in stored:
        expected["algorithm"] = own_settings(stored["algorithm"]["name"], stored["algorithm"])
    assert part(dumped, expected) == part(expected, expected)


def test_settings_as_yaml_of_before_are_read():
    path = FIXTURE / "specs" / "hacpo.yaml"
    assert RunSpec.from_file(path) == RunSpec.model_validate(yaml.safe_load(path.read_text()))


@pytest.mark.django_db
def test_database_that_stopped_between_old_migrations_is_refused():
    recorder = MigrationRecorder.Migration.objects
    recorder.filter(app="runs").delete()
    recorder.create(app="runs", name="0001_start")
    with pytest.raises(schema.NewerDatabase, match=r"before 26 November 2026 \(runs\.0002_host is missing\)"):
        schema.refuse_newer()
