"""What an agent has of its own: from form and API, checked by AgentSpec, onto pages and into the run's spec.json."""

import json
import re
import sys
from html import unescape

import pytest

from hacrl_web.registry.agent_groups import service as groups
from hacrl_web.registry.models import AGENT_SETTINGS, Agent, AgentGroup
from hacrl_web.runs.launch.launch import launch
from hacrl_web.runs.worker.tasks import supervise
from tests.support.web.factories import launch_request, make_model
from tests.support.web.registry_help import field_error
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec

pytestmark = pytest.mark.django_db
GIVEN = {
    "lora_rank": 8,
    "lora_alpha": 16.0,
    "seed": 7,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "prompt_template": "Solve:\n{question}",
    "chat_template_kwargs": {"enable_thinking": False, "budget": 5, "style": "short"},
}
TYPED = {
    "lora_rank": "8",
    "lora_alpha": "16",
    "seed": "7",
    "temperature": "0.7",
    "top_p": "0.9",
    "top_k": "20",
    "prompt_template": "Solve:\r\n{question}",  # as a browser sends a line's end
    "chat_template_kwargs": '{"enable_thinking": false, "budget": 5, "style": "short"}',
}
EMPTY = dict.fromkeys(AGENT_SETTINGS, "")


@pytest.fixture
def two(client, user):
    client.force_login(user)
    return make_model(user), make_model(user)


def post(client, *agents):
    data = {f"agents-{place}-{key}": value for place, agent in enumerate(agents) for key, value in agent.items()}
    return client.post("/groups/new", {"name": "pair", **data})


def test_every_setting_of_the_contract_can_be_given(client, two):
    """Name, model and revision come from the row and its model."""
    settable = set(AgentSpec.model_fields) - {"name", "model", "revision"}
    assert settable == {"learning_rate", "prompt_format", *AGENT_SETTINGS}
    page = client.get("/groups/new").content.decode()
    assert all(f'name="agents-7-{name}"' in page for name in settable)


def test_form_and_api_store_the_same(client, two):
    assert post(client, {"model": two[0].pk, "name": "A", **TYPED}, {"model": two[1].pk, "name": "B", **EMPTY}).url
    assert [agent.settings for agent in Agent.objects.all()] == [GIVEN, {}]
    body = {"name": "by api", "agents": [{"model": two[0].pk, "name": "A", **GIVEN}, {"model": two[1].pk, "name": "B"}]}
    answer = client.post("/api/v1/groups", body, content_type="application/json")
    assert answer.status_code == 201
    first, second = answer.json()["agents"]
    assert {name: first[name] for name in GIVEN} == GIVEN
    assert {name: second[name] for name in GIVEN} == {n: AgentSpec.model_fields[n].default for n in GIVEN}
    assert AgentGroup.objects.get(name="by api").agents.first().settings == GIVEN


def test_value_that_is_the_default_is_not_stored(client, two):
    post(client, {"model": two[0].pk, "lora_rank": "0", "lora_alpha": "32", "prompt_template": "{question}"})
    assert Agent.objects.get().settings == {}


def test_settings_arrive_in_the_spec_that_the_trainer_reads(client, user, two, settings):
    settings.TRAINER_COMMAND = [sys.executable, "-m", "tests.support.fake_trainer"]
    post(client, {"model": two[0].pk, "name": "A", "learning_rate": "4e-4", **TYPED}, {"model": two[1].pk, "name": "B"})
    run = launch(user, launch_request(user, group=AgentGroup.objects.get().pk))
    assert supervise(run.pk)
    spec = RunSpec.from_file(run.run_dir / "spec.json")
    assert spec.agents[0].model_dump(include=set(GIVEN)) == GIVEN
    assert spec.agents[0].learning_rate == 4e-4
    assert spec.agents[1] == AgentSpec(name="B", model=two[1].location)


def test_group_and_run_pages_show_them(client, user, two):
    post(client, {"model": two[0].pk, "name": "A", **TYPED}, {"model": two[1].pk, "name": "B"})
    group = AgentGroup.objects.get()
    run = launch(user, launch_request(user, group=group.pk))
    html = client.get(group.get_absolute_url()).content.decode()
    assert "lora_rank" in html
    # PostgreSQL gives the keys of a JSON object back in its own order.
    assert GIVEN["chat_template_kwargs"] in map(json.loads, re.findall(r'\{"[^{}<]*\}', unescape(html)))
    html = client.get(f"{run.get_absolute_url()}/config").content.decode()
    shown = {"lora_rank": 8, "chat_template_kwargs.budget": 5, "chat_template_kwargs.style": "short"}
    for path, value in shown.items():
        assert f'agents.0.{path}</th><td class="mono">{value}</td>' in html


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lora_rank", "1025", "at most 1024"),
        ("lora_rank", "-1", "at least 0"),
        ("lora_rank", "1.5", "whole number"),
        ("lora_rank", "1_0", "underscore"),
        ("lora_alpha", "0", "greater than 0"),
        ("lora_alpha", "nan", "finite number"),
        ("seed", "4294967296", "at most"),
        ("prompt_template", "Solve it", "must contain {question}"),
        ("prompt_template", "{question}\0", "No NUL"),
        ("prompt_template", "{question}" + "x" * 20_000, "20000 characters"),
        ("chat_template_kwargs", "yes", "A JSON object"),
        ("chat_template_kwargs", "[1]", "A JSON object"),
        ("chat_template_kwargs", '{"a": 1.5}', "of &#x27;a&#x27; is none"),
        ("chat_template_kwargs", '{"a": {"b": 1}}', "of &#x27;a&#x27; is none"),
        ("chat_template_kwargs", '{"a": "\\u0000"}', "No NUL"),
        ("chat_template_kwargs", '{"a": NaN}', "A JSON object"),
        ("chat_template_kwargs", "[" * 15_000, "A JSON object"),
        ("chat_template_kwargs", '{"tokenize": true}', "&#x27;tokenize&#x27; is not an argument of the template"),
    ],
)
def test_bad_setting_is_explained_beside_its_field_in_an_open_fold(client, two, field, value, message):
    response = post(client, {"model": two[0].pk}, {"model": two[1].pk, field: value})
    assert response.status_code == 422
    assert message in field_error(response, f"agents-1-{field}")
    assert not AgentGroup.objects.exists()
    folds = response.content.decode().split("data-agent-row")[1:]
    assert ['<details class="further" open>' in fold for fold in folds] == [False, True] + [False] * 6


@pytest.mark.parametrize(
    "agent",
    [{"lora_rank": True}, {"lora_rank": []}, {"seed": 10**30}, {"prompt_template": 5}, {"prompt_template": "\ud800"},
     {"chat_template_kwargs": 7}, {"chat_template_kwargs": {"a": [1]}}, {"chat_template_kwargs": {"a": "\0"}},
     {"lora_alpha": "1e400"}],
    ids=str,
)  # fmt: skip
def test_api_names_the_field_of_a_bad_setting(client, two, agent):
    body = json.dumps({"name": "g", "agents": [{"model": two[0].pk, **agent}]})
    answer = client.post("/api/v1/groups", body, content_type="application/json")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [f"agents.0.{next(iter(agent))}"]
    assert not AgentGroup.objects.exists()


def test_two_agents_of_one_seed_are_refused_beside_the_second(client, two):
    response = post(client, {"model": two[0].pk, "name": "A", "seed": "3"}, {"model": two[1].pk, "seed": "3"})
    assert "has the same seed" in field_error(response, "agents-1-seed")


def test_seed_that_another_agent_has_from_its_name_is_refused(user, two):
    derived = AgentSpec(name="B", model="-").stable_seed
    agents = [{"model": two[0].pk, "name": "A", "seed": derived}, {"model": two[1].pk, "name": "B"}]
    with pytest.raises(groups.FieldErrors) as refused:
        groups.create_group(user, name="g", agents=agents)
    assert [(error.field, error.code) for error in refused.value.errors] == [("agents.0.seed", "same_seed")]
