"""The built-in benchmarks, the paper's seven and others: their ids, files, columns and licences on the hub.

All are taken from the pages of the hub, and none has been downloaded to test this. If a file has another name today,
it is reported as missing; the columns are shown before anything is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hacrl_web.registry.benchmarks.ready_prompts import BY_READY_KEY
from workers.contract.verifier_kinds import VerifierKind


@dataclass(frozen=True)
class BuiltIn:
    """train, held_out: patterns of file names; a benchmark that is only for evaluation has no held_out."""

    key: str
    name: str
    about: str
    dataset: str
    config: str = "default"
    split: str = "test"
    train: tuple[str, ...] = ("test*", "data/test*", "*/test*")
    held_out: tuple[str, ...] = ()
    mapping: dict[str, str] = field(default_factory=dict)  # of QuestionMapping; the rest is guessed from the columns
    ready_prompt: str = "boxed"  # a key of READY_PROMPTS
    verifier: VerifierKind = "math"
    held_out_share: float = 0.0  # of one file that is divided
    licence: str = "see the page of the data set"  # as that page states it

    @property
    def prompt_template(self) -> str:
        return BY_READY_KEY[self.ready_prompt].prompt_template

    @property
    def system_prompt(self) -> str:
        return BY_READY_KEY[self.ready_prompt].system_prompt

    @property
    def is_evaluation_only(self) -> bool:
        return not self.held_out and not self.held_out_share


_CODE: dict[str, Any] = {"verifier": "python", "ready_prompt": "code"}
_CHOICE: dict[str, Any] = {"verifier": "choice", "ready_prompt": "choice"}
_ARC = {"question": "question", "answer": "answerKey", "extraction": "options"}
_SOLUTIONS = {"question": "problem", "answer": "solution", "extraction": "boxed"}

BUILT_IN = (
    BuiltIn(
        key="math-500",
        licence="MIT (of MATH)",
        name="MATH-500",
        about="500 problems of MATH's test set, 7 subjects, 5 levels",
        dataset="HuggingFaceH4/MATH-500",
        mapping={"question": "problem", "answer": "answer", "subject": "subject", "difficulty": "level"},
    ),
    BuiltIn(
        key="math",
        licence="MIT",
        name="MATH",
        about="7,500 competition problems to train on, 5,000 held out",
        dataset="EleutherAI/hendrycks_math",
        config="all seven subjects",
        split="train, test",
        train=("*/train*.parquet",),
        held_out=("*/test*.parquet",),
        mapping={**_SOLUTIONS, "subject": "type", "difficulty": "level"},
    ),
    BuiltIn(
        key="gsm8k",
        licence="MIT",
        name="GSM8K",
        about="7,473 grade-school word problems to train on, 1,319 held out",
        dataset="openai/gsm8k",
        config="main",
        split="train, test",
        train=("main/train*",),
        held_out=("main/test*",),
        mapping={"question": "question", "answer": "answer", "extraction": "hashes"},
    ),
    BuiltIn(
        key="aime2025",
        name="AIME2025",
        about="30 problems, whole numbers from 0 to 999",
        dataset="math-ai/aime25",
        mapping={"question": "problem", "answer": "answer"},
    ),
    BuiltIn(
        key="amc23",
        name="AMC23",
        about="40 problems of AMC 12, 2023",
        dataset="math-ai/amc23",
        mapping={"question": "question", "answer": "answer"},
    ),
    BuiltIn(
        key="minerva",
        name="Minerva",
        about="272 problems of university courses",
        dataset="math-ai/minervamath",
        mapping={"question": "question", "answer": "answer"},
    ),
    BuiltIn(
        key="olympiadbench",
        licence="Apache 2.0",
        name="OlympiadBench",
        about="674 English problems of olympiads, text only, with a final answer",
        dataset="Hothan/OlympiadBench",
        config="OE_TO_maths_en_COMP",
        split="train",
        train=("*OE_TO_maths_en_COMP*.parquet", "*OE_TO_maths_en_COMP*.jsonl"),
        mapping={"question": "question", "answer": "final_answer", "subject": "subfield", "difficulty": "difficulty"},
    ),
    BuiltIn(
        key="arc-challenge",
        name="ARC-Challenge",
        about="1,119 grade-school science questions with 3 to 5 options to train on, 1,172 held out",
        dataset="allenai/ai2_arc",
        config="ARC-Challenge",
        split="train, test",
        train=("ARC-Challenge/train*",),
        held_out=("ARC-Challenge/test*",),
        mapping=_ARC,
        licence="CC BY-SA 4.0",
        **_CHOICE,
    ),
    BuiltIn(
        key="commonsense-qa",
        name="CommonsenseQA",
        about="9,741 questions of everyday knowledge with 5 options to train on, 1,221 held out (its validation split)",
        dataset="tau/commonsense_qa",
        split="train, validation",
        train=("data/train*",),
        held_out=("data/validation*",),
        mapping={**_ARC, "subject": "question_concept"},
        licence="MIT",
        **_CHOICE,
    ),
    BuiltIn(
        key="mmlu",
        name="MMLU",
        about="14,042 exam questions of 57 subjects with 4 options",
        dataset="cais/mmlu",
        config="all",
        train=("all/test*",),
        mapping={"question": "question", "answer": "answer", "subject": "subject", "extraction": "options"},
        licence="MIT",
        **_CHOICE,
    ),
    BuiltIn(
        key="mmlu-pro",
        name="MMLU-Pro",
        about="12,032 harder exam questions of 14 subjects with up to 10 options",
        dataset="TIGER-Lab/MMLU-Pro",
        train=("data/test*",),
        mapping={"question": "question", "answer": "answer", "subject": "category", "extraction": "options"},
        licence="MIT",
        **_CHOICE,
    ),
    BuiltIn(
        key="gpqa-diamond",
        name="GPQA Diamond",
        about="198 graduate questions of biology, physics and chemistry with 4 options; gated: needs a Hub token, and "
        "its authors ask not to publish the questions",
        dataset="Idavidrein/gpqa",
        config="gpqa_diamond",
        split="train",
        train=("gpqa_diamond.csv",),
        mapping={**_ARC, "question": "Question", "answer": "Correct Answer", "subject": "High-level domain"},
        licence="CC BY 4.0",
        **_CHOICE,
    ),
    BuiltIn(
        key="bbh-logic",
        name="BBH logical deduction",
        about="750 puzzles: the order of three, five or seven objects, with options",
        dataset="lukaemon/bbh",
        config="logical_deduction_*",
        train=("logical_deduction_*/test*",),
        mapping={"question": "input", "answer": "target", "extraction": "options"},
        licence="MIT (of BIG-Bench Hard)",
        **_CHOICE,
    ),
    BuiltIn(
        key="humaneval",
        name="HumanEval",
        about="164 Python functions with unit tests",
        dataset="openai/openai_humaneval",
        config="openai_humaneval",
        train=("openai_humaneval/test*",),
        mapping={"question": "prompt", "answer": "test", "extraction": "tests"},
        licence="MIT",
        **_CODE,
    ),
    BuiltIn(
        key="humaneval-plus",
        name="HumanEval+",
        about="the 164 functions of HumanEval with about 80 times as many tests",
        dataset="evalplus/humanevalplus",
        train=("data/test*",),
        mapping={"question": "prompt", "answer": "test", "extraction": "tests"},
        licence="Apache 2.0",
        **_CODE,
    ),
    BuiltIn(
        key="mbpp",
        name="MBPP",
        about="374 short Python programs with unit tests to train on, 500 held out",
        dataset="google-research-datasets/mbpp",
        config="full",
        split="train, test",
        train=("full/train*",),
        held_out=("full/test*",),
        mapping={"question": "text", "answer": "test_list", "extraction": "tests"},
        licence="CC BY 4.0",
        **_CODE,
    ),
    BuiltIn(
        key="ifeval",
        name="IFEval",
        about="541 prompts with one to three instructions that a program can check, such as a number of words",
        dataset="google/IFEval",
        split="train",
        train=("ifeval_input_data.jsonl", "*train*.parquet", "*train*.jsonl"),
        mapping={"question": "prompt", "answer": "instruction_id_list", "id": "key", "extraction": "instructions"},
        verifier="instructions",
        ready_prompt="bare",
        licence="Apache 2.0",
    ),
    BuiltIn(
        key="countdown",
        name="Countdown",
        about="490,364 games: reach a target with three or four numbers",
        dataset="Jiayi-Pan/Countdown-Tasks-3to4",
        split="train",
        train=("data/train*",),
        mapping={"question": "nums", "answer": "target", "extraction": "countdown"},
        verifier="countdown",
        ready_prompt="countdown",
        held_out_share=0.01,
        licence="none stated",
    ),
)
BY_KEY = {entry.key: entry for entry in BUILT_IN}
