"""Requests that are refused: by form, API and command line at the same field, for one reason, with nothing written.

A row is what is changed of a request that is accepted, the field of the error, and a part of its message.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from django.urls import reverse

from hacrl_web.runs.models import Run, StatusChange, Sweep
from hacrl_web.runs.variants.grid import GRID
from tests.support.web.factories import launch_request
from tests.support.web.page_text import field_of
from tests.web.client.test_client import hacrl as hacrl  # its fixture

pytestmark = pytest.mark.django_db
FORM_FIELDS = (
    *("name", "group", "benchmark", "seed", "seeds", "algorithm.name", "algorithm.sharing", "algorithm.alpha"),
    *("training.steps", "training.learning_rate", "training.train_batch_size", "training.mini_batch_size"),
)
RATE, STEPS, MINI = "training.learning_rate", "training.steps", "training.mini_batch_size"
PLACED = {"training": [MINI]}  # the form shows an error of the section at this field

RUNS: list[tuple[dict[str, Any], str, str]] = [
    ({"training": {"learning_rate": "nan"}}, RATE, "finite number"),
    ({"training": {"learning_rate": "inf"}}, RATE, "finite number"),
    ({"training": {"learning_rate": 0}}, RATE, "greater than 0"),
    ({"training": {"learning_rate": -1e-6}}, RATE, "greater than 0"),
    ({"training": {"learning_rate": "1,5"}}, RATE, "0.001 (with a point, not a comma). You gave '1,5'."),
    ({"training": {"learning_rate": ""}}, RATE, "Must "),
    ({"training": {"steps": -1}}, STEPS, "at least 0"),
    ({"training": {"steps": "1e400"}}, STEPS, "whole number"),
    ({"training": {"steps": 10**30}}, STEPS, "at most"),
    ({"training": {"steps": "9" * 5000}}, STEPS, ""),
    ({"training": {"steps": "\uff11\uff12"}}, STEPS, "whole number"),
    ({"training": {"steps": True}}, STEPS, "number"),
    ({"training": {"train_batch_size": 10, "mini_batch_size": 4}}, MINI, "Must divide"),
    ({"training": {"train_batch_size": 9, "mini_batch_size": 3}, "algorithm": "gspox2"}, MINI, "must be even"),
    ({"training": {"step": 5}}, "training.step", "no setting of this name"),
    ({"training": []}, "training", "object with settings"),
    ({"algorithm": {"name": "sgd"}}, "algorithm.name", "Must be one of"),
    ({"algorithm": {"name": "hacpo", "sharing": "maybe"}}, "algorithm.sharing", "true or false"),
    ({"seed": -1}, "seed", "at least 0"),
    ({"seed": "\uff13"}, "seed", "whole number"),
    ({"name": ""}, "name", "Must not be empty"),
    ({"name": "x" * 121}, "name", "at most 120"),
    ({"agents": []}, "agents", ""),
    ({"data": {}}, "data", ""),
    ({"trust_remote_code": True}, "trust_remote_code", ""),
    ({"group": None}, "group", "Choose a group"),
    ({"group": 10**9}, "group", "no such group"),
    ({"group": "1 OR 1"}, "group", "no such group"),
    ({"group": [1]}, "group", "no such group"),
    ({"benchmark": True}, "benchmark", "no such benchmark"),
    ({"benchmark": "../etc"}, "benchmark", "no such benchmark"),
    ({"confirm": "delta_above_half"}, "confirm", ""),
    ({"draft": "yes"}, "draft", ""),
    ({"draft": True, "training": {"steps": -1}}, STEPS, "at least 0"),
]

SHORT = {"alpha": [1 / 3e5], "delta": [1 / 3], "delta_step": [1 / 3e5], "capability_window": [10]}
SWEEPS: list[tuple[dict[str, Any], str, str]] = [
    ({"algorithms": []}, "algorithms", ""),
    ({"algorithms": "hacpo"}, "algorithms", ""),
    ({"algorithms": ["ppo"]}, "algorithms", "Must be one of"),
    ({"algorithms": ["hacpo", "hacpo"]}, "algorithms", "named once"),
    ({"algorithms": [["hacpo"]]}, "algorithms", "Must be one of"),
    ({"ablations": ["no_such"]}, "ablations", "Must be one of no_adv"),
    ({"ablations": [["no_adv"]]}, "ablations", "Must be one of"),
    ({"ablations": "no_adv"}, "ablations", "Give a list"),
    ({"ablations": ["no_adv", "no_adv"]}, "ablations", "named once"),
    ({"ablations": ["no_exponent"], "algorithm": {"alpha": 0}}, "ablations", "HACPO again"),
    ({"ablations": ["no_adv"], "algorithm": {"sharing": "false"}}, "ablations", "HACPO again"),
    ({"ablations": ["no_exponent"], "grid": {"alpha": [0, 1]}}, "ablations", "are the same runs"),
    ({"grid": []}, "grid", "Must be an object"),
    ({"grid": {"epsilon": [None, 0.1]}}, "grid.epsilon", "Give values"),
    ({"grid": {"swan": [1]}}, "grid.swan", "A grid varies numbers, switches and choices"),
    ({"grid": {"rollout.stop": ["x"]}}, "grid.rollout.stop", "A grid varies numbers"),
    ({"grid": {"training.swan": [1]}}, "grid.training.swan", "A grid varies numbers"),
    ({"grid": {"checkpoint.keep": [1, 2]}}, "grid.checkpoint.keep", "A grid varies numbers"),
    ({"grid": {"training.learning_rate": ["fast"]}}, "grid.training.learning_rate", "Must be a number"),
    ({"grid": {"training.mini_batch_size": [3]}}, "grid.training.mini_batch_size", "Must divide"),
    ({"grid": {"cross_gate": ["swan"]}}, "grid.cross_gate", "Must be one of"),
    ({"grid": {"rollout.temperature": [1, 0.5]}, "rollout": 7}, "rollout", "Must be an object"),
    ({"grid": {"alpha": 1}}, "grid.alpha", "Give a list"),
    ({"grid": {"alpha": []}}, "grid.alpha", "Give a list"),
    ({"grid": {"alpha": [1, "1.0"]}}, "grid.alpha", "named once"),
    ({"grid": {"alpha": [1, "nan"]}}, "grid.alpha", "finite number"),
    ({"grid": {"alpha": [1, "x"]}}, "grid.alpha", "Must be a number"),
    ({"grid": {"delta": [2]}}, "grid.delta", "at most 1"),
    ({"grid": {"capability_window": [0.5]}}, "grid.capability_window", "whole number"),
    ({"grid": {"alpha": [1, 2]}, "algorithms": ["gspo"]}, "grid.alpha", "None of the chosen algorithms uses alpha"),
    ({"grid": {"alpha": list(range(8)), "delta": [n / 10 for n in range(8)]}}, "grid.delta", "64 points"),
    ({"grid": SHORT, "algorithms": [], "ablations": ["no_adv"]}, "grid.alpha", "too long for the name of a row"),
    ({"grid": {"agents.Z.lora_rank": [1, 2]}}, "grid.agents.Z.lora_rank", "no agent 'Z': there is A, B"),
    ({"grid": {"agents.7.lora_rank": [1, 2]}}, "grid.agents.7.lora_rank", "no agent '7'"),
    (
        {"grid": {"agents.*.lora_rank": [1, 2], "agents.B.lora_rank": [1, 2]}},
        "grid.agents.B.lora_rank",
        "agents.*.lora_rank is",
    ),
    (
        {"grid": {"agents.A.lora_rank": [1, 2], "agents.0.lora_rank": [1, 2]}},
        "grid.agents.A.lora_rank",
        "the same setting",
    ),
    ({"grid": {"agents.*.lora_rank": [1, 2000]}}, "grid.agents.*.lora_rank", "at most 1024"),
    ({"grid": {"agents.*.seed": [1, 2]}}, "grid.agents.*.seed", "same random choices"),
    ({"grid": {"agents.A.thinking": ["on", "auto"]}}, "grid.agents.A.thinking", "thinking switch"),
    ({"grid": {"rewards.terms.short.weight": [0, 1]}}, "grid.rewards.terms.short.weight", "is named 'short'"),
    ({"seeds": []}, "seeds", ""),
    ({"seeds": [-1]}, "seeds", " 0"),
    ({"seeds": [1, "01"]}, "seeds", "amed "),
    ({"seeds": list(range(20)), "grid": {"alpha": [1, 2, 3, 4]}}, "seeds", "5 variants × 20 seeds are 100"),
    ({"seeds": list(range(61))}, "seeds", ""),
    ({"seed": 3}, "seed", ""),
    ({"algorithm": "gspo"}, "algorithm.name", ""),
    ({"algorithm": {"name": "hacpo"}}, "algorithm.name", ""),
    ({"algorithm": {"alpha": "x"}}, "algorithm.alpha", "Must be a number"),
    ({"algorithm": []}, "algorithm", "Must be an object"),
    ({"training": {"steps": 0}}, STEPS, "at least 1 step"),
    ({"training": {"steps": -1}}, STEPS, "at least 0"),
    ({"surprise": 1}, "surprise", ""),
]


def fields_of(request: dict[str, Any]) -> dict[str, Any]:
    """What a browser posts. Error: ValueError for a request that no form can express."""
    sent: dict[str, Any] = {}
    for key, value in request.items():
        if key in ("algorithms", "ablations", "seeds"):
            sent[key] = ", ".join(map(str, value)) if key == "seeds" else value
        elif isinstance(value, dict) and value:
            sent |= {f"{key}.{name}": one for name, one in value.items()}
        else:
            sent["algorithm.name" if key == "algorithm" else key] = value
    for name, value in sent.items():
        if name.startswith("grid.") and name.removeprefix("grid.") in GRID and isinstance(value, list) and value:
            sent[name] = ", ".join(map(str, value))
        elif name in ("algorithms", "ablations") and isinstance(value, list) and all(isinstance(v, str) for v in value):
            continue
        elif name in FORM_FIELDS and isinstance(value, str | int | float) and not isinstance(value, bool):
            sent[name] = str(value)
        else:
            raise ValueError(name)
    return sent


def by_form(web: Any, request: dict[str, Any], field: str, words: str) -> None:
    try:
        sent = fields_of(request)
    except ValueError:
        return
    if "seeds" in request:
        if {"seed", "algorithm.name"} & sent.keys():
            return  # fields of the form that a sweep does not read
        sent |= {"compare": "1", "algorithm.name": "hacpo", "seed": "1"}
    response = web.post(reverse("runs:run_create"), sent | {"rollout.temperature": "0.75"})
    assert response.status_code == 422
    shown = field_of(response, field)
    assert "field-error" in shown
    assert words in shown.replace("&#x27;", "'")
    assert all(control for control, _ in response.context["problems"]), "each leads to its field"
    assert 'value="0.75"' in field_of(response, "rollout.temperature")
    if field.startswith(("training.", "grid.")) and len(sent[field]) < 100:
        assert f'value="{sent[field]}"' in shown, "what was typed is kept"


def by_api(web: Any, request: dict[str, Any], field: str, words: str) -> None:
    path = "/api/v1/sweeps" if "seeds" in request else "/api/v1/runs"
    answer = web.post(path, json.dumps(request), content_type="application/json")
    errors = answer.json()["errors"]
    assert answer.status_code == 422
    assert answer.json()["error"] == errors[0]
    own = [error for error in errors if field in (error["field"], *PLACED.get(error["field"], ()))]
    assert words in own[0]["message"]
    # The grid of a setting of agents or rewards that cannot be read leaves its runs without it.
    assert own == errors or field.startswith(("grid.agents.", "grid.rewards."))


@pytest.fixture
def request_(user) -> dict[str, Any]:
    return launch_request(user)


@pytest.fixture
def sweep_request_(request_) -> dict[str, Any]:
    del request_["algorithm"], request_["seed"]
    return request_ | {"algorithms": ["hacpo", "gspo"], "seeds": [1, 2]}


@pytest.fixture(autouse=True)
def _nothing_written(db):
    yield
    assert not any(table.objects.exists() for table in (Run, Sweep, StatusChange))


@pytest.mark.parametrize("send", [by_form, by_api])
@pytest.mark.parametrize(("changes", "field", "words"), RUNS, ids=lambda one: str(one)[:40])
def test_bad_run_is_refused_at_its_field(web, request_, send, changes, field, words):
    send(web, request_ | changes, field, words)


@pytest.mark.parametrize("send", [by_form, by_api])
@pytest.mark.parametrize(("changes", "field", "words"), SWEEPS, ids=lambda one: str(one)[:40])
def test_bad_sweep_is_refused_at_its_field(web, sweep_request_, send, changes, field, words):
    send(web, sweep_request_ | changes, field, words)


def test_command_line_says_what_the_api_says(hacrl, request_, sweep_request_, tmp_path):
    file = tmp_path / "request.yaml"
    run = request_ | {"algorithm": {"name": "hacpo"}, "seed": 1}
    for whole, rows in ((run, RUNS[12:20]), (sweep_request_, SWEEPS[3:10])):
        for changes, field, words in rows:
            file.write_text(yaml.safe_dump(whole | changes))
            told = " ".join(hacrl("launch", str(file), status=1).split())
            assert f"{field}: " in told or any(f"{place}: " in told for place in PLACED), changes
            assert " ".join(words.split()) in told, changes


def test_errors_of_all_fields_come_at_once(web, request_, sweep_request_):
    bad = {"group": "", "benchmark": "", "seed": -1, "training": {"learning_rate": "nan", "steps": -1}, "oops": 1}
    answer = web.post("/api/v1/runs", json.dumps(bad), content_type="application/json")
    assert {error["field"] for error in answer.json()["errors"]} == {"group", "benchmark", "seed", "oops", RATE, STEPS}
    bad = sweep_request_ | {"seeds": [], "training": {"steps": -1}, "surprise": 1}
    answer = web.post("/api/v1/sweeps", json.dumps(bad), content_type="application/json")
    assert {error["field"] for error in answer.json()["errors"]} == {"seeds", STEPS, "surprise"}
