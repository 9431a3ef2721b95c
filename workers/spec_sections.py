"""RunSpec's other sections: agents, data, rollouts, training, evaluation, checkpoints, computer, telemetry."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.spec_fields import UNPRINTABLE, Count, Number, Section, setting
from workers.verifiers import DEFAULT_TOLERANCE, RULES, VerifierKind

# Parameters of apply_chat_template itself, and what it hands to every template.
NOT_OF_TEMPLATES = frozenset(
    {
        "self",
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)


_GREEDY_TWICE = "{count} samples at temperature 0 would all be the same: raise evaluation.temperature, or ask once"


def _holds_question(template: str) -> str:
    if "{question}" not in template:
        raise ValueError("the template must contain {question}")
    return template


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

    _template_holds_question = field_validator("prompt_template")(_holds_question)

    @field_validator("chat_template_kwargs")
    @classmethod
    def _keywords_are_the_templates(cls, keywords: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
        taken = sorted(set(keywords) & NOT_OF_TEMPLATES)
        if taken:
            raise ValueError(f"{taken[0]!r} is none of the template's arguments: the trainer sets it, or cannot use it")
        return keywords

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
    prompt_template: str = setting(
        "{question}",
        help="Text around every question, before the agent's own template; {question} is replaced by the question.",
        source="product",
        max_length=20_000,
    )
    verifier: VerifierKind = setting(
        "math", help="; ".join(f"{kind}: {rules.line}" for kind, rules in RULES.items()) + ".", source="Sec. 4.1"
    )
    tolerance: Number = setting(
        DEFAULT_TOLERANCE,
        help="numeric: how far an answer may be from the reference answer, as a share of it.",
        source="ours",
        ge=0,
        le=0.5,
    )

    _template_holds_question = field_validator("prompt_template")(_holds_question)


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
        help="Training steps; one epoch of 7.5k questions at 128 prompts is 58. 0: the agents are only evaluated.",
        source="Sec. 4.1",
        ge=0,
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
        help="Share of all answers that may be unscorable in a step; above it the run asks the verifier "
        "again, and in the end is paused.",
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


class EvaluationBenchmark(DataSpec):
    """A further benchmark: its held-out questions are asked, or all where none are held out. Never trained on."""

    held_out_fraction: Number = setting(
        0.0,
        help="Only the share held out by a stable hash is asked, where eval_path is empty; 0: every question.",
        source="product",
        ge=0,
        le=0.9,
    )
    num_samples: Count | None = setting(
        None, help="Samples of each question; empty: as many as of the run's own.", source="product", ge=1, le=1024
    )


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
    num_samples: Count = setting(
        1,
        label="Samples per question",
        help="k of avg@k, pass@k, maj@k and best@k; more than one needs a temperature above 0.",
        source="Sec. 4.1",
        ge=1,
        le=1024,
    )
    benchmarks: tuple[EvaluationBenchmark, ...] = setting(
        (), help="Further benchmarks, asked before the first step and after the last.", source="product", max_length=20
    )

    @field_validator("num_samples")
    @classmethod
    def _samples_differ(cls, count: int, info: ValidationInfo) -> int:
        if count > 1 and info.data.get("temperature") == 0:
            raise ValueError(_GREEDY_TWICE.format(count=count))
        return count

    @field_validator("benchmarks")
    @classmethod
    def _samples_of_each_differ(
        cls, benchmarks: tuple[EvaluationBenchmark, ...], info: ValidationInfo
    ) -> tuple[EvaluationBenchmark, ...]:
        names = [one.benchmark for one in benchmarks]
        for one in benchmarks:
            if names.count(one.benchmark) > 1:
                raise ValueError(f"{one.benchmark!r} is named twice: one benchmark is asked once")
            if (one.num_samples or 1) > 1 and info.data.get("temperature") == 0:
                raise ValueError(f"{one.benchmark!r}: " + _GREEDY_TWICE.format(count=one.num_samples))
        return benchmarks


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
    stall_timeout_s: Count = setting(
        0,
        label="Stall time-out",
        help="Without any sign of work (an event, a token, a micro-batch) for so long, the trainer is taken for hung: "
        "its stacks go to its log, and it is started again from the last checkpoint. 0: 20 times its longest step, "
        "at least 30 minutes.",
        source="product",
        unit="s",
        ge=0,
        le=604_800,
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
    rollout_steps_kept: Count = setting(
        200,
        help="The texts of so many of the newest recorded steps stay in the database, older ones lose theirs (their "
        "numbers stay); 0: all stay.",
        source="product",
        unit="steps",
        ge=0,
        le=1_000_000,
    )
    spool_quota_mib: Count = setting(
        2048,
        help="Disk space for events that the database has not taken yet. From half of it on log lines and rollouts are "
        "left out, from nine tenths on metrics; how many is said.",
        source="product",
        unit="MiB",
        ge=1,
        le=1_000_000,
    )
