"""What a launch request is made of, found by the names in a file: group, benchmarks; also of a run's own settings file.

"Download YAML" writes agents and data in full, for a trainer without this installation. The API takes the ids of a
group and of a benchmark, so these are looked for; where they are no longer as the file says, that is said.
"""

from __future__ import annotations

from typing import Any

from hacrl_web.client.api import Client
from hacrl_web.client.command import ClientProblem, object_id

VERSION = 1  # of settings files
OF_BENCHMARK = ("question_field", "answer_field", "prompt_template", "verifier", "tolerance", "held_out_fraction")


def with_ids(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    """The request as the API takes it. Errors: ApiError, Problem."""
    request = dict(request)
    if request.pop("schema_version", VERSION) != VERSION:
        raise ClientProblem("Another version of HACRL Web wrote this file (schema_version).")
    if "agents" in request and "group" not in request:
        request["group"] = _group_of(client, request.pop("agents"))
    if "data" in request and "benchmark" not in request:
        request["benchmark"] = _benchmark_of(client, request.pop("data"), "data")
    for field in ("group", "benchmark"):
        if isinstance(request.get(field), str):
            request[field] = object_id(client, f"/{field}s", field, request[field])
    evaluation = request.get("evaluation")
    if isinstance(evaluation, dict) and isinstance(evaluation.get("benchmarks"), list):
        ids = [_further(client, one) for one in evaluation["benchmarks"]]
        request["evaluation"] = {**evaluation, "benchmarks": ids}
    return request


def _further(client: Client, items: Any) -> Any:
    """A benchmark that evaluations ask beside the run's own, by its settings, its name, or its id as it is."""
    if isinstance(items, dict):
        return _benchmark_of(client, items, "evaluation.benchmarks")
    return object_id(client, "/benchmarks", "benchmark", items) if isinstance(items, str) else items


def _group_of(client: Client, agents: Any) -> int:
    """The newest group of exactly these agents. Errors: ApiError, Problem."""
    if not isinstance(agents, list) or not all(isinstance(one, dict) for one in agents):
        raise ClientProblem("agents: Must be a list of agents, each with name and model.")
    models = {model["id"]: model for model in client.pages("/models")}
    for group in client.pages("/groups"):
        if len(group["agents"]) == len(agents) and all(
            _is_same(agent, there, models.get(there["model"], {}))
            for agent, there in zip(agents, group["agents"], strict=True)
        ):
            return int(group["id"])
    names = ", ".join(str(one.get("name")) for one in agents)
    raise ClientProblem(
        f"agents: No group has these agents with these models and settings ({names}): choose one, --group."
    )


def _is_same(agent: dict[str, Any], there: dict[str, Any], model: dict[str, Any]) -> bool:
    """Whether an agent of a file is this agent of a group. Settings that the file leaves out are not compared."""
    settings = {name: value for name, value in agent.items() if name not in ("model", "revision")}
    is_model = agent.get("model") == model.get("location") and (agent.get("revision") or "") == model.get("revision")
    return is_model and all(there.get(name) == value for name, value in settings.items())


def _benchmark_of(client: Client, data: Any, field: str) -> int:
    """The benchmark of this name, if questions are asked and judged as the file says. Errors: ApiError, Problem."""
    if not isinstance(data, dict) or not isinstance(data.get("benchmark"), str):
        raise ClientProblem(f"{field}: Must name a benchmark.")
    pk = object_id(client, "/benchmarks", "benchmark", data["benchmark"])
    there = client.get(f"/benchmarks/{pk}")
    differing = [
        name
        for name in OF_BENCHMARK
        if name in data and there[name] is not None and data[name] != there[name] and not _is_further(field, name)
    ]
    if differing:
        differences = ", ".join(f"{field}.{name} is {there[name]!r} there" for name in differing)
        raise ClientProblem(
            f"The benchmark {data['benchmark']!r} is not as the file says: {differences}. Choose one, --benchmark."
        )
    return pk


def _is_further(field: str, name: str) -> bool:
    """A benchmark that is only asked is asked whole: nothing of it is held out."""
    return field != "data" and name == "held_out_fraction"
