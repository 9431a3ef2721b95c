"""RunSpec's sections of questions: training set, held-out set and evaluation; and the split into the two sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from workers.contract.settings import (
    MAX_TEMPLATE,
    Count,
    If,
    Million,
    Number,
    Part,
    PromptTemplate,
    SettingsSection,
    setting,
)
from workers.contract.verifier_kinds import (
    DEFAULT_TOLERANCE,
    RESPONSE_EXTRACTIONS,
    RULES,
    ResponseExtraction,
    VerifierKind,
    not_flexible,
)

# Names of a benchmark's files after its import.
CANONICAL_TRAIN_FILE, CANONICAL_HELD_OUT_FILE = "questions.jsonl", "held_out.jsonl"
MAX_COLUMN_NAME = 120  # characters
ColumnName = Annotated[str, Field(min_length=1, max_length=MAX_COLUMN_NAME)]
_GREEDY_TWICE = "{count} samples at temperature 0 would all be the same: raise evaluation.temperature, or take 1 sample"


class DataSpec(SettingsSection):
    """A benchmark: its training questions, its held-out questions, and the verifier of answers."""

    benchmark: str = setting(
        "questions", help="Name shown in charts and leaderboards.", source="product", min_length=1, max_length=120
    )
    train_path: str = setting(
        help="JSONL file with one question a line.", source="product", min_length=1, max_length=1000
    )
    eval_path: str | None = setting(
        None, help="JSONL file of held-out questions; empty: hold out a share.", source="product", max_length=1000
    )
    held_out_fraction: Number = setting(
        0.1, help="Share held out by a stable hash if eval_path is empty.", source="product", ge=0, le=0.9
    )
    question_field: ColumnName = setting("question", help="Key of the question in each line.", source="product")
    answer_field: ColumnName = setting("answer", help="Key of the reference answer in each line.", source="product")
    prompt_template: PromptTemplate = setting(
        "{question}",
        help="Text around every question, before the agent's own template; {question} is replaced by the question.",
        source="product",
    )
    system_prompt: str = setting(
        "",
        help="System message before every question, in the agent's chat template; without one, or if it takes no "
        "system message, the text before the question.",
        source="product",
        max_length=MAX_TEMPLATE,
    )
    verifier: VerifierKind = setting(
        "math", help="; ".join(f"{kind}: {rules.line}" for kind, rules in RULES.items()) + ".", source="Sec. 4.1"
    )
    tolerance: Number = setting(
        DEFAULT_TOLERANCE, help="numeric: largest relative error of a correct answer.", source="ours", ge=0, le=0.5
    )
    extraction: ResponseExtraction = setting(
        "strict",
        help="What math and numeric read as the answer of a response: "
        + "; ".join(f"{name}: {text}" for name, text in RESPONSE_EXTRACTIONS.items())
        + ".",
        source="lm-evaluation-harness",
    )

    reward_function: str = setting(
        "",
        help="function: the file that defines `reward(question, answer, response, **fields)`.",
        source="product",
        max_length=1000,
    )

    judge: str = setting(
        "", help="judge: the file of its settings, docs/rewards.md.", source="product", max_length=1000
    )

    generator: str = setting(
        "",
        help="The generator of reasoning-gym whose questions these are, such as chain_sum?level=2&seed=7: each further "
        "pass over the training set asks new ones. Empty: the same in every pass.",
        source="reasoning-gym",
        max_length=1000,
    )

    @model_validator(mode="after")
    def _has_its_function(self) -> Self:
        if (self.verifier == "function") != bool(self.reward_function):
            raise ValueError("reward_function names the file of the verifier function: set both, or neither")
        if (self.verifier == "judge") != bool(self.judge):
            raise ValueError("judge names the file of the verifier judge: set both, or neither")
        return self

    @field_validator("extraction")
    @classmethod
    def _is_of_numbers(cls, extraction: ResponseExtraction, info: ValidationInfo) -> ResponseExtraction:
        if message := not_flexible(info.data.get("verifier", "math"), extraction):
            raise ValueError(message)
        return extraction


class EvaluationBenchmark(DataSpec):
    """A further benchmark for evaluation only: its held-out questions, or all of them if none are held out."""

    held_out_fraction: Number = setting(
        0.0, help="Share to evaluate on if eval_path is empty; 0: all questions.", source="product", ge=0, le=0.9
    )
    num_samples: Count | None = setting(
        None, help="Samples of each question; empty: as many as for the run's own.", source="product", ge=1, le=1024
    )


class TrainingBenchmark(DataSpec):
    """A further training set: its training questions, each asked in its own template and verified by its verifier."""

    weight: Number = setting(
        1.0, help="How often its questions are drawn, relative to the other sets.", source="product", gt=0, le=1e6
    )


class EvaluationSpec(SettingsSection):
    """Each agent alone on the held-out questions."""

    eval_interval: Million = setting(
        10,
        label="Evaluate every",
        help="Steps between evaluations; 0: only before the first and after the last.",
        source="product",
        changes_results=False,
        unit="steps",
    )
    max_questions: Million = setting(
        500, label="Most questions", help="Held-out questions to use; 0: all.", source="product", unit="questions"
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
        (),
        help="Further benchmarks, evaluated before the first step and after the last.",
        source="product",
        max_length=20,
    )
    top_p: Part = setting(
        1.0,
        label="Top-p",
        help="Sample from the most probable tokens, which together have this probability; 1: from all.",
        source="product",
        needs=[If("temperature")],
    )
    top_k: Million = setting(
        0,
        label="Top-k",
        help="Sample from this many most probable tokens; 0: from all.",
        source="product",
        needs=[If("temperature")],
        unit="tokens",
    )
    question_choice: Literal["spread", "first"] = setting(
        "spread",
        help="Which questions are used if there are more than max_questions. spread: by a hash of their texts, so from "
        "the whole file, and the same ones in every run; first: those at the beginning of the file.",
        source="product",
        needs=[If("max_questions")],
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
                raise ValueError(f"{one.benchmark!r} is listed twice: remove one of the two")
            if (one.num_samples or 1) > 1 and info.data.get("temperature") == 0:
                raise ValueError(f"{one.benchmark!r}: " + _GREEDY_TWICE.format(count=one.num_samples))
        return benchmarks


def question_key(question: str) -> str:
    """The question with single spaces: two questions with one key are the same question."""
    return " ".join(question.split())


def split_position(question: str) -> float:
    """A stable number from 0 to 1, by the question's text alone."""
    digest = hashlib.sha256(b"held out:" + question_key(question).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def held_out_limit(positions: Iterable[float], fraction: float) -> float:
    """The highest split position that is held out; negative: nothing is. Neither side is left empty."""
    in_order = sorted(positions)
    if fraction == 0 or len(in_order) < 2:
        return -1.0
    return min(max(fraction, in_order[0]), in_order[-2])
