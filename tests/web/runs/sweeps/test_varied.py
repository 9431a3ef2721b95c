"""A sweep varies settings of every section that acts on results, of agents, and of rewards: grid and search alike."""

from __future__ import annotations

import pytest
from django.urls import reverse

from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.launch.plan import LaunchError, plan_of, plan_trial
from hacrl_web.runs.models import Run, Sweep
from hacrl_web.runs.sweeps.sweeps import add_seeds
from hacrl_web.runs.variants.varied import is_varied, short_names
from tests.support.web import factories
from tests.support.web.page_text import field_of
from tests.web.runs.sweeps.test_search import search_request, tick
from tests.web.runs.sweeps.test_sweeps import labels, sweep_request

pytestmark = pytest.mark.django_db


def ranks(run: Run) -> list[int]:
    return [agent["lora_rank"] for agent in run.spec["agents"]]


def test_settings_of_every_section_that_acts_on_results_vary_and_others_do_not():
    for name in ("rewards.verifier_weight", "evaluation.temperature", "compute.dtype", "training.weight_decay"):
        assert is_varied(name), name
    for name in ("agents.*.learning_rate", "agents.Qwen2.5 a.thinking", "agents.0.seed", "rewards.terms.short.weight"):
        assert is_varied(name), name
    for name in ("checkpoint.keep", "telemetry.rollout_interval", "agents.*.prompt_template", "agents.*.name", "seed"):
        assert not is_varied(name), name
    for name in ("agents..lora_rank", "agents.lora_rank", "rewards.terms.short.kind", "rewards.terms", "data.verifier"):
        assert not is_varied(name), name


def test_grid_over_all_agents_and_over_one_reaches_their_settings_and_keeps_the_group(user):
    grid = {"agents.*.learning_rate": [1e-5, "3e-5"], "agents.A.lora_rank": [0, 8]}
    request = sweep_request(user, algorithms=["gspo"], seeds=[1], grid=grid, agents={"B": {"lora_rank": 4}})
    sweep = launch_sweep(user, request)
    runs = {run.variant: run for run in sweep.runs.all()}
    assert set(runs) == {
        f"gspo learning_rate={rate} A.lora_rank={rank}" for rate in ("1e-05", "3e-05") for rank in (0, 8)
    }
    one = runs["gspo learning_rate=3e-05 A.lora_rank=8"]
    assert ranks(one) == [8, 4]
    assert [agent["learning_rate"] for agent in one.spec["agents"]] == [3e-5, 3e-5]
    assert one.agent_changes == {
        "A": {"learning_rate": 3e-5, "lora_rank": 8},
        "B": {"learning_rate": 3e-5, "lora_rank": 4},
    }
    assert sweep.request["agents"] == {"B": {"lora_rank": 4}}
    assert [(a.learning_rate, a.settings) for a in one.group.agents.all()] == [(None, {}), (None, {})]
    assert {run.variant: ranks(run) for run in add_seeds(user, sweep, [2])} == {
        name: ranks(run) for name, run in runs.items()
    }


def test_agent_is_named_by_its_place_too(user):
    sweep = launch_sweep(user, sweep_request(user, algorithms=["gspo"], seeds=[1], grid={"agents.1.lora_rank": [2, 4]}))
    assert sorted(map(ranks, sweep.runs.all())) == [[0, 2], [0, 4]]


def test_weight_of_a_reward_varies_with_the_other_settings_of_its_term_as_they_are(user):
    rewards = {"terms": "tags think answer = 0.2; short: length 4 = 0.1"}
    grid = {"rewards.terms.short.weight": [0, 0.5], "rewards.verifier_weight": [1, 2]}
    sweep = launch_sweep(user, sweep_request(user, algorithms=["gspo"], seeds=[1], grid=grid, rewards=rewards))
    found = {run.variant: run.spec["rewards"] for run in sweep.runs.all()}
    assert len(found) == 4
    one = found["gspo short.weight=0.5 verifier_weight=2"]
    assert (one["verifier_weight"], [(t["name"], t["weight"]) for t in one["terms"]]) == (
        2.0,
        [("tags", 0.2), ("short", 0.5)],
    )
    assert one["terms"][1]["length"] == 4
    # The stored request makes the same runs again.
    assert [spec.rewards.model_dump() for spec in plan_of(user, sweep.request, Sweep).specs] == [
        spec.rewards.model_dump()
        for spec in plan_of(
            user, sweep_request(user, algorithms=["gspo"], seeds=[1], grid=grid, rewards=rewards), Sweep
        ).specs
    ]


def test_labels_of_settings_with_one_name_have_their_sections(user):
    grid = {"rollout.temperature": [1], "evaluation.temperature": [0.5]}
    assert labels(user, algorithms=["gspo"], grid=grid) == ["gspo rollout.temperature=1 evaluation.temperature=0.5"]
    names = ["agents.*.lora_rank", "training.lora_rank", "agents.A.lora_rank", "alpha"]
    assert list(short_names(names).values()) == ["agents.*.lora_rank", "training.lora_rank", "A.lora_rank", "alpha"]


def test_search_draws_settings_of_agents_and_rewards_and_refuses_those_of_evaluations(user):
    rewards = {"terms": [{"kind": "boxed", "name": "boxed", "weight": 1}]}
    parameters = {"agents.*.learning_rate": "1e-5..1e-4 log", "agents.B.lora_rank": [4, 8]}
    parameters["rewards.terms.boxed.weight"] = "0..1"
    sweep = launch_sweep(user, search_request(user, parameters=parameters) | {"rewards": rewards})
    tick(sweep)
    trial = sweep.trials.select_related("run").get(number=0)
    values, spec = trial.parameters, trial.run.spec
    assert {agent["learning_rate"] for agent in spec["agents"]} == {values["agents.*.learning_rate"]}
    assert ranks(trial.run) == [0, values["agents.B.lora_rank"]]
    assert spec["rewards"]["terms"][0]["weight"] == values["rewards.terms.boxed.weight"]
    assert trial.run.agent_changes["B"]["lora_rank"] == values["agents.B.lora_rank"]  # a clone repeats the trial
    with pytest.raises(LaunchError) as caught:
        launch_sweep(user, search_request(user, parameters={"evaluation.max_questions": "10..20"}))
    (error,) = caught.value.errors
    assert (error.field, error.message) == (
        "search.parameters.evaluation.max_questions",
        "Trials are compared by their evaluations, which must be alike: vary this in a grid.",
    )


def test_trial_of_an_agent_that_is_gone_is_refused_and_not_run_without_its_value(user):
    sweep = launch_sweep(user, search_request(user, parameters={"agents.B.lora_rank": "1..8"}))
    factories.AgentGroup.objects.get(pk=sweep.request["group"]).agents.filter(name="B").update(name="C")
    with pytest.raises(LaunchError) as caught:
        plan_trial(user, sweep.request, 0, {"agents.B.lora_rank": 4})
    assert "no agent 'B'" in str(caught.value)


@pytest.fixture
def form(user):
    return factories.sweep_form(user, algorithms=["gspo"], seeds="1")


def test_form_varies_any_setting_by_lines_and_a_draft_shows_them_again(web, form):
    lines = "agents.*.lora_rank = 4, 8\r\n\r\n rewards.verifier_weight=1 2\r\n"
    assert (
        web.post(reverse("runs:run_save"), form | {"varied": lines, "grid.rollout.temperature": "1, 0.9"}).status_code
        == 302
    )
    sweep = Sweep.objects.get()
    assert sweep.request["grid"] == {
        "rollout.temperature": [1.0, 0.9],
        "agents.*.lora_rank": [4, 8],
        "rewards.verifier_weight": [1.0, 2.0],
    }
    again = web.get(reverse("runs:run_create"), {"sweep": sweep.pk})
    assert "agents.*.lora_rank = 4, 8\nrewards.verifier_weight = 1, 2</textarea>" in field_of(again, "varied")
    assert 'value="1, 0.9"' in field_of(again, "grid.rollout.temperature")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents.Z.lora_rank = 1, 2", "agents.Z.lora_rank: The group has no agent"),
        ("rewards.verifier_weight = x", "rewards.verifier_weight: Must be a number"),
        ("rewards.verifier_weight 1, 2", "has no values: write SETTING = VALUES."),
        ("alpha = 1, 2\nalpha = 3", "alpha has values twice"),
        ("swan = 1", "swan: A grid varies numbers"),
    ],
)
def test_line_that_is_refused_is_named_beside_the_lines(web, form, text, words):
    answer = web.post(reverse("runs:run_create"), form | {"varied": text, "algorithms": ["hacpo"]})
    assert answer.status_code == 422
    assert words in field_of(answer, "varied").replace("&#x27;", "'")
    assert text.splitlines()[0] in field_of(answer, "varied")
    assert all(control is not None for control, _ in answer.context["problems"])
