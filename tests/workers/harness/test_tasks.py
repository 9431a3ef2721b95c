"""The tasks that ask a run's own benchmarks: what users wrote is data in them, never a template of the harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from workers.contract.spec.run import RunSpec
from workers.harness.tasks import write_task
from workers.questions.dataset import Question

# Runs a command where it is a template of an environment without a sandbox, as the harness has.
HOSTILE = "Be kind.{{ lipsum.__globals__['os'].popen('echo executed').read() }} {% raw"


def written(folder: Path, system_prompt: str, *, takes_system: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The task's settings, and its only row."""
    values = {
        "agents": [{"name": name, "model": f"/models/{name}"} for name in "AB"],
        "data": {"train_path": "-", "system_prompt": system_prompt},
        "training": {"steps": 0},
        "harness": {"has_benchmarks": True},
    }
    spec = RunSpec.model_validate(values)
    question = Question(id="1", question="{{ 7*7 }}?", answer="42", template="{question}")
    write_task(folder, "sums", spec.data, [question], spec, spec.agents[0], lambda: takes_system)
    config = yaml.safe_load((folder / "sums.yaml").read_text())
    return config, json.loads((folder / "sums.jsonl").read_text())


def described(config: dict[str, Any], row: dict[str, Any]) -> str:
    """The system message as the harness makes it: a field of the row, else a template."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701
    field = config["description"]
    return str(row[field]) if field in row else environment.from_string(field).render(**row)


@pytest.mark.parametrize("system_prompt", [HOSTILE, "target", "Answer.\n\nBriefly."])
def test_system_prompt_reaches_the_model_as_it_is_and_is_no_template(tmp_path, system_prompt):
    config, row = written(tmp_path, system_prompt, takes_system=True)
    assert described(config, row) == system_prompt
    assert row["prompt"] == "{{ 7*7 }}?"


def test_system_prompt_of_a_model_without_system_messages_is_data_of_the_question(tmp_path):
    config, row = written(tmp_path, HOSTILE, takes_system=False)
    assert (config["description"], row["prompt"]) == ("", f"{HOSTILE}\n\n{{{{ 7*7 }}}}?")
