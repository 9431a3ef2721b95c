"""Part of the contract: a run of two agents as the YAML of verl's HACPO recipe, for models that outgrow our trainer.

Comments at the top list the settings that the recipe has no key for; a run that it would not train at all is refused.
`python -m workers.contract.verl_export SPEC.json` prints the YAML. No torch, no Django.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from workers.algorithms.base.spec import CAPABILITY_FLOOR
from workers.algorithms.hacpo import Hacpo
from workers.contract.advantages import EPSILON
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import InvalidSettings, RunSpec, dump_yaml

MISSING = "???"  # OmegaConf: a value that must be set before the start
LEAST_TOKENS_PER_GPU = 16384  # verl's default of ppo_max_token_len_per_gpu
HEADER = """\
HACPO of two agents for the official recipe of verl (recipe/hacpo). Start it with this file:
    python -m recipe.hacpo.main_hacpo --config-dir FOLDER --config-name NAME data.val_files=[...]
FOLDER is the folder of this file, NAME its name without .yaml. Set every value ???, here or on that line."""


class UnsupportedByVerl(ValueError):
    """A run that the recipe does not support; the text says why."""


def rule_of(spec: RunSpec) -> Hacpo:
    """HACPO's settings with every number filled in. Error: UnsupportedByVerl."""
    rule = spec.rule
    adapted = next((agent.name for agent in spec.agents if agent.lora_rank), None)
    if len(spec.agents) != 2:
        raise UnsupportedByVerl(f"The recipe trains two agents, but this run has {len(spec.agents)}.")
    if not isinstance(rule, Hacpo):
        raise UnsupportedByVerl(f"The recipe trains by HACPO, but this run by {rule.name}.")
    if not rule.sharing:
        raise UnsupportedByVerl("The recipe trains by HACPO, but this run shares no rollouts: it is two runs of GSPO.")
    if spec.is_evaluation_only:
        raise UnsupportedByVerl("This run only evaluates: there is nothing to train.")
    if adapted is not None:
        raise UnsupportedByVerl(f"The recipe trains all weights, but agent {adapted!r} of this run has LoRA matrices.")
    return rule


def recipe(spec: RunSpec) -> dict[str, Any]:
    """The values by block, as the recipe names them. Error: UnsupportedByVerl."""
    rule = rule_of(spec)
    return {
        "defaults": ["hacpo_trainer", "_self_"],
        "hacpo": _hacpo(spec, rule),
        "data": _data(spec),
        "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
        "actor_rollout_ref": _actor_rollout_ref(spec),
        "reward": {
            "reward_model": {"enable": False},
            "custom_reward_function": {"path": MISSING, "name": "compute_score"},
        },
        "trainer": _trainer(spec),
    }


def _agent(agent: AgentSpec, learning_rate: float) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": agent.name,
        "model_path": agent.model,
        "tokenizer_path": agent.model,
        "apply_chat_template_kwargs": dict(agent.template_arguments),
    }
    if agent.learning_rate not in (None, learning_rate):
        values["actor_rollout_ref"] = {"actor": {"optim": {"lr": agent.learning_rate}}}
    return values


def _hacpo(spec: RunSpec, rule: Hacpo) -> dict[str, Any]:
    no_omega = not rule.uses_omega  # then omega is 1 in the recipe: our two ablations together
    return {
        "agents": [_agent(agent, spec.training.learning_rate) for agent in spec.agents],
        "validation_agent_ids": [agent.name for agent in spec.agents],
        "loss": {
            "self_clip_low": rule.epsilon,
            "self_clip_high": rule.epsilon_high,
            "cross_clip_delta": rule.delta,  # the distance, not the lower bound 1 - delta of the paper's table
            "cross_clip_step": rule.delta_step,
            "alpha": rule.alpha,
            "max_abs_log_ratio": rule.max_log_ratio,
        },
        "capability": {
            "metric": "reward_mean",  # Eq. (9); our rewards are never negative
            "window_size": rule.capability_window,
            "minimum": CAPABILITY_FLOOR,
            "ratio_min": 1.0 if no_omega else rule.ratio_min,
            "ratio_max": 1.0 if no_omega else rule.ratio_max,
            "warmup_steps": rule.ratio_warmup_steps,
        },
        "advantage": {
            "normalize_by_std": rule.scale_rewards != "none",
            "epsilon": EPSILON,
            "disable_weighting_for_uniform_rewards": True,
            "binary_baseline_guard": True,
        },
        "trajectory": {
            "overflow": "error" if rule.overflow == "error" else "truncate",
            "target_max_prompt_length": spec.rollout.max_prompt_length,
            "target_max_response_length": spec.rollout.max_completion_length,
        },
    }


def _data(spec: RunSpec) -> dict[str, Any]:
    return {
        "train_files": [spec.data.train_path],
        "val_files": [spec.data.eval_path] if spec.data.eval_path else MISSING,
        "val_max_samples": spec.evaluation.max_questions or -1,
        "train_batch_size": spec.training.train_batch_size,
        "max_prompt_length": spec.rollout.max_prompt_length,
        "max_response_length": spec.rollout.max_completion_length,
        "filter_overlong_prompts": True,
        "truncation": "error",
        "return_raw_chat": True,  # agents exchange text
        "shuffle": True,
        "seed": spec.seed,
    }


def _actor_rollout_ref(spec: RunSpec) -> dict[str, Any]:
    rollout, evaluation, training = spec.rollout, spec.evaluation, spec.training
    total_length = rollout.max_prompt_length + rollout.max_completion_length
    optimizer: dict[str, Any] = {
        "lr": training.learning_rate,
        "lr_warmup_steps": training.warmup_steps,
        "weight_decay": training.weight_decay,
        "betas": [training.adam_beta1, training.adam_beta2],
    }
    if training.lr_schedule == "cosine":
        optimizer["lr_scheduler_type"] = "cosine"
    offload = {"param_offload": True, "optimizer_offload": True}  # the agents take turns on the same GPUs
    return {
        "model": {"enable_gradient_checkpointing": True},
        "actor": {
            "strategy": "fsdp",
            "ppo_mini_batch_size": spec.mini_batch_prompts,
            "ppo_epochs": training.num_iterations,
            "shuffle": False,  # self first, then cross: Eq. (14) counts updates in that order
            "use_dynamic_bsz": True,
            "ppo_max_token_len_per_gpu": max(LEAST_TOKENS_PER_GPU, total_length),
            "loss_agg_mode": "seq-mean-token-mean",
            "use_kl_loss": spec.algorithm.beta > 0,
            "kl_loss_coef": spec.algorithm.beta,
            "kl_loss_type": "low_var_kl",  # k3
            "entropy_coeff": 0.0,
            "grad_clip": training.max_grad_norm,
            "optim": optimizer,
            "fsdp_config": offload,
        },
        "ref": {"fsdp_config": {"param_offload": True}},
        "rollout": {
            "name": "vllm",
            "mode": "async",
            "n": spec.num_generations,
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k or -1,
            "seed": spec.seed,
            "max_model_len": total_length,
            "tensor_model_parallel_size": 1,
            "free_cache_engine": True,
            "calculate_log_probs": False,  # the trainer computes them
            "val_kwargs": {
                "n": evaluation.num_samples,
                "do_sample": evaluation.temperature > 0,
                "temperature": evaluation.temperature,
                "top_p": evaluation.top_p,
                "top_k": evaluation.top_k or -1,
            },
        },
    }


def _trainer(spec: RunSpec) -> dict[str, Any]:
    steps = spec.training.steps
    return {
        "project_name": spec.data.benchmark,
        "experiment_name": spec.name,
        "total_epochs": steps,  # at least one step each, so total_training_steps decides
        "total_training_steps": steps,
        "val_before_train": True,
        "test_freq": spec.evaluation.eval_interval or steps,
        "save_freq": spec.save_interval or steps,
        "max_actor_ckpt_to_keep": spec.checkpoint.keep,
        "resume_mode": "auto",
        "nnodes": 1,
        "n_gpus_per_node": 1,
        "logger": ["console"],
    }


def to_do(spec: RunSpec) -> list[str]:
    """What the user has to do before the recipe can train."""
    data, delta = spec.data, rule_of(spec).delta
    notes = [
        "data.train_files names our JSONL. verl reads parquet with prompt, data_source and reward_model (its "
        f"ground_truth) in each row: convert {_quoted(data.question_field)} and {_quoted(data.answer_field)}.",
        "reward.custom_reward_function.path: a file with compute_score. Our verifier is "
        f"{data.verifier}{f', tolerance {data.tolerance:g}' if data.verifier == 'numeric' else ''}; the recipe brings "
        "math_reward.py.",
        "trainer.nnodes and trainer.n_gpus_per_node: the GPUs that both agents share.",
        f"hacpo.loss.cross_clip_delta is the distance: the first lower bound is 1 - {delta:g} = {1 - delta:g}.",
    ]
    if not data.eval_path:
        notes.append(
            f"data.val_files: this run holds out {data.held_out_fraction:g} of its questions by a hash; move them "
            "there from the training file."
        )
    return notes


def not_carried(spec: RunSpec) -> list[str]:
    """Settings of this run that the recipe has no key for, with what it does instead."""
    rule, data, training = rule_of(spec), spec.data, spec.training
    correction = spec.rollout.importance_correction
    cases: list[tuple[bool, str]] = [
        (rule.overflow == "drop", "algorithm.overflow drop: a shared rollout that is too long is cut, not left out."),
        (rule.eos != "strip", f"algorithm.eos {rule.eos}: the recipe strips the end of sequence of every rollout."),
        (rule.ratio_length != "own", "algorithm.ratio_length source: each side is divided by its own length."),
        (rule.cross_advantage != "learner", "algorithm.cross_advantage source: the learner's baseline is used."),
        (rule.scale_rewards == "batch", "algorithm.scale_rewards batch: each prompt's deviation divides its rewards."),
        (rule.uses_omega and rule.advantage == "plain", "algorithm.advantage plain: omega acts in the baseline."),
        (rule.uses_omega and not rule.modulate_gradient, "algorithm.modulate_gradient false: omega weighs gradients."),
        (rule.cross_gate != "hacpo", f"algorithm.cross_gate {rule.cross_gate}: the stepwise clip is used."),
        (not rule.clip_cross, "algorithm.clip_cross false: shared ratios are clipped."),
        (rule.cross_weight != 1, f"algorithm.cross_weight {rule.cross_weight:g}: the weight is 1."),
        (rule.cross_clip_gradient != "zero", f"algorithm.cross_clip_gradient {rule.cross_clip_gradient}: it is zero."),
        (rule.overlong_cache > 0, f"algorithm.overlong_cache {rule.overlong_cache}: no reward falls with the length."),
        (bool(spec.rewards.terms), "rewards.terms: the recipe has one reward; add them up in its compute_score."),
        (rule.mask_truncated_completions, "algorithm.mask_truncated_completions: cut answers are trained on."),
        (rule.cross_order == "mixed", "algorithm.cross_order mixed: shared rollouts keep the order of the prompts."),
        (rule.cross_kl, "algorithm.cross_kl: the KL penalty is on own rollouts only."),
        (rule.on_missing_source == "degrade", "algorithm.on_missing_source degrade: a missing agent ends the run."),
        (rule.peer_quarantine, "algorithm.peer_quarantine: no source is excluded."),
        (rule.audit_share > 0, f"algorithm.audit_share {rule.audit_share:g}: no audit checks rewards."),
        (bool(spec.rollout.stop), "rollout.stop: answers end with an EOS alone."),
        (correction != "none", f"rollout.importance_correction {correction}: every own rollout weighs the same."),
        (spec.rollout.environment != "none", f"rollout.environment {spec.rollout.environment}: answers are one turn."),
        (spec.rollout.max_staleness > 0, "rollout.max_staleness 1: rollouts are of the weights that learn."),
        (
            spec.rollout.max_extra_prompts > 0,
            f"rollout.max_extra_prompts {spec.rollout.max_extra_prompts}: prompts without a signal are not replaced.",
        ),
        (bool(training.benchmarks), "training.benchmarks: the recipe trains on train_files alone, without weights."),
        (training.num_iterations > 1, "training.num_iterations: passes go over own and shared rollouts in turn."),
        (training.lr_schedule == "linear", "training.lr_schedule linear: the learning rate stays constant."),
        (data.prompt_template != "{question}", "data.prompt_template: put its text around the questions of the files."),
        (bool(data.system_prompt), "data.system_prompt: put it into the messages of the files."),
        (
            data.extraction == "flexible",
            "data.extraction flexible: math_reward.py reads a box only; verl's gsm8k.py has the last number, as method "
            "flexible of its compute_score.",
        ),
        (bool(spec.evaluation.benchmarks), "evaluation.benchmarks: add their files to data.val_files."),
        (spec.checkpoint.keep_best, "checkpoint.keep_best: the newest checkpoints are kept."),
        (True, "training.max_unscorable: an unscorable answer is left out here; there it has a reward."),
        (True, "seed: random choices are drawn differently, so the same seed gives another run."),
        (True, "compute, telemetry and batch sizes that only save memory: verl's own settings."),
    ]
    for place, agent in enumerate(spec.agents):
        path = f"agents.{place}"
        cases += [
            (
                agent.revision is not None,
                f"{path}.revision {_quoted(agent.revision or '')}: download it, name its folder.",
            ),
            (agent.seed is not None, f"{path}.seed: both agents use the run's seed."),
            (
                agent.prompt_format != "auto",
                f"{path}.prompt_format {agent.prompt_format}: the chat template is applied.",
            ),
            *(
                (value is not None, f"{path}.{name} {value}: both agents sample by the run's settings.")
                for name, value in (("temperature", agent.temperature), ("top_p", agent.top_p), ("top_k", agent.top_k))
            ),
            (agent.prompt_template != "{question}", f"{path}.prompt_template: both agents read the same files."),
        ]
    return [text for applies, text in cases if applies]


def _quoted(text: str) -> str:
    """In ASCII, because some other characters would end a YAML comment."""
    return json.dumps(text)


def _literal(value: Any) -> Any:
    """The value with `${` escaped, which OmegaConf would interpolate."""
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value


def to_recipe_yaml(spec: RunSpec) -> str:
    """The file: how to start it, what to do first, what it leaves out, and the values. Error: UnsupportedByVerl."""
    values = dump_yaml(_literal(recipe(spec)))
    lines = HEADER.splitlines()
    for title, texts in (
        ("To do first:", to_do(spec)),
        ("Settings of this run that are not carried over, and what the recipe does instead:", not_carried(spec)),
    ):
        lines += ["", title]
        for text in texts:
            lines += textwrap.wrap(text, 112, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n" + values


def main(arguments: list[str] | None = None) -> int:
    """Print the YAML, or exit with status 1 and the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.contract.verl_export", description="A run for verl's HACPO recipe."
    )
    parser.add_argument("spec", type=Path, metavar="SPEC.json", help="a run's settings, also as YAML")
    options = parser.parse_args(arguments)
    try:
        print(to_recipe_yaml(RunSpec.from_file(options.spec)), end="")
    except InvalidSettings as error:
        print(error, file=sys.stderr)
        return 1
    except UnsupportedByVerl as error:
        print(f"{options.spec}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
