"""The paper's seven benchmarks: their ids, files and columns on the hub.

All are taken from the pages of the hub, and none has been downloaded to test this. If a file has another name today,
it is reported as missing; the columns are shown before anything is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hacrl_web.registry.benchmarks.ready_prompts import BY_READY_KEY


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

    @property
    def prompt_template(self) -> str:
        return BY_READY_KEY[self.ready_prompt].prompt_template

    @property
    def system_prompt(self) -> str:
        return BY_READY_KEY[self.ready_prompt].system_prompt

    @property
    def is_evaluation_only(self) -> bool:
        return not self.held_out


_SOLUTIONS = {"question": "problem", "answer": "solution", "extraction": "boxed"}

BUILT_IN = (
    BuiltIn(
        key="math-500",
        name="MATH-500",
        about="500 problems of MATH's test set, 7 subjects, 5 levels",
        dataset="HuggingFaceH4/MATH-500",
        mapping={"question": "problem", "answer": "answer", "subject": "subject", "difficulty": "level"},
    ),
    BuiltIn(
        key="math",
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
        name="OlympiadBench",
        about="674 English problems of olympiads, text only, with a final answer",
        dataset="Hothan/OlympiadBench",
        config="OE_TO_maths_en_COMP",
        split="train",
        train=("*OE_TO_maths_en_COMP*.parquet", "*OE_TO_maths_en_COMP*.jsonl"),
        mapping={"question": "question", "answer": "final_answer", "subject": "subfield", "difficulty": "difficulty"},
    ),
)
BY_KEY = {entry.key: entry for entry in BUILT_IN}
