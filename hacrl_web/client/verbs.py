"""The commands that call one operation of the API; `generated.py` makes them.

By name: operation, arguments, options, example; of a list its columns, of an object its fields. `option>field` is a
value that the user types otherwise than the request has it: `VALUES` tells how. Commands that take several operations
are in `commands/`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hacrl_web.client.api import Client
from hacrl_web.client.command import ClientProblem, object_id, run_id


@dataclass(frozen=True)
class Verb:
    """by_name: POST creates an object; if there is one of this name, PUT changes it.  is_once: with an idempotency key.
    limit: default number of rows.
    """

    operation: str
    arguments: str = ""
    options: str = ""
    example: str = ""
    columns: str = ""
    fields: str = ""
    by_name: bool = False
    is_once: bool = False
    limit: int = 0

    @property
    def path(self) -> str:
        return self.operation.split(" ")[1]


GROUPS = {
    "sweeps": "List and show sweeps; stop or delete all their runs.",
    "models": "List and register models.",
    "groups": "List and create agent groups.",
    "benchmarks": "List and create benchmarks.",
    "rewards": "List, register and try reward functions.",
    "judges": "List, register and try judges.",
}
TRY = "response question answer>gold"
TRY_EXAMPLE = '--question "2*7+3=" --answer 17 --response "so 17"'
VERBS = {
    "whoami": Verb("GET /me", example="whoami", fields="name staff=is_staff token=token.name scopes=token.scopes"),
    "show": Verb(
        "GET /runs/{run_id}",
        example="show swan",
        fields="name id page=url state archived=archived_at reason step total_steps learned_nothing algorithm variant "
        "seed sweep retry_of cloned_from place_in_queue host=worker_host "
        "created=created_at started=started_at finished=finished_at tags notes",
    ),
    "stop": Verb("POST /runs/{run_id}/stop", example="stop swan", is_once=True),
    "pause": Verb("POST /runs/{run_id}/pause", "", "why", 'pause swan --why "the GPU is needed"', is_once=True),
    "resume": Verb("POST /runs/{run_id}/resume", example="resume swan", is_once=True),
    "queue": Verb("POST /runs/{run_id}/queue", "", "place priority", "queue swan --place 1"),
    "extend": Verb(
        "POST /runs/{run_id}/checkpoints/extend", "", "step steps", "extend swan --step 20 --steps 40", is_once=True
    ),
    "presets": Verb("GET /presets", example="presets", columns="name about=label"),
    "retry": Verb("POST /runs/{run_id}/retry", example="retry 0d93250c", is_once=True),
    "evaluate": Verb(
        "POST /evaluations",
        "",
        "benchmark>benchmarks model>models group>group run>run step max_tokens>max_completion_length max_questions "
        "num_samples temperature seed name",
        "evaluate --run swan --step 40 --benchmark gsm8k --model 1",
        is_once=True,
    ),
    "sweeps": Verb("GET /sweeps", columns="id name launched=created_at", limit=20),
    "sweeps stop": Verb("POST /sweeps/{sweep_id}/stop", example="sweeps stop 3"),
    "models": Verb("GET /models", columns="id name architecture parameters=num_parameters kind"),
    "models add": Verb("POST /models", "location", "hub>kind revision name", "models add Qwen/Qwen3-0.6B --hub"),
    "groups": Verb("GET /groups", columns="id name agents"),
    "groups add": Verb("POST /groups", "name", "agent>agents", "groups add pair --agent left=1 --agent right=2"),
    "groups copy": Verb(
        "POST /groups/{pk}/copy", "name", "set>agents", "groups copy pair pair-lora --set left.lora_rank=16"
    ),
    "benchmarks": Verb(
        "GET /benchmarks", columns="id name training_questions=num_train held_out=num_held_out verifier"
    ),
    "benchmarks load": Verb("POST /benchmarks/built-in", "built_in", "location", "benchmarks load gsm8k"),
    "benchmarks fetch": Verb(
        "POST /benchmarks/fetch",
        "location",
        "kind revision name set>",
        "benchmarks fetch 'chain_sum?level=2&seed=7' --kind generator",
    ),
    "benchmarks add": Verb(
        "POST /benchmarks",
        "file>file",
        "name held_out>held_out_file set>",
        "benchmarks add questions.jsonl --set question_field=problem",
    ),
    "benchmarks copy": Verb(
        "POST /benchmarks/{pk}/copy", "name", "set>", "benchmarks copy sums sums-numeric --set verifier=numeric"
    ),
    "rewards": Verb("GET /reward-functions", columns="id name version network=uses_network"),
    "rewards add": Verb("POST /reward-functions", "file>source", "name", "rewards add steps.py", by_name=True),
    "rewards try": Verb("POST /reward-functions/{pk}/try", "", TRY, f"rewards try steps {TRY_EXAMPLE}"),
    "judges": Verb("GET /judges", columns="id name kind=settings.kind model=settings.model version"),
    "judges add": Verb(
        "POST /judges", "file>settings", "name key_stdin>key", "judges add helpful.yaml --key-stdin", by_name=True
    ),
    "judges try": Verb("POST /judges/{pk}/try", "", TRY, f"judges try helpful {TRY_EXAMPLE}"),
}


def pairs(_: Client, texts: list[str]) -> dict[str, str]:
    """Error: ClientProblem."""
    parts = [text.partition("=") for text in texts]
    if wrong := [name for name, equals, _ in parts if not equals]:
        raise ClientProblem(f"--set takes NAME=VALUE; this is {wrong[0]!r}.")
    return {name: value for name, _, value in parts}


def agent_settings(client: Client, texts: list[str]) -> dict[str, dict[str, str]]:
    """AGENT.SETTING=VALUE, by agent. Error: ClientProblem."""
    changes: dict[str, dict[str, str]] = {}
    for place, value in pairs(client, texts).items():
        agent, dot, setting = place.rpartition(".")
        if not dot:
            raise ClientProblem(f"--set takes AGENT.SETTING=VALUE; this is {place!r}.")
        changes.setdefault(agent, {})[setting] = value
    return changes


def agents(client: Client, texts: list[str]) -> list[dict[str, Any]]:
    """[NAME=]MODEL of each agent."""
    parts = [text.rpartition("=") for text in texts]
    return [{"name": name, "model": object_id(client, "/models", "model", model)} for name, _, model in parts]


def yaml_of(_: Client, file: Path) -> dict[str, Any]:
    """Error: ClientProblem."""
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, AttributeError, yaml.YAMLError, RecursionError):
        raise ClientProblem(f"{file} cannot be read as YAML or JSON.") from None
    if not isinstance(settings, dict):
        raise ClientProblem(f"{file} holds no settings, such as `kind: endpoint`.")
    return settings


def all_of(collection: str, kind: str) -> Callable[[Client, list[str]], list[int]]:
    return lambda client, names: [object_id(client, collection, kind, name) for name in names]


# What the user types for `option>field`: its type and help, and how the field's value is made of it.
VALUES: dict[str, tuple[Any, str, Callable[[Client, Any], Any]]] = {
    "file>file": (Path, "Questions: JSONL, CSV or Parquet.", lambda _, file: file),
    "held_out>held_out_file": (Path, "A second file of held-out questions.", lambda _, file: file),
    "file>source": (
        *(Path, "Python file with `reward(question, answer, response, **fields)`."),
        lambda _, file: file.read_text(encoding="utf-8"),
    ),
    "file>settings": (Path, "YAML or JSON settings of the judge, as in docs/rewards.md.", yaml_of),
    "key_stdin>key": (bool, "Read the key of its address from stdin.", lambda *_: sys.stdin.readline().strip()),
    "hub>kind": (bool, "The location is a hub id.", lambda *_: "hub"),
    "set>": (list[str], "A field of the request: question_field=problem. Repeat it.", pairs),
    "set>agents": (list[str], "A setting of an agent: left.lora_rank=16. Repeat it.", agent_settings),
    "agent>agents": (list[str], "A model, by id or name; NAME=MODEL names the agent. Repeat it.", agents),
    "model>models": (list[str], "A model, by id or name. Repeat it.", all_of("/models", "model")),
    "benchmark>benchmarks": (list[str], "By id or name. Repeat it.", all_of("/benchmarks", "benchmark")),
    "group>group": (
        *(str, "All agents of a group, by id or name."),
        lambda client, name: object_id(client, "/groups", "group", name),
    ),
    "run>run": (str, "The agents of a checkpoint of this run.", run_id),
}
