"""Every algorithm and option through the trainer, on models of a few thousand weights: each changes what is learnt."""

from __future__ import annotations

import pytest
import torch

from tests.support.marks import in_full
from tests.support.workers.tiny import make_agent, make_pair, make_spec, records, same_weights, train
from workers.agents.local import LocalAgent
from workers.agents.messages import GeneratedRollouts, Response, RolloutsMissing
from workers.trainer.step import LearnerRows, sources_of_step


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> list[dict]:
    """Eight agents: two families, two tokenizers."""
    root = tmp_path_factory.mktemp("crowd")
    agents = make_pair(root)
    for number in range(3, 9):
        kind = "qwen3" if number % 2 else "llama"
        agents.append({"name": f"Agent {number}", "model": str(make_agent(root / str(number), kind, seed=number))})
    return agents


def trained(root, agents, folder, /, steps=2, **algorithm):
    spec = make_spec(root, agents, algorithm=algorithm, training={"steps": steps, "learning_rate": 1e-3})
    return train(spec, root / folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, crowd):
    """Two agents trained by the default settings, two steps."""
    return trained(tmp_path_factory.mktemp("plain"), crowd[:2], "run")


@pytest.mark.parametrize("n", [1, 2, 8, *in_full(*range(3, 8))])
def test_any_number_of_agents_trains(tmp_path, crowd, n):
    trainer = trained(tmp_path, crowd[:n], "run", steps=1)
    rows = records(tmp_path / "run", "contribution")
    assert {(row["agent"], row["source"]) for row in rows} == {
        (a["name"], b["name"]) for a in crowd[:n] for b in crowd[:n]
    }
    assert trainer.step == 1
    assert {row["mini_batch"] for row in rows} == set(range(n))


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": "plain"},
        {"modulate_gradient": False},
        {"alpha": 0.0},
        {"clip_cross": False, "delta": 0.01},
        {"delta_step": 0.5},
        {"scale_rewards": "batch"},
        {"scale_rewards": "none"},
        {"cross_advantage": "source"},
        {"cross_weight": 0.5},
        {"cross_clip_gradient": "keep", "delta": 0.01},
        {"ratio_length": "source"},
        {"capability_window": 1},
        {"ratio_warmup_steps": 2},
        {"name": "naive_source"},
        {"name": "naive_learner"},
        {"name": "gspo"},
        {"name": "gspox2"},
        {"name": "grpo"},
        {"epsilon": 0.2, "epsilon_high": 0.3, "name": "naive_source"},
    ],
    ids=str,
)
def test_every_option_changes_what_is_learnt(tmp_path, crowd, plain, changes):
    changed = trained(tmp_path, crowd[:2], "changed", **changes)
    # Llama learns from Qwen: its tokenizer has pairs of digits, so lengths differ where the text has 11, 12 or 21.
    assert not same_weights(plain, changed)


def test_cross_kl_acts_where_there_is_a_penalty(tmp_path, crowd):
    settings = {"beta": 0.5, "name": "hacpo"}
    plain = trained(tmp_path, crowd[:2], "plain", **settings)
    assert not same_weights(plain, trained(tmp_path, crowd[:2], "changed", cross_kl=True, **settings))


def test_omega_is_one_in_the_rows_without_modulation(tmp_path, crowd):
    trained(tmp_path, crowd[:2], "run", modulate_gradient=False)
    rows = records(tmp_path / "run", "contribution")
    assert {row["omega"] for row in rows} == {1.0}
    told = [record["values"]["omega"] for record in records(tmp_path / "run", "metrics") if record["source"]]
    assert any(value != 1.0 for value in told)  # still measured


def test_naive_learner_starts_from_its_own_log_probabilities(tmp_path, crowd):
    ratios = {}
    for name in ("naive_source", "naive_learner"):
        training = {"steps": 1, "learning_rate": 1e-6}
        train(make_spec(tmp_path, crowd[:2], algorithm={"name": name}, training=training), tmp_path / name)
        rows = [row for row in records(tmp_path / name, "contribution") if row["agent"] != row["source"]]
        ratios[name] = [row["sequence_ratio"] for row in rows if row["sequence_ratio"] is not None]
    # One own update of 1e-6 has passed since; another model's log-probabilities are much farther away.
    assert max(abs(ratio - 1) for ratio in ratios["naive_learner"]) < 1e-3
    assert max(abs(ratio - 1) for ratio in ratios["naive_source"]) > 0.3


def test_grpo_ratio_is_one_at_the_first_update(tmp_path, crowd):
    trained(tmp_path, crowd[:1], "run", name="grpo")
    for record in records(tmp_path / "run", "metrics"):
        assert record["values"]["sampling_logp_difference/max"] < 5e-6
        assert record["ratios"]["clip_ratio/high_mean"][0] == 0
    rows = [row for row in records(tmp_path / "run", "contribution") if row["weight"]]
    assert rows
    for row in rows:  # r_t = 1 for every token: the weight is the advantage
        assert row["weight"] == pytest.approx(row["advantage"], rel=1e-5)


def test_grpo_clips_tokens_in_a_second_pass(tmp_path, crowd):
    settings = {"training": {"num_iterations": 3, "steps": 1, "learning_rate": 2e-2}}
    train(make_spec(tmp_path, crowd[:1], algorithm={"name": "grpo"}, **settings), tmp_path / "run")
    (told,) = records(tmp_path / "run", "metrics")
    low, high = (told["ratios"][f"clip_ratio/{side}_mean"] for side in ("low", "high"))
    assert 0 < low[0] + high[0] < low[1]


# Sources


def test_sources_are_drawn_anew_each_step_and_independent_of_places(tmp_path, crowd):
    spec = make_spec(tmp_path, crowd[:5], algorithm={"max_sources_per_learner": 2})
    backward = make_spec(tmp_path, crowd[:5][::-1], algorithm={"max_sources_per_learner": 2})
    drawn = [sources_of_step(spec, step, 1) for step in range(40)]
    assert all(len(sources) == 2 and 1 not in sources for sources in drawn)
    counts = [sum(source in sources for sources in drawn) for source in (0, 2, 3, 4)]
    assert min(counts) > 10  # 20 expected of each
    mirrored = [sorted(4 - source for source in sources_of_step(backward, step, 3)) for step in range(40)]
    assert mirrored == drawn
    assert (spec.num_blocks, make_spec(tmp_path, crowd[:2]).num_blocks) == (3, 2)


def test_learner_trains_on_no_more_sources_than_allowed(tmp_path, crowd):
    trained(tmp_path, crowd[:4], "run", steps=1, max_sources_per_learner=1)
    rows = records(tmp_path / "run", "contribution")
    for agent in crowd[:4]:
        sources = {row["source"] for row in rows if row["agent"] == agent["name"]}
        assert len(sources) == 2  # itself and one other
    assert {row["mini_batch"] for row in rows} == {0, 1}


def test_mixed_order_does_not_depend_on_the_agents_places(tmp_path, crowd):
    response = Response("1", "1", "stop", 2, 2, -1.0)
    generated = [GeneratedRollouts([[response] * 4] * 4, (0.0, 1.0))] * 3
    found = []
    for agents in (crowd[:3], crowd[:3][::-1]):
        spec = make_spec(tmp_path, agents)
        batches = LearnerRows(
            spec, 0, 1, generated, torch.zeros(3, 4, 4), torch.ones(3, 4, 4).bool(), torch.ones(3, 3)
        ).mini_batches()
        names = [agent["name"] for agent in agents]
        found.append([[(names[row.source], row.prompt, row.sample) for row in rows] for rows in batches])
    assert found[0] == found[1]


class MissingAgent:
    """Makes one agent fail to deliver in one step."""

    def __init__(self, monkeypatch, name: str, step: int) -> None:
        generate = LocalAgent.generate

        def without_rollouts(agent, now, questions):
            found = generate(agent, now, questions)
            if (agent.name, now) == (name, step):
                raise RolloutsMissing("its machine is gone")
            return found

        monkeypatch.setattr(LocalAgent, "generate", without_rollouts)


def test_missing_source_is_an_error_unless_the_run_may_degrade(tmp_path, crowd, monkeypatch):
    MissingAgent(monkeypatch, crowd[1]["name"], 1)
    with pytest.raises(RolloutsMissing, match="its machine is gone"):
        trained(tmp_path, crowd[:3], "error")
    trained(tmp_path, crowd[:3], "degrade", steps=3, on_missing_source="degrade")
    told = [record["message"] for record in records(tmp_path / "degrade", "log") if record["level"] == "warning"]
    assert told[-1:] == [f"step 2 continues without the rollouts of {crowd[1]['name']}: its machine is gone"]
    rows = [row for row in records(tmp_path / "degrade", "contribution") if row["step"] == 2]
    assert {row["source"] for row in rows} == {crowd[0]["name"], crowd[2]["name"]}
    assert {row["agent"] for row in rows} == {agent["name"] for agent in crowd[:3]}  # it still learns from the others
    capability = [
        record["values"]["capability"]
        for record in records(tmp_path / "degrade", "metrics")
        if record["agent"] == crowd[1]["name"] and not record["source"]
    ]
    assert capability[0] == capability[1]  # unchanged by a step without its rollouts


def test_step_without_any_rollouts_is_an_error_also_where_the_run_may_degrade(tmp_path, crowd, monkeypatch):
    for agent in crowd[:2]:
        MissingAgent(monkeypatch, agent["name"], 1)
    with pytest.raises(RolloutsMissing, match="no agent delivered rollouts in step 2"):
        trained(tmp_path, crowd[:2], "run", on_missing_source="degrade")


def test_cut_answers_teach_nobody_where_they_are_masked(tmp_path, crowd):
    settings = {"mask_truncated_completions": True}
    trained(tmp_path, crowd[:2], "run", **settings)
    rows = records(tmp_path / "run", "contribution")
    answers = {
        (one["step"], one["agent"], one["prompt_id"], one["sample"]): one["finish_reason"]
        for one in records(tmp_path / "run", "rollout")
    }
    cut = [answers[row["step"], row["source"], row["prompt_id"], row["sample"]] == "length" for row in rows]
    assert 0 < sum(cut) < len(rows)
    assert [row["drop_reason"] == "truncated" for row in rows] == cut
    assert any(row["weight"] for row in rows)
    assert not any(row["weight"] for row, is_cut in zip(rows, cut, strict=True) if is_cut)
