"""Agents of a run with settings of their own: the run has them, the group stays as it is, and every way in agrees."""

from __future__ import annotations

import pytest
from django.urls import reverse

from hacrl_web.leaderboard.board.row_settings import _COMPARED
from hacrl_web.registry.agent_groups.agent_changes import changes_of_text, text_of_changes
from hacrl_web.registry.models import AgentGroup
from hacrl_web.runs.launch.again import request_of, retry
from hacrl_web.runs.launch.launch import launch, launch_sweep, queue_draft
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.sweeps.sweeps import add_seeds
from tests.support.web.factories import launch_request, make_run, make_user

pytestmark = pytest.mark.django_db
CHANGES = {"A": {"learning_rate": 2e-5, "lora_rank": 8}, "B": {"prompt_template": "Q; {question} = ?"}}


def settings_of(run: Run, name: str) -> list[object]:
    return [agent[name] for agent in run.spec["agents"]]


def test_run_has_the_changes_and_the_group_stays_as_it_is():
    owner = make_user()
    run = make_run(owner, agents=CHANGES)
    assert settings_of(run, "learning_rate")[0] == 2e-5
    assert settings_of(run, "lora_rank") == [8, 0]
    assert settings_of(run, "prompt_template") == ["{question}", "Q; {question} = ?"]
    assert [(a.learning_rate, a.settings) for a in run.group.agents.all()] == [(None, {}), (None, {})]
    assert run.agent_changes == CHANGES
    assert "agents" in _COMPARED  # boards compare by what was used


def test_pair_of_which_one_prompt_opens_a_thought_is_cautioned_until_it_is_confirmed(client):
    owner = make_user()
    request = launch_request(owner)
    first, second = (agent.model for agent in AgentGroup.objects.get(pk=request["group"]).agents.all())
    first.facts |= {"opens_thought": ["auto", "on"]}
    first.save()
    second.facts |= {"opens_thought": []}
    second.save()
    with pytest.raises(LaunchError, match="opens a thought before each answer") as refused:
        launch(owner, request)
    assert [(one.code, one.field) for one in refused.value.errors] == [("thoughts_differ", "algorithm.peer_thoughts")]
    run = launch(owner, request | {"confirm": ["thoughts_differ"]})
    assert request_of(owner, run)["confirm"] == ["thoughts_differ"]
    client.force_login(owner)
    cloned = client.get(reverse("runs:run_create"), {"clone": run.pk}).content.decode()
    assert 'name="confirm" value="thoughts_differ=keep"' in cloned  # it was given once
    launch(owner, request | {"agents": {"A": {"prompt_format": "plain"}}})
    del second.facts["opens_thought"]
    second.save()
    launch(owner, request)  # of a model that was inspected before, nothing is known


def test_null_is_the_run_s_default_in_place_of_the_group_s():
    owner = make_user()
    request = launch_request(owner, agents={"A": {"learning_rate": None, "lora_rank": ""}})
    first = launch(owner, launch_request(owner)).group.agents.first()
    group = type(first.group).objects.get(pk=request["group"])
    group.agents.filter(name="A").update(learning_rate=0.5, settings={"lora_rank": 4})
    run = launch(owner, request)
    assert settings_of(run, "lora_rank")[0] == 0
    assert settings_of(run, "learning_rate")[0] != 0.5


def test_clone_retry_draft_and_sweep_keep_them():
    owner = make_user()
    run = make_run(owner, agents=CHANGES)
    request = request_of(owner, run)
    assert request["agents"] == CHANGES
    assert launch(owner, request).spec["agents"] == run.spec["agents"]
    Run.objects.filter(pk=run.pk).update(state=State.FAILED)
    run.refresh_from_db()
    assert retry(owner, run).agent_changes == CHANGES
    draft = launch(owner, request | {"draft": True})
    assert queue_draft(owner, draft).spec["agents"] == run.spec["agents"]
    shared = {key: value for key, value in request.items() if key in ("name", "group", "benchmark", "agents")}
    training = {"training": {"steps": 5, "train_batch_size": 4, "mini_batch_size": 4}}
    sweep = launch_sweep(owner, {**shared, **training, "algorithms": ["gspo"], "seeds": [1]})
    assert sweep.request["agents"] == CHANGES
    assert add_seeds(owner, sweep, [2])[0].agent_changes == CHANGES
    assert {settings_of(one, "lora_rank")[0] for one in sweep.runs.all()} == {8}


def test_run_without_changes_has_none_in_its_request():
    owner = make_user()
    for value in (None, {}, "", "\n", {"A": {}}):
        run = make_run(owner, agents=value)
        assert run.agent_changes == {}
        assert "agents" not in request_of(owner, run)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"C": {"lora_rank": 1}}, "agents", "The group has no agent “C”: it has A, B."),
        ({"A": {"lora_rank": -1}}, "agents.A.lora_rank", "at least 0"),
        ({"A": {"learning_rate": "fast"}}, "agents.A.learning_rate", "number"),
        ({"A": {"model": "/etc"}}, "agents.A.model", "no setting “model”"),
        ({"A": {"prompt_template": "no field"}}, "agents.A.prompt_template", "{question}"),
        ({"A": {"thinking": "on"}}, "agents.A.thinking", "thinking switch"),
        ({"A": {"seed": 1}, "B": {"seed": 1}}, "agents.B.seed", "same seed"),
        ([1], "agents", "Must be an object"),
        ({"A": 1}, "agents", "Must be an object"),
        ("A lora_rank = 1", "agents", "names no agent"),
        ("A: lora_rank", "agents", "has no value"),
        ("A: {1", "agents", "no JSON object"),
        ("A: seed = 1\nA: seed = 2", "agents", "two lines"),
    ],
)
def test_what_no_agent_can_have_is_refused_at_its_field(changes, field, message):
    owner = make_user()
    with pytest.raises(LaunchError) as refused:
        launch(owner, launch_request(owner, agents=changes))
    error = refused.value.errors[0]
    assert error.field == field
    assert message in error.message
    assert not Run.objects.exists()


def test_line_with_a_wrong_agent_and_setting_names_those_that_may_be_meant():
    owner = make_user()
    request = launch_request(owner, agents="Qwen3: learning rate = 1e-4")
    AgentGroup.objects.get(pk=request["group"]).agents.filter(name="A").update(name="Qwen3 100k")
    with pytest.raises(LaunchError) as refused:
        launch(owner, request)
    assert [error.message for error in refused.value.errors] == [
        "The group has no agent “Qwen3”: it has Qwen3 100k, B. Did you mean Qwen3 100k?",
        "An agent has no setting “learning rate” of its own. Did you mean learning_rate?",
    ]


def test_text_of_the_form_says_the_same():
    assert changes_of_text("A: learning_rate = 2e-5; lora_rank = 8\n\nB : seed=3;") == {
        "A": {"learning_rate": "2e-5", "lora_rank": "8"},
        "B": {"seed": "3"},
    }
    text = text_of_changes(CHANGES)
    assert text.splitlines()[0] == "A: learning_rate = 2e-05; lora_rank = 8"
    assert changes_of_text(text)["B"] == CHANGES["B"]  # its separators need JSON
    assert changes_of_text(text_of_changes({"A": {"learning_rate": None}})) == {"A": {"learning_rate": None}}


def test_form_takes_shows_and_refuses_them(client):
    owner = make_user()
    client.force_login(owner)
    run = make_run(owner, agents=CHANGES)
    page = client.get(f"/runs/new?clone={run.pk}").content.decode()
    assert "A: learning_rate = 2e-05; lora_rank = 8" in page
    request = launch_request(owner)
    form = {"name": "new", "group": request["group"], "benchmark": request["benchmark"], "seed": 1}
    form |= {f"training.{name}": value for name, value in request["training"].items()}
    answer = client.post("/runs/new", form | {"agents": "A: lora_rank = x"})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert 'id="id-agents-error"' in text
    assert "A, lora_rank: Must be a whole number." in text
    assert client.post("/runs/new", form | {"agents": "A: lora_rank = 16"}).status_code == 302
    assert settings_of(Run.objects.get(name="new"), "lora_rank") == [16, 0]
