"""The contract, part one: RunSpec, everything a run is told before it starts.

Every hyperparameter lives here once, with its bounds, its help text and its source; the form, the API and the
command line are drawn from it and show its errors. Unknown keys are refused. No torch, no Django.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

# What a name may not hold: control characters, and those that turn the writing direction of the rest of the page.
UNPRINTABLE = r"\x00-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


class Section(BaseModel):
    """A group of settings: immutable, finite numbers only, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, str_strip_whitespace=True)


def setting(default: Any = ..., *, help: str, source: str, label: str = "", unit: str = "", **bounds: Any) -> Any:
    """A field that explains itself: help text, where its default comes from, and its unit."""
    extra = {"source": source, "label": label, "unit": unit}
    return Field(default, description=help, json_schema_extra={k: v for k, v in extra.items() if v}, **bounds)


def _plain_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str) and "_" in value:  # Python would read 1_0 as 10
        raise ValueError("a number has no underscore in it")
    return value


def _empty_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


Count = Annotated[int, BeforeValidator(_plain_number)]
Number = Annotated[float, BeforeValidator(_plain_number)]
# Empty (also an empty text, as a form sends it) means: the algorithm's own value.
OwnNumber = Annotated[Number | None, BeforeValidator(_empty_is_none)]

# Algorithms in which learners train on other agents' rollouts, unless `sharing` is off.
SHARING = ("hacpo", "naive_source", "naive_learner")
# epsilon, epsilon_high where a run names none. The others clip whole sequences, as GSPO does.
OWN_EPSILONS = {"grpo": (0.2, 0.28)}
SEQUENCE_EPSILONS = (3e-4, 4e-4)


class AgentSpec(Section):
    """One learner: a language model, and what differs between it and its peers."""

    name: str = setting(
        help="Unique within the run; the agent's name in every chart.",
        source="product",
        min_length=1,
        max_length=80,
        pattern=rf"^[^{UNPRINTABLE}/\\]+$",
    )
    model: str = setting(
        help="Folder with config.json, tokenizer and *.safetensors, or a hub id.",
        source="product",
        min_length=1,
        max_length=1000,
    )
    revision: str | None = setting(
        None,
        help="Hub revision (commit, tag or branch).",
        source="product",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$",
    )
    seed: Count | None = setting(
        None,
        help="Seed of this agent's random choices; empty: derived from its name, whatever its place in the list.",
        source="design: randomness",
        ge=0,
        le=2**31 - 1,
    )
    learning_rate: Number | None = setting(
        None, help="Learning rate of this agent alone; empty: the run's.", source="product", gt=0, le=1
    )
    prompt_format: Literal["auto", "chat", "plain"] = setting(
        "auto",
        help="chat: the tokenizer's chat template; plain: the bare prompt; auto: chat where there is a template.",
        source="design: tokenizers and text",
    )
    prompt_template: str = setting(
        "{question}",
        help="Text of the prompt; {question} is replaced by the question.",
        source="product",
        max_length=20_000,
    )
    chat_template_kwargs: dict[str, bool | int | str] = setting(
        {}, help="Extra arguments of the chat template, such as enable_thinking.", source="official recipe"
    )

    lora_rank: Count = setting(
        0,
        help="Rank of LoRA matrices, trained in place of the weights; 0: all weights are trained.",
        source="LoRA, arXiv 2106.09685",
        ge=0,
        le=1024,
    )
    lora_alpha: Number = setting(
        32.0, help="LoRA matrices are scaled by lora_alpha / lora_rank.", source="arXiv 2106.09685", gt=0, le=10_000
    )

    @field_validator("prompt_template")
    @classmethod
    def _template_holds_question(cls, template: str) -> str:
        if "{question}" not in template:
            raise ValueError("the template must contain {question}")
        return template

    @property
    def stable_seed(self) -> int:
        """The agent's seed, or one derived from its name: independent of its place in the list."""
        if self.seed is not None:
            return self.seed
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "big") >> 1


class DataSpec(Section):
    """The questions: what is trained on, what is held out, and who checks the answers."""

    benchmark: str = setting(
        "questions", help="Name shown in charts and leaderboards.", source="product", min_length=1, max_length=120
    )
    train_path: str = setting(
        help="JSONL file with one question a line.", source="product", min_length=1, max_length=1000
    )
    eval_path: str | None = setting(
        None,
        help="JSONL file of held-out questions; empty: a share of the training file is held out.",
        source="product",
        max_length=1000,
    )
    held_out_fraction: Number = setting(
        0.1,
        help="Share held out by a stable hash of the question, where eval_path is empty.",
        source="product",
        ge=0,
        le=0.9,
    )
    question_field: str = setting(
        "question", help="Key of the question in each line.", source="product", min_length=1, max_length=120
    )
    answer_field: str = setting(
        "answer", help="Key of the reference answer in each line.", source="product", min_length=1, max_length=120
    )
    verifier: Literal["math", "exact"] = setting(
        "math", help="math: mathematical equality of the last boxed answer; exact: the same text.", source="Sec. 4.1"
    )


class AlgorithmSpec(Section):
    """The rule that turns verified rollouts into updates, and its numbers. The loss reads this object by attribute."""

    name: Literal["hacpo", "gspo", "gspox2", "grpo", "naive_source", "naive_learner"] = setting(
        "hacpo",
        help="hacpo: rollouts are shared; gspo: each agent alone; gspox2: alone with double rollouts and updates; "
        "grpo: alone, token-level ratio; naive_source, naive_learner: shared without HACPO's corrections, the old "
        "log-probability the source's, or the learner's own.",
        source="Sec. 3, Sec. 4.1",
        label="Algorithm",
    )
    sharing: bool = setting(
        True,
        help="A sharing algorithm without sharing is n independent GSPO runs, bit for bit.",
        source="design",
    )
    epsilon: OwnNumber = setting(
        None,
        help="Lower clip of the self ratio; empty: the algorithm's own, 3e-4 (grpo: 0.2).",
        source="GSPO; Eq. (47)",
        gt=0,
        lt=1,
    )
    epsilon_high: OwnNumber = setting(
        None,
        help="Upper clip of the self ratio; empty: the algorithm's own, 4e-4 (grpo: 0.28).",
        source="GSPO; Eq. (47)",
        gt=0,
        le=10,
    )
    delta: Number = setting(
        0.2, help="The cross ratio's lower bound is 1 - delta at m = 0.", source="Eq. (14), Sec. 3.4", ge=0, le=1
    )
    delta_step: Number = setting(
        0.025,
        help="The lower bound rises by this much with each update within a step.",
        source="Eq. (14), Table 5",
        ge=0,
        le=1,
    )
    alpha: Number = setting(1.0, help="Exponent of the stop-gradient cross ratio.", source="Eq. (12)", ge=0, le=10)
    advantage: Literal["capability", "plain"] = setting(
        "capability",
        help="Baseline of shared groups: weighed by omega, or the plain joint mean (the paper's -adv).",
        source="Eq. (7); Sec. 4.3",
    )
    cross_advantage: Literal["learner", "source"] = setting(
        "learner",
        help="Whose baseline stands behind a shared rollout's advantage.",
        source="App. E; Eq. (10): source",
    )
    scale_rewards: Literal["group", "batch", "none"] = setting(
        "group",
        help="Advantages are divided by the standard deviation of the prompt's rewards, of all rewards, or not.",
        source="Eq. (6); batch, none: TRL",
    )
    modulate_gradient: bool = setting(
        True,
        help="Shared rollouts are weighed by omega; off is the paper's -omega.",
        source="Eq. (10); Sec. 4.3",
    )
    clip_cross: bool = setting(
        True,
        help="The ratio of shared rollouts is clipped; off is the paper's no_clip.",
        source="Eq. (50); Sec. 4.3",
    )
    cross_weight: Number = setting(
        1.0, help="Factor on every cross rollout; 1/(n-1) keeps many peers in check.", source="design", ge=0, le=10
    )
    cross_clip_gradient: Literal["zero", "keep", "sided"] = setting(
        "zero",
        help="Gradient outside the band: zero (the paper), keep, or sided: kept where the update still helps.",
        source="Eq. (50); keep, sided: ours",
    )
    cross_clip_schedule: Literal["auto", "raw", "scaled"] = setting(
        "auto",
        help="raw: Eq. (14); scaled: ends at the two-agent bound for every n; auto: scaled for n > 2.",
        source="design",
    )
    cross_order: Literal["auto", "mixed", "source_order"] = setting(
        "auto", help="Order of cross rollouts over the mini-batches; auto: mixed for n > 2.", source="design"
    )
    max_sources_per_learner: Count = setting(
        0,
        help="A learner trains on at most this many peers in a step, drawn anew each step; 0: all. All peers still "
        "count in its baseline.",
        source="design",
        ge=0,
        le=7,
    )
    on_missing_source: Literal["error", "degrade"] = setting(
        "error",
        help="An agent that delivers no rollouts in a step: the run fails, or the others go on without them.",
        source="design",
    )
    ratio_length: Literal["own", "source"] = setting(
        "own", help="Length that divides the learner's log-probability of a cross rollout.", source="Eq. (11)"
    )
    max_log_ratio: Number = setting(
        10.0,
        help="The log of a sequence ratio is clamped to plus or minus this.",
        source="official recipe",
        gt=0,
        le=50,
    )
    beta: Number = setting(
        1e-3,
        help="Weight of the KL penalty to the starting model (self rollouts).",
        source="first public code",
        ge=0,
        le=10,
    )
    cross_kl: bool = setting(
        False, help="The KL penalty is on shared rollouts too.", source="design; off: first public code"
    )
    capability_window: Count = setting(
        5, help="K: steps over which a capability is averaged.", source="Eq. (9)", ge=1, le=1000
    )
    ratio_min: Number = setting(0.1, help="Smallest capability ratio omega.", source="first public code", gt=0, le=1)
    ratio_max: Number = setting(10.0, help="Largest capability ratio omega.", source="first public code", ge=1, le=1000)
    ratio_warmup_steps: Count = setting(
        0, help="Omega is 1 during these first steps.", source="official recipe", ge=0, le=100_000
    )
    eos: Literal["map", "strip", "literal"] = setting(
        "map",
        label="End of sequence",
        help="End of a shared rollout: the learner's own EOS, none, or the source's text.",
        source="design: tokenizers and text",
    )
    overflow: Literal["drop", "truncate", "error"] = setting(
        "drop",
        help="A shared rollout longer than max_completion_length in the learner's tokens.",
        source="design: tokenizers and text",
    )

    @property
    def shares_rollouts(self) -> bool:
        """True where learners train on other agents' rollouts."""
        return self.name in SHARING and self.sharing

    @property
    def clips_shared(self) -> bool:
        """True where delta, delta_step and the rest of HACPO's cross clip act."""
        return self.name == "hacpo" and self.sharing and self.clip_cross


class RolloutSpec(Section):
    """How responses are sampled."""

    engine: Literal["transformers"] = setting("transformers", help="What generates rollouts.", source="design")
    num_generations: Count = setting(
        8,
        label="Rollouts per prompt",
        help="G: rollouts per prompt and agent (gspox2 takes twice as many).",
        source="Sec. 4.1",
        ge=1,
        le=1024,
    )
    temperature: Number = setting(
        1.0, help="Sampling temperature; log-probabilities are taken at it too.", source="Sec. 4.1", gt=0, le=5
    )
    max_prompt_length: Count = setting(
        1024, help="Longer questions are left out, and counted.", source="Sec. 4.1", unit="tokens", ge=1, le=1_000_000
    )
    max_completion_length: Count = setting(
        4096, help="Response tokens at most.", source="Sec. 4.1", unit="tokens", ge=1, le=1_000_000
    )
    rollout_batch_size: Count = setting(
        512, help="Sequences generated at once.", source="design", unit="sequences", ge=1, le=100_000
    )


class TrainingSpec(Section):
    """Steps, batches and the optimizer (AdamW)."""

    steps: Count = setting(
        58,
        help="Training steps; one epoch of 7.5k questions at 128 prompts is 58.",
        source="Sec. 4.1",
        ge=1,
        le=1_000_000,
    )
    train_batch_size: Count = setting(
        128, help="B: prompts per step, the same for every agent.", source="Sec. 4.1", unit="prompts", ge=1, le=100_000
    )
    mini_batch_size: Count = setting(
        64,
        help="Prompts per optimizer update (gspox2 takes half).",
        source="Sec. 4.1",
        unit="prompts",
        ge=1,
        le=100_000,
    )
    num_iterations: Count = setting(1, help="Passes over the rollouts of a step.", source="Sec. 4.1", ge=1, le=100)
    micro_batch_size: Count = setting(
        64,
        help="Sequences per forward pass: memory, not mathematics.",
        source="design",
        unit="sequences",
        ge=1,
        le=100_000,
    )
    learning_rate: Number = setting(1e-6, help="Peak learning rate.", source="Sec. 4.1", gt=0, le=1)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "constant", label="Learning-rate schedule", help="After the warm-up.", source="Sec. 4.1"
    )
    warmup_steps: Count = setting(0, help="Steps of linear warm-up.", source="Sec. 4.1", ge=0, le=100_000)
    weight_decay: Number = setting(0.01, help="AdamW weight decay.", source="AdamW", ge=0, le=1)
    adam_beta1: Number = setting(0.9, help="AdamW beta 1.", source="AdamW", ge=0, lt=1)
    adam_beta2: Number = setting(0.999, help="AdamW beta 2.", source="AdamW", ge=0, lt=1)
    max_unscorable: Number = setting(
        0.5,
        help="Share of all answers that may be unscorable in a step; above it the run pauses, asks the "
        "verifier again, and in the end fails.",
        source="design: guards",
        ge=0,
        le=1,
    )
    max_grad_norm: Number = setting(
        1.0, help="Gradients are scaled down to this norm.", source="first public code", gt=0, le=1e6
    )

    @field_validator("mini_batch_size")
    @classmethod
    def _mini_batch_divides(cls, size: int, info: ValidationInfo) -> int:
        batch = info.data.get("train_batch_size")  # missing where it was itself refused
        if batch and batch % size:
            raise ValueError(f"must divide train_batch_size {batch}; {size} does not")
        return size


class EvaluationSpec(Section):
    """Each agent alone on the held-out questions."""

    eval_interval: Count = setting(
        10,
        help="Steps between evaluations; 0: only before the first and after the last.",
        source="product",
        unit="steps",
        ge=0,
        le=1_000_000,
    )
    max_questions: Count = setting(
        0, help="Held-out questions asked; 0: all.", source="product", unit="questions", ge=0, le=1_000_000
    )
    temperature: Number = setting(0.0, help="0: greedy.", source="product", ge=0, le=5)


class CheckpointSpec(Section):
    """What is kept on disk."""

    save_steps: Count = setting(
        0, help="Steps between checkpoints; 0: only after the last.", source="TRL", unit="steps", ge=0, le=1_000_000
    )
    keep: Count = setting(2, help="Newest checkpoints kept.", source="product", ge=1, le=1000)
    keep_best: bool = setting(
        True,
        help="The checkpoint with the best evaluation (mean of all agents) is kept beside the newest.",
        source="product",
    )


class ComputeSpec(Section):
    """Where and in which numbers."""

    device: Literal["auto", "cpu", "cuda"] = setting("auto", help="auto: a GPU where there is one.", source="product")
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", label="Number type", help="Weights; auto: bfloat16 on a GPU, float32 on a CPU.", source="product"
    )
    num_threads: Count = setting(
        0, help="CPU threads of the trainer; 0: as many as there are cores.", source="product", ge=0, le=1024
    )
    placement: Literal["local"] = setting("local", help="local: all agents take turns in one process.", source="design")


class TelemetrySpec(Section):
    """What is recorded beside the metrics."""

    rollout_interval: Count = setting(
        1, help="Rollouts are recorded every so many steps; 0: never.", source="product", unit="steps", ge=0, le=100_000
    )
    alignment_interval: Count = setting(
        10,
        help="gradient_alignment is measured every so many steps (as costly as that step's updates); 0: never.",
        source="Theorem 4.3",
        unit="steps",
        ge=0,
        le=100_000,
    )


class RunSpec(Section):
    """All of a run: who learns, on what, by which rule."""

    schema_version: Literal[1] = 1
    name: str = setting(
        "run", help="Shown in lists.", source="product", min_length=1, max_length=120, pattern=rf"^[^{UNPRINTABLE}]+$"
    )
    seed: Count = setting(
        0, help="Every random choice is derived from it.", source="design: randomness", ge=0, le=2**31 - 1
    )
    agents: tuple[AgentSpec, ...] = setting(help="One to eight agents.", source="Sec. 2", min_length=1, max_length=8)
    data: DataSpec
    algorithm: AlgorithmSpec = AlgorithmSpec()
    rollout: RolloutSpec = RolloutSpec()
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    compute: ComputeSpec = ComputeSpec()
    telemetry: TelemetrySpec = TelemetrySpec()

    @field_validator("agents")
    @classmethod
    def _agents_differ_by_name(cls, agents: tuple[AgentSpec, ...]) -> tuple[AgentSpec, ...]:
        names = [agent.name for agent in agents]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two agents are named {name!r}: give each its own name")
        by_seed: dict[int, str] = {}
        for agent in agents:
            other = by_seed.setdefault(agent.stable_seed, agent.name)
            if other != agent.name:
                raise ValueError(
                    f"agents {other!r} and {agent.name!r} have the same seed {agent.stable_seed}, so the same random "
                    "choices: give each its own seed, or none"
                )
        return agents

    @field_validator("training")
    @classmethod
    def _gspox2_halves_mini_batches(cls, training: TrainingSpec, info: ValidationInfo) -> TrainingSpec:
        algorithm = info.data.get("algorithm")
        if algorithm and algorithm.name == "gspox2" and training.mini_batch_size % 2:
            raise ValueError("mini_batch_size must be even, for gspox2 halves it")
        return training

    @property
    def num_generations(self) -> int:
        """Rollouts per prompt and agent that this run really samples."""
        return self.rollout.num_generations * (2 if self.algorithm.name == "gspox2" else 1)

    @property
    def mini_batch_prompts(self) -> int:
        """Prompts per optimizer update that this run really uses."""
        return self.training.mini_batch_size // (2 if self.algorithm.name == "gspox2" else 1)

    @property
    def updates_per_block(self) -> int:
        """M: optimizer updates that one agent's rollouts of a step fill."""
        return self.training.num_iterations * self.training.train_batch_size // self.mini_batch_prompts

    @property
    def num_blocks(self) -> int:
        """Agents whose rollouts one learner trains on in a step, itself included."""
        if not self.algorithm.shares_rollouts:
            return 1
        return 1 + min(self.algorithm.max_sources_per_learner or len(self.agents), len(self.agents) - 1)

    @property
    def rule(self) -> AlgorithmSpec:
        """The algorithm with every number filled in: what the loss reads."""
        low, high = OWN_EPSILONS.get(self.algorithm.name, SEQUENCE_EPSILONS)
        epsilon, epsilon_high = self.algorithm.epsilon, self.algorithm.epsilon_high
        return self.algorithm.model_copy(
            update={
                "epsilon": low if epsilon is None else epsilon,
                "epsilon_high": high if epsilon_high is None else epsilon_high,
                "delta_step": self.delta_step,
            }
        )

    @property
    def delta_step(self) -> float:
        """Rise of the cross lower bound per update, after cross_clip_schedule."""
        algorithm, n, m = self.algorithm, self.num_blocks, self.updates_per_block
        scaled = algorithm.cross_clip_schedule == "scaled" or (algorithm.cross_clip_schedule == "auto" and n > 2)
        # With n agents the last update is number nM - 1 instead of 2M - 1: same last bound for every n.
        return algorithm.delta_step * ((2 * m - 1) / (n * m - 1) if scaled and n * m > 1 else 1.0)

    @property
    def last_lower_bound(self) -> float:
        """The cross lower bound of a step's last update, Eq. (14)."""
        last_update = self.num_blocks * self.updates_per_block - 1
        return min(1.0, 1.0 - self.algorithm.delta + last_update * self.delta_step)

    def cautions(self) -> list[Caution]:
        """What is allowed but probably not meant; a request confirms each by its code."""
        found: list[Caution] = []
        if not self.algorithm.clips_shared or len(self.agents) == 1:
            return found
        if self.algorithm.delta > 0.5:
            bound = 1 - self.algorithm.delta
            found.append(
                Caution(
                    code="delta_above_half",
                    field="algorithm.delta",
                    message=f"The lower bound becomes {bound:.3g}; the paper's Table 5 prints the lower bound, "
                    f"did you mean {bound:.3g}?",
                )
            )
        if self.last_lower_bound >= 1:
            taught = {
                "zero": "teaches nothing",
                "keep": "weighs every shared rollout as if its ratio were 1",
                "sided": "teaches only where a step moves the ratio towards 1",
            }[self.algorithm.cross_clip_gradient]
            found.append(
                Caution(
                    code="last_bound_reaches_one",
                    field="algorithm.delta_step",
                    message=f"The last cross mini-batch of each step has a lower bound of 1 and {taught}: "
                    "lower delta_step or raise mini_batch_size.",
                )
            )
        return found

    def to_json(self) -> str:
        """The canonical text of this spec: sorted keys, all defaults written out."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=False)

    @classmethod
    def from_file(cls, path: Path) -> RunSpec:
        """Read a spec file. Errors: OSError, pydantic.ValidationError."""
        return cls.model_validate_json(path.read_bytes())


class Caution(BaseModel):
    """A setting to confirm: `code` is what the request repeats to say "I mean it"."""

    model_config = ConfigDict(frozen=True)
    code: str
    field: str
    message: str
