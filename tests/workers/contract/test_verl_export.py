"""The hand-over to verl's HACPO recipe: each key with our value under its meaning, and what it cannot hold is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from workers.contract import verl_export
from workers.contract.spec.run import RunSpec
from workers.contract.verl_export import UnsupportedByVerl, not_carried, recipe, to_do, to_recipe_yaml

AGENTS = [
    {"name": "small", "model": "/models/small", "chat_template_kwargs": {"enable_thinking": False}},
    {"name": "large", "model": "org/large", "learning_rate": 5e-7},
]
DATA = {"benchmark": "math", "train_path": "/data/train.jsonl", "eval_path": "/data/eval.jsonl"}


def spec(**over) -> RunSpec:
    return RunSpec.model_validate({"name": "pair", "seed": 7, "agents": AGENTS, "data": DATA, **over})


def plain(**algorithm) -> RunSpec:
    """A run of which nothing of the algorithm is lost."""
    return spec(algorithm={"overflow": "truncate", "eos": "strip", **algorithm}, checkpoint={"keep_best": False})


def test_block_hacpo_holds_every_key_of_the_recipe_with_our_values():
    """All numbers differ from the defaults, so that none can stand in another's place."""
    algorithm = {
        "epsilon": 0.01,
        "epsilon_high": 0.02,
        "delta": 0.3,
        "delta_step": 0.015,
        "alpha": 3,
        "max_log_ratio": 8,
        "capability_window": 6,
        "ratio_min": 0.25,
        "ratio_max": 4,
        "ratio_warmup_steps": 9,
        "scale_rewards": "none",
        "overflow": "error",
    }
    found = recipe(spec(algorithm=algorithm, rollout={"max_prompt_length": 300, "max_completion_length": 700}))
    assert found["hacpo"] == {
        "agents": [
            {
                "id": "small",
                "model_path": "/models/small",
                "tokenizer_path": "/models/small",
                "apply_chat_template_kwargs": {"enable_thinking": False},
            },
            {
                "id": "large",
                "model_path": "org/large",
                "tokenizer_path": "org/large",
                "apply_chat_template_kwargs": {},
                "actor_rollout_ref": {"actor": {"optim": {"lr": 5e-7}}},
            },
        ],
        "validation_agent_ids": ["small", "large"],
        "loss": {
            "self_clip_low": 0.01,
            "self_clip_high": 0.02,
            "cross_clip_delta": 0.3,  # the distance; the lower bound would be 0.7
            "cross_clip_step": 0.015,
            "alpha": 3,
            "max_abs_log_ratio": 8,
        },
        "capability": {
            "metric": "reward_mean",
            "window_size": 6,
            "minimum": 1e-8,
            "ratio_min": 0.25,
            "ratio_max": 4,
            "warmup_steps": 9,
        },
        "advantage": {
            "normalize_by_std": False,
            "epsilon": 1e-6,
            "disable_weighting_for_uniform_rewards": True,
            "binary_baseline_guard": True,
        },
        "trajectory": {"overflow": "error", "target_max_prompt_length": 300, "target_max_response_length": 700},
    }


ODD_SETTINGS: dict[str, dict[str, Any]] = {  # none of them is a default
    "training": {
        "steps": 40,
        "train_batch_size": 96,
        "mini_batch_size": 32,
        "num_iterations": 2,
        "learning_rate": 2e-6,
        "lr_schedule": "cosine",
        "warmup_steps": 4,
        "weight_decay": 0.02,
        "adam_beta1": 0.8,
        "adam_beta2": 0.98,
        "max_grad_norm": 0.7,
    },
    "rollout": {
        "num_generations": 6,
        "temperature": 0.9,
        "max_prompt_length": 9000,
        "max_completion_length": 11000,
    },
    "evaluation": {"eval_interval": 3, "temperature": 0.6, "num_samples": 5, "max_questions": 50},
    "checkpoint": {"save_steps": 8, "keep": 3},
    "algorithm": {"beta": 0.002},
}


def test_verls_own_blocks_hold_our_values():
    found = recipe(spec(**ODD_SETTINGS))
    assert found["data"] == {
        "train_files": ["/data/train.jsonl"],
        "val_files": ["/data/eval.jsonl"],
        "val_max_samples": 50,
        "train_batch_size": 96,
        "max_prompt_length": 9000,
        "max_response_length": 11000,
        "filter_overlong_prompts": True,
        "truncation": "error",
        "return_raw_chat": True,
        "shuffle": True,
        "seed": 7,
    }
    actor, rollout = found["actor_rollout_ref"]["actor"], found["actor_rollout_ref"]["rollout"]
    assert (actor["ppo_mini_batch_size"], actor["ppo_epochs"], actor["shuffle"]) == (32, 2, False)
    assert (actor["use_kl_loss"], actor["kl_loss_coef"], actor["kl_loss_type"]) == (True, 0.002, "low_var_kl")
    assert (actor["loss_agg_mode"], actor["grad_clip"]) == ("seq-mean-token-mean", 0.7)
    assert actor["ppo_max_token_len_per_gpu"] == 20000  # one sequence must fit
    assert actor["optim"] == {
        "lr": 2e-6,
        "lr_warmup_steps": 4,
        "weight_decay": 0.02,
        "betas": [0.8, 0.98],
        "lr_scheduler_type": "cosine",
    }
    assert (rollout["n"], rollout["temperature"], rollout["max_model_len"]) == (6, 0.9, 20000)
    assert rollout["val_kwargs"] == {"n": 5, "do_sample": True, "temperature": 0.6, "top_p": 1.0, "top_k": -1}
    trainer = found["trainer"]
    assert (trainer["total_training_steps"], trainer["test_freq"], trainer["save_freq"]) == (40, 3, 8)
    assert (trainer["project_name"], trainer["experiment_name"], trainer["max_actor_ckpt_to_keep"]) == (
        "math",
        "pair",
        3,
    )
    assert set(found) == {"defaults", "hacpo", "data", "algorithm", "actor_rollout_ref", "reward", "trainer"}


def test_only_at_the_ends_is_the_last_step():
    changes = {"training": {"steps": 12}, "evaluation": {"eval_interval": 0}, "checkpoint": {"save_steps": 0}}
    trainer = recipe(spec(**changes))["trainer"]
    assert (trainer["test_freq"], trainer["save_freq"], trainer["total_training_steps"]) == (12, 12, 12)


def test_without_omega_its_ratio_is_1():
    without = {"advantage": "plain", "modulate_gradient": False}
    capability = recipe(plain(**without))["hacpo"]["capability"]
    assert (capability["ratio_min"], capability["ratio_max"]) == (1, 1)
    assert not [line for line in not_carried(plain(**without)) if line.startswith("algorithm.")]


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"agents": AGENTS[:1]}, "trains two agents, but this run has 1"),
        ({"agents": [*AGENTS, {"name": "third", "model": "m"}]}, "this run has 3"),
        ({"algorithm": {"name": "gspo"}}, "this run by gspo"),
        ({"algorithm": {"sharing": False}}, "shares no rollouts"),
        ({"training": {"steps": 0}}, "only evaluates"),
        ({"agents": [AGENTS[0], {**AGENTS[1], "lora_rank": 8}]}, "agent 'large' of this run has LoRA"),
    ],
)
def test_what_the_recipe_would_not_train_is_refused(over, reason):
    with pytest.raises(UnsupportedByVerl, match=reason):
        to_recipe_yaml(spec(**over))


@pytest.mark.parametrize(
    ("over", "named"),
    [
        ({"algorithm": {"overflow": "drop"}}, "algorithm.overflow drop"),
        ({"algorithm": {"eos": "map"}}, "algorithm.eos map"),
        ({"algorithm": {"ratio_length": "source"}}, "algorithm.ratio_length source"),
        ({"algorithm": {"cross_advantage": "source"}}, "algorithm.cross_advantage source"),
        ({"algorithm": {"scale_rewards": "batch"}}, "algorithm.scale_rewards batch"),
        ({"algorithm": {"advantage": "plain"}}, "algorithm.advantage plain"),
        ({"algorithm": {"modulate_gradient": False}}, "algorithm.modulate_gradient false"),
        ({"algorithm": {"clip_cross": False}}, "algorithm.clip_cross false"),
        ({"algorithm": {"cross_weight": 0.5}}, "algorithm.cross_weight 0.5"),
        ({"algorithm": {"cross_clip_gradient": "sided"}}, "algorithm.cross_clip_gradient sided"),
        ({"algorithm": {"cross_order": "mixed"}}, "algorithm.cross_order mixed"),
        ({"algorithm": {"cross_kl": True}}, "algorithm.cross_kl"),
        ({"algorithm": {"on_missing_source": "degrade"}}, "algorithm.on_missing_source degrade"),
        ({"algorithm": {"peer_quarantine": True}}, "algorithm.peer_quarantine"),
        ({"algorithm": {"audit_share": 0.1}}, "algorithm.audit_share 0.1"),
        ({"rollout": {"importance_correction": "truncate"}}, "rollout.importance_correction truncate"),
        ({"training": {"num_iterations": 2}}, "training.num_iterations"),
        ({"training": {"lr_schedule": "linear"}}, "training.lr_schedule linear"),
        ({"data": {**DATA, "prompt_template": "Q: {question}"}}, "data.prompt_template"),
        ({"data": {**DATA, "verifier": "math", "extraction": "flexible"}}, "data.extraction flexible"),
        ({"evaluation": {"benchmarks": [{"benchmark": "o", "train_path": "o"}]}}, "evaluation.benchmarks"),
        ({"agents": [{**AGENTS[0], "revision": "v1"}, AGENTS[1]]}, 'agents.0.revision "v1"'),
        ({"agents": [AGENTS[0], {**AGENTS[1], "seed": 3}]}, "agents.1.seed"),
        ({"agents": [AGENTS[0], {**AGENTS[1], "prompt_format": "plain"}]}, "agents.1.prompt_format plain"),
        ({"agents": [AGENTS[0], {**AGENTS[1], "prompt_template": "{question}!"}]}, "agents.1.prompt_template"),
    ],
)
def test_what_has_no_key_is_named_at_the_top(over, named):
    usual = {"algorithm": {"overflow": "truncate", "eos": "strip"}}
    run, without = spec(**(usual | over)), not_carried(spec(**usual))
    assert not [line for line in without if line.startswith(named)]
    [line] = [line for line in not_carried(run) if line.startswith(named)]
    comments, _, values = to_recipe_yaml(run).partition("\n\n")
    joined = " ".join(text.removeprefix("#").strip() for text in comments.splitlines())
    assert line in joined
    assert "#" not in values


def test_held_out_share_leaves_the_validation_files_to_be_given():
    held_out = spec(data={"train_path": "q.jsonl", "held_out_fraction": 0.2})
    assert recipe(held_out)["data"]["val_files"] == "???"
    assert any("holds out 0.2" in line for line in to_do(held_out))
    assert not any("holds out" in line for line in to_do(spec()))


def test_hostile_texts_stay_texts_and_inside_their_line():
    """A line end of Unicode's would end a comment, and OmegaConf would put an environment variable into ${...}."""
    hostile = {
        "name": "1e3",
        "agents": [{"name": "${oc.env:HOME}", "model": "a\u2028hacpo: 1"}, {"name": "no", "model": "null"}],
        "data": {"train_path": "x\n- y", "question_field": "q\u2028trainer: 1", "answer_field": "a\x85b"},
    }
    text = to_recipe_yaml(spec(**hostile))
    assert text.isascii()
    found = yaml.safe_load(text)
    assert list(found) == ["defaults", "hacpo", "data", "algorithm", "actor_rollout_ref", "reward", "trainer"]
    first, second = found["hacpo"]["agents"]
    assert (first["id"], first["model_path"]) == ("\\${oc.env:HOME}", "a\u2028hacpo: 1")
    assert (second["id"], second["model_path"]) == ("no", "null")
    assert found["trainer"]["experiment_name"] == "1e3"
    assert '"1e3"' in text  # YAML 1.2 would read a number
    assert found["data"]["train_files"] == ["x\n- y"]


def test_text_reads_back_as_the_values():
    run = spec()
    assert yaml.safe_load(to_recipe_yaml(run)) == recipe(run)


def test_command_prints_the_file_or_why_not(tmp_path, capsys):
    path = tmp_path / "spec.json"
    path.write_text(spec().to_json())
    assert verl_export.main([str(path)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == recipe(spec())
    path.write_text(spec(algorithm={"name": "grpo"}).to_json())
    assert verl_export.main([str(path)]) == 1
    assert capsys.readouterr().err == f"{path}: The recipe trains by HACPO, but this run by grpo.\n"
    path.write_text(json.dumps({"agents": AGENTS, "data": DATA, "algorithm": {"delta": 2}}))
    assert verl_export.main([str(path)]) == 1
    assert "algorithm.delta: " in capsys.readouterr().err
    assert verl_export.main([str(tmp_path / "none.json")]) == 1


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".YAML", ".json"])
def test_settings_as_yaml_read_back_the_same(tmp_path, suffix):
    run = spec(
        name="no",
        training={"learning_rate": 1e-6},
        algorithm={"epsilon": None},
        agents=[{**AGENTS[0], "name": "\u00e9 1e3", "prompt_template": "a\n{question}\t: #"}, AGENTS[1]],
    )
    path = tmp_path / f"spec{suffix}"
    path.write_text(run.to_json() if suffix == ".json" else run.to_yaml())
    assert RunSpec.from_file(path) == run


@pytest.mark.parametrize("text", ["a: [", "&a [*a", "!!python/object/apply:os.system ['true']"])
def test_what_is_no_yaml_is_refused_in_words(tmp_path, text):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="not YAML"):
        RunSpec.from_file(path)
