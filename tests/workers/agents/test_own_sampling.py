"""Agents with a temperature, top-p and top-k of their own."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.support.workers.tiny import make_pair, make_spec, records, train, weights

OWN = {"temperature": 0.7, "top_p": 0.9, "top_k": 5}


def test_own_sampling_settings_of_all_agents_are_those_of_the_run(tmp_path):
    pair = make_pair(tmp_path)
    of_run = train(make_spec(tmp_path, pair, rollout=OWN, training={"steps": 2}), tmp_path / "run")
    own = make_spec(tmp_path, [agent | OWN for agent in pair], training={"steps": 2})
    of_agents = train(own, tmp_path / "agents")
    for agent in range(2):
        ours, theirs = weights(of_run, agent), weights(of_agents, agent)
        assert all(ours[name].equal(theirs[name]) for name in ours)


@pytest.mark.parametrize("name", OWN)
def test_own_sampling_setting_changes_the_rollouts_of_its_agent_alone(tmp_path, name):
    pair = make_pair(tmp_path)
    one_step = {"training": {"steps": 1}, "evaluation": {"eval_interval": 0}}
    train(make_spec(tmp_path, pair, **one_step), tmp_path / "plain")
    value = {"temperature": 0.2, "top_p": 0.3, "top_k": 1}[name]
    train(make_spec(tmp_path, [pair[0] | {name: value}, pair[1]], **one_step), tmp_path / "own")
    texts = [
        {
            agent: [one["completion"] for one in records(tmp_path / folder, "rollout") if one["agent"] == agent]
            for agent in ("Qwen", "Llama")
        }
        for folder in ("plain", "own")
    ]
    assert texts[0]["Llama"] == texts[1]["Llama"]
    assert texts[0]["Qwen"] != texts[1]["Qwen"]


def test_learner_measures_shared_rollouts_at_its_own_temperature(tmp_path):
    pair = make_pair(tmp_path)
    spec = make_spec(tmp_path, [pair[0] | {"temperature": 0.5}, pair[1]], training={"steps": 1})
    assert [spec.rollout_of(agent).temperature for agent in spec.agents] == [0.5, 1.0]
    trainer = train(spec, tmp_path / "run")
    assert [agent.policy.temperature for agent in trainer.agents] == [0.5, 1.0]  # type: ignore[attr-defined]


def test_own_zero_of_top_k_is_another_value_than_none(tmp_path):
    agents = [{"name": "A", "model": "-", "top_k": 0}, {"name": "B", "model": "-"}]
    spec = make_spec(tmp_path, agents, rollout={"top_k": 7})
    assert [spec.rollout_of(agent).top_k for agent in spec.agents] == [0, 7]


def test_agent_does_not_sample_greedily(tmp_path):
    with pytest.raises(ValidationError, match="greater than 0"):
        make_spec(tmp_path, [{"name": "A", "model": "-", "temperature": 0}])
