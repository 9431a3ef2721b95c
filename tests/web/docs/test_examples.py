"""The examples that launch runs are accepted on the demo's group and benchmark, as they are printed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from django.conf import settings as django_settings

from hacrl_web.docs import pages
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.launch.plan import plan_of
from hacrl_web.runs.models import Run, Sweep
from tests.support.web.factories import make_benchmark, make_group
from workers.contract.demo_recipe import AGENTS, demo_settings
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db
DEMO_CONTEXT = 128  # tokens that the demo's models read and write


@pytest.fixture
def ids(user: Any) -> dict[str, int]:
    """A group with the context of the demo's, and a benchmark."""
    group = make_group(user, tuple(AGENTS.values()))
    LanguageModel.objects.update(context_length=DEMO_CONTEXT)
    return {"group": group.pk, "benchmark": make_benchmark(user).pk}


def read_python(text: str) -> dict[str, Any]:
    """The request of a page's Python; `ids` are put in place of its own."""
    (code,) = re.findall(r"^request = (\{.+?^\})", text, re.MULTILINE | re.DOTALL)
    request: dict[str, Any] = eval(code, {"groups": {"": 1}, "benchmarks": {"": 1}})
    return request


def read_curl(text: str) -> dict[str, Any]:
    """The body of the request that launches a run."""
    (body,) = re.findall(r"-d '(\{\"name\".+?\})' \S+/api/v1/runs", text, re.DOTALL)
    request: dict[str, Any] = json.loads(body)
    return request


def test_examples_are_launched_on_the_demos_agents(user, ids):
    readme = (django_settings.BASE_DIR / "README.md").read_text()
    python, api = ((pages.FOLDER / f"{name}.md").read_text() for name in ("python", "api"))
    for request in (read_python(readme), read_python(python), read_curl(api)):
        (spec,) = plan_of(user, request | ids, Run).specs
        assert spec.rollout.max_prompt_length == demo_settings("hacpo")["rollout"]["max_prompt_length"]
        assert spec.rollout.max_completion_length == demo_settings("hacpo")["rollout"]["max_completion_length"]


def test_file_to_launch_has_the_settings_of_the_demo(user, ids):
    (text,) = re.findall(r"## Files to launch.+?```yaml\n(.+?)```", (pages.FOLDER / "cli.md").read_text(), re.DOTALL)
    plan = plan_of(user, yaml.safe_load(text) | ids, Sweep)
    assert {spec.rule.name for spec in plan.specs} == {"hacpo", "gspo"}
    for spec in plan.specs:
        demo = RunSpec.model_validate(
            spec.model_dump(mode="json", exclude={"algorithm"}) | demo_settings(spec.rule.name)
        )
        assert spec.model_dump() == demo.model_dump()


def test_readme_is_short():
    assert len((django_settings.BASE_DIR / "README.md").read_text().split()) <= 800


def test_the_launcher_the_readme_and_the_tutorial_name_the_same_size():
    for name in ("hacrl", "README.md", "docs/tutorial.md"):
        assert "1.6 GB" in (django_settings.BASE_DIR / name).read_text(), name
