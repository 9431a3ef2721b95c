"""Reads the file of `hacrl launch`: a launch request, or the settings file of a run, in YAML or JSON.

The API takes ids of a group and of benchmarks. A file may name them; a run's settings file ("Download YAML") has the
agents and the data in full, so the group and benchmark with the same settings are searched.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from hacrl_web.client.api import ApiError, Client
from hacrl_web.client.command import ClientProblem, object_id
from hacrl_web.client.settings_file import MAX_BYTES, NoSettings, read_settings_file

TRAINING_SETS = "training.benchmarks"
VERSIONS = (1, 2, 3)  # of settings files; the server upgrades all but the last
BENCHMARK_SETTINGS = (
    *("question_field", "answer_field", "prompt_template", "system_prompt"),
    *("verifier", "tolerance", "extraction", "held_out_fraction"),
)


@dataclass(frozen=True)
class LaunchFile:
    """The content of a file.  lines: line number of each dotted path (YAML only)."""

    values: dict[str, Any]
    lines: dict[str, int]

    def located(self, error: ApiError) -> ApiError:
        """Adds line numbers to an error: those of its fields, or of the sections around them."""
        errors = [dict(one) for one in error.errors]
        for one in errors:
            path = one.get("field") or ""
            while path and path not in self.lines:
                path = path.rpartition(".")[0]
            if path:
                one["message"] += f" [line {self.lines[path]}]"
        return ApiError(error.status, errors)


def read_launch_file(file: str) -> LaunchFile:
    """file: its path, or `-` for standard input. Errors: ClientProblem, OSError."""
    stream = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    name = "Standard input" if file == "-" else file
    with stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        return LaunchFile(*read_settings_file(data, name, is_json=file.endswith(".json")))
    except NoSettings as error:
        raise ClientProblem(str(error)) from None


def with_ids(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    """The request as the API takes it. Errors: ApiError, ClientProblem."""
    request = dict(request)
    if request.get("schema_version", VERSIONS[-1]) not in VERSIONS:
        raise ClientProblem("Another version of HACRL Web wrote this file (schema_version).")
    if "agents" in request and "group" not in request:
        request["group"], changes = _group_of(client, request.pop("agents"), request.get("training"))
        request |= {"agents": changes} if changes else {}
    if "data" in request and "benchmark" not in request:
        request["benchmark"] = _benchmark_of(client, request.pop("data"), "data")
    for field in ("group", "benchmark"):
        if isinstance(request.get(field), str):
            request[field] = object_id(client, f"/{field}s", field, request[field])
    evaluation = request.get("evaluation")
    if isinstance(evaluation, dict) and isinstance(evaluation.get("benchmarks"), list):
        ids = [_further_benchmark(client, one) for one in evaluation["benchmarks"]]
        request["evaluation"] = {**evaluation, "benchmarks": ids}
    training = request.get("training")
    if isinstance(training, dict) and isinstance(training.get("benchmarks"), list):
        sets = [_training_set(client, one) for one in training["benchmarks"]]
        request["training"] = {**training, "benchmarks": sets}
    return request


def _training_set(client: Client, entry: Any) -> Any:
    """A further training set with the id of its benchmark; the weight stays."""
    if isinstance(entry, dict) and "train_path" in entry:  # of a run's settings file
        return {"benchmark": _benchmark_of(client, entry, TRAINING_SETS), "weight": entry.get("weight", 1)}
    if isinstance(entry, dict) and isinstance(entry.get("benchmark"), str):
        return {**entry, "benchmark": object_id(client, "/benchmarks", "benchmark", entry["benchmark"])}
    return object_id(client, "/benchmarks", "benchmark", entry) if isinstance(entry, str) else entry


def _further_benchmark(client: Client, entry: Any) -> Any:
    """The id of a benchmark of `evaluation`, by its settings or its name; an id or a deleted one stays as it is."""
    if isinstance(entry, dict) and entry.get("benchmark") is None and "name" in entry:
        return entry  # the service refuses it with its name
    if isinstance(entry, dict):
        return _benchmark_of(client, entry, "evaluation.benchmarks")
    return object_id(client, "/benchmarks", "benchmark", entry) if isinstance(entry, str) else entry


def _group_of(client: Client, agents: Any, training: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    """The newest group of these agents, if possible one without changes, and the changed settings by agent.

    Errors: ApiError, ClientProblem.
    """
    if not isinstance(agents, list) or not all(isinstance(one, dict) for one in agents):
        raise ClientProblem("agents: Must be a list of agents, each with name and model.")
    models = {model["id"]: model for model in client.pages("/models")}
    groups = []
    for group in client.pages("/groups"):
        if len(group["agents"]) != len(agents):
            continue
        pairs = [
            (agent, member | _of_run(agent, member, training), models.get(member["model"], {}))
            for agent, member in zip(agents, group["agents"], strict=True)
        ]
        if all(_is_same_model(*pair) for pair in pairs):
            changes = {agent["name"]: own for agent, member, _ in pairs if (own := _differences(agent, member))}
            if not changes:
                return int(group["id"]), {}
            groups.append((int(group["id"]), changes))
    if groups:
        return groups[0]
    names = ", ".join(str(one.get("name")) for one in agents)
    raise ClientProblem(f"agents: No group has these agents with these models ({names}): choose a group by --group.")


def _of_run(agent: dict[str, Any], member: dict[str, Any], training: Any) -> dict[str, Any]:
    """The LoRA settings of a member of a group in a run: a run's file has what the run adds to those of its group."""
    training = training if isinstance(training, dict) else {}
    rank = member.get("lora_rank") or training.get("lora_rank") or 0
    rates = [training.get("learning_rate"), training.get("lora_learning_rate_factor"), agent.get("learning_rate")]
    numbers = [rate for rate in rates if isinstance(rate, int | float)]
    is_of_run = rank and member.get("learning_rate") is None and len(numbers) == len(rates)
    if is_of_run and isclose(numbers[0] * numbers[1], numbers[2], rel_tol=1e-9):
        return {"lora_rank": rank, "learning_rate": numbers[2]}
    return {"lora_rank": rank}


def _is_same_model(agent: dict[str, Any], member: dict[str, Any], model: dict[str, Any]) -> bool:
    """Whether an agent of a file is a member of a group: its name and model."""
    is_model = agent.get("model") == model.get("location") and (agent.get("revision") or "") == model.get("revision")
    return is_model and agent.get("name") == member.get("name")


def _differences(agent: dict[str, Any], member: dict[str, Any]) -> dict[str, Any]:
    """Settings of an agent of a file that its group gives it otherwise. Those that the file omits are not compared."""
    settings = {name: value for name, value in agent.items() if name not in ("name", "model", "revision")}
    return {name: value for name, value in settings.items() if member.get(name) != value}


def _benchmark_of(client: Client, data: Any, field: str) -> int:
    """The benchmark of this name, if its settings are those of the file. Errors: ApiError, ClientProblem."""
    if not isinstance(data, dict) or not isinstance(data.get("benchmark"), str):
        raise ClientProblem(f"{field}: Must name a benchmark.")
    pk = object_id(client, "/benchmarks", "benchmark", data["benchmark"])
    benchmark = client.get(f"/benchmarks/{pk}")
    # All questions of a further benchmark are used: nothing of it is held out.
    names = [name for name in BENCHMARK_SETTINGS if field in ("data", TRAINING_SETS) or name != "held_out_fraction"]
    values = {name: benchmark[name] for name in names if name in data and benchmark[name] is not None}
    if differing := [name for name, value in values.items() if data[name] != value]:
        differences = ", ".join(f"{field}.{name} is {values[name]!r} there" for name in differing)
        raise ClientProblem(
            f"The benchmark {data['benchmark']!r} differs from the file: {differences}. Choose one by --benchmark."
        )
    return pk
