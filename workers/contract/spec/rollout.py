"""RunSpec's section of rollouts: how responses are sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.contract.settings import (
    Batch,
    Count,
    If,
    Interval,
    Length,
    Million,
    Number,
    Part,
    SettingsSection,
    Texts,
    setting,
)
from workers.contract.spec.environments import ENVIRONMENTS, EnvironmentName

INSTALL_VLLM = "run `.venv/bin/python -m workers.rollouts.install_vllm` there"
VLLM_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # MaxLoRARanks of vLLM 0.32


def vllm_lora_rank(rank: int) -> int:
    """The least maximum of vLLM for matrices of that rank. Error: StopIteration above them all."""
    return next(most for most in VLLM_LORA_RANKS if most >= rank)


_HAS_ENVIRONMENT = If("environment", *(name for name in ENVIRONMENTS if name != "none"))


class RolloutSpec(SettingsSection):
    """How responses are sampled."""

    engine: Literal["auto", "transformers", "vllm"] = setting(
        "auto",
        label="Rollout engine",
        help="What generates rollouts. transformers: the trainer itself; vllm: a vLLM engine beside each "
        "process of an agent (faster from tens of millions of parameters; needs to be installed, see docs/gpu.md); "
        "auto: vllm where the run finds a GPU and vLLM, it pays (a model above 1.7 billion weights or responses above "
        "1,024 tokens, at least 10 steps), agents have one process each and their weights fit into "
        "gpu_memory_utilization; else transformers. The run's log says why.",
        source="design",
    )
    num_generations: Count = setting(
        8,
        label="Rollouts per prompt",
        help="G: rollouts per prompt and agent (gspox2 takes twice as many).",
        source="Sec. 4.1",
        ge=1,
        le=1024,
    )
    temperature: Number = setting(
        1.0, help="Temperature of sampling and of log-probabilities.", source="Sec. 4.1", gt=0, le=5
    )
    max_prompt_length: Length = setting(
        1024, label="Longest prompt", help="Longer prompts are skipped, and counted.", source="Sec. 4.1", unit="tokens"
    )
    max_completion_length: Length = setting(
        4096, label="Longest completion", help="Most tokens of a completion.", source="Sec. 4.1", unit="tokens"
    )
    rollout_batch_size: Batch = setting(
        512,
        label="Sequences sampled at once",
        help="Sequences generated at the same time; no effect on results.",
        source="design",
        changes_results=False,
        unit="sequences",
    )
    gpu_memory_utilization: Number = setting(
        0.3,
        label="GPU memory of vLLM",
        help="vllm on a GPU: share of its memory that an engine uses for weights and cache while it generates.",
        source="TRL",
        needs=[If("engine", "auto", "vllm")],
        changes_results=False,
        gt=0,
        lt=1,
    )
    importance_correction: Literal["none", "truncate"] = setting(
        "none",
        help="truncate: the weight of an own rollout in the loss is min(exp(mean log-probability by the trainer - by "
        "the engine), importance_cap), to correct for the two computing differently; always with max_staleness 1.",
        source="truncated importance sampling, Yao et al. 2025",
    )
    importance_cap: Number = setting(
        2.0,
        help="The highest such weight.",
        source="Yao et al. 2025",
        needs=[[If("importance_correction", "truncate"), If("max_staleness")]],
        ge=1,
        le=100,
    )
    top_p: Part = setting(
        1.0,
        label="Top-p",
        help="In training: sample from the most probable tokens, which together have this probability; 1: from all. "
        "Below 1 importance ratios are biased: HACPO's mathematics assumes samples of the whole distribution, and "
        "log-probabilities are those of the whole one.",
        source="TRL",
    )
    top_k: Million = setting(
        0,
        label="Top-k",
        help="In training: sample from this many most probable tokens; 0: from all. Above 0 it biases as top_p does.",
        source="TRL",
        unit="tokens",
    )
    stop: Texts = setting(
        (),
        label="Stop strings",
        help="An answer ends where it holds one of these texts, in training and evaluation; the verifier reads what is "
        'before it. One text, or a JSON list such as ["Question:", "\\n\\n"].',
        source="vLLM",
        max_length=8,
    )
    max_staleness: Count = setting(
        0,
        label="Staleness",
        help="By how many steps the weights that sample may be older than those that learn. 1: a second process of "
        "each agent samples the next step's rollouts, with the weights at the start of this step, while the agent "
        "learns; own rollouts are weighed as importance_correction truncate does. Needs a copy of each agent's "
        "weights, the engine transformers and one process per agent.",
        source="arXiv 2410.18252",
        unit="steps",
        ge=0,
        le=1,
    )
    max_extra_prompts: Interval = setting(
        0,
        label="Extra prompts per step",
        help="Dynamic sampling: prompts of a step without a learning signal (no agent's advantages differ from 0, "
        "because all rewards are equal) are replaced by further prompts that have one, of which a step samples at "
        "most this many. Their rollouts count in all totals and cost as much as others; 0: off.",
        source="DAPO, arXiv 2503.14476",
        unit="prompts",
    )

    environment: EnvironmentName = setting(
        "none",
        help="What answers an agent's turns within a rollout, in training and evaluation. "
        + "; ".join(f"{name}: {line}" for name, line in ENVIRONMENTS.items())
        + ". max_completion_length is then of all turns and answers together.",
        source="ours",
    )
    verifiers_environment: str = setting(
        "",
        label="Environment of verifiers",
        help="verifiers: the name of the environment, as its load_environment takes it.",
        source="verifiers",
        needs=[If("environment", "verifiers")],
        max_length=200,
        pattern=r"^[A-Za-z0-9_-]*$",
        validate_default=True,
    )
    max_turns: Count = setting(
        4,
        label="Turns",
        help="Most turns of an agent in a rollout. One that ends with a call then counts as cut.",
        source="ours",
        needs=[_HAS_ENVIRONMENT],
        unit="turns",
        ge=1,
        le=64,
    )
    max_observation_length: Batch = setting(
        256,
        label="Answer of an environment",
        help="Most tokens of one answer of the environment; of a longer one its beginning.",
        source="ours",
        needs=[_HAS_ENVIRONMENT],
        unit="tokens",
    )
    environment_instructions: bool = setting(
        True,
        label="Instructions",
        help="Tell the agents before each question how to use the environment: in the system message, after the "
        "benchmark's own.",
        source="ours",
        needs=[_HAS_ENVIRONMENT],
    )

    @field_validator("verifiers_environment")
    @classmethod
    def _names_its_environment(cls, name: str, info: ValidationInfo) -> str:
        if info.data.get("environment") == "verifiers" and not name:
            raise ValueError("name the environment of the verifiers package, or set environment to none")
        return name

    @field_validator("environment")
    @classmethod
    def _answers_in_the_agents_process(cls, environment: EnvironmentName, info: ValidationInfo) -> EnvironmentName:
        if environment != "none" and info.data.get("max_staleness"):
            raise ValueError(
                "rollouts with an environment are not sampled ahead: set max_staleness to 0, or environment to none"
            )
        return environment

    @field_validator("max_staleness")
    @classmethod
    def _sampler_is_of_transformers(cls, staleness: int, info: ValidationInfo) -> int:
        if staleness and info.data.get("engine") == "vllm":
            raise ValueError(
                "a vllm engine does not sample while its agent learns: set engine to transformers, or this to 0"
            )
        return staleness

    @field_validator("max_extra_prompts")
    @classmethod
    def _extra_prompts_are_of_the_step(cls, count: int, info: ValidationInfo) -> int:
        if count and info.data.get("max_staleness"):
            raise ValueError(
                "which prompts need a replacement is known only once a step is sampled, so none is sampled ahead: set "
                "max_staleness to 0, or this to 0"
            )
        return count

    @property
    def samples_ahead(self) -> bool:
        """Whether the next step's rollouts are sampled while agents learn (agents/ahead.py)."""
        return self.max_staleness > 0

    @property
    def corrects_importance(self) -> bool:
        """Whether own rollouts are weighed by how much likelier the learner finds them than what sampled them."""
        return self.importance_correction == "truncate" or self.samples_ahead
