r"""Tasks of the harness that ask a run's own benchmarks: the same questions in the same prompts, greedily answered.

The harness reads the answers by its own filters and compares texts (`exact_match`): `final` takes the last box or
number (of choices, the last letter), `boxed` the last `\boxed{}`. Our verifiers know more ways to write an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.data import DataSpec
from workers.contract.spec.run import RunSpec
from workers.contract.verifier_kinds import VerifierKind
from workers.questions.dataset import Question
from workers.trainer.evaluation import questions_digest

_NUMBER = r"-?[0-9][0-9,]*(?:\.[0-9]+)?"
_BOXED = r"\\boxed\{([^{}]*)\}"
_NUMBERS = {"final": rf"{_BOXED}|({_NUMBER})", "boxed": _BOXED}
# Filter -> pattern whose last match is the answer, by the kind of verifier.
FILTERS: dict[VerifierKind, dict[str, str]] = {
    "math": _NUMBERS,
    "numeric": _NUMBERS,
    "choice": {"final": r"(?<![A-Za-z])([A-Z])(?![A-Za-z])", "boxed": _BOXED},
}
IGNORED = [",", r"\$", r"\.$"]


def write_task(
    folder: Path,
    name: str,
    data: DataSpec,
    questions: Sequence[Question],
    spec: RunSpec,
    agent: AgentSpec,
    takes_system: Callable[[], bool],
) -> None:
    """`name`.yaml and its questions. takes_system: whether the agent's prompts have a system message of their own."""
    has_system = bool(data.system_prompt) and takes_system()
    joined = f"{data.system_prompt}\n\n" if data.system_prompt and not has_system else ""
    file = folder / f"{name}.jsonl"
    with open(file, "w", encoding="utf-8") as lines:
        for question in questions:
            text = agent.prompt_template.replace("{question}", question.prompt)
            row = {"prompt": joined + text, "target": question.answer.strip()}
            lines.write(json.dumps(row | ({"system": data.system_prompt} if has_system else {})) + "\n")
    config: dict[str, Any] = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "test_split": "test",
        "output_type": "generate_until",
        # A template, which the harness evaluates without a sandbox: a text of a user is a value in it, no part of it.
        "description": "{{system}}" if has_system else "",
        "doc_to_text": "prompt",
        "doc_to_target": "target",
        "generation_kwargs": {
            "until": list(spec.rollout.stop),
            "do_sample": False,
            "temperature": 0.0,
            "max_gen_toks": spec.rollout.max_completion_length,
        },
        "filter_list": [
            {
                "name": label,
                "filter": [
                    {"function": "regex", "regex_pattern": pattern, "group_select": -1},
                    {"function": "take_first"},
                ],
            }
            for label, pattern in FILTERS[data.verifier].items()
        ],
        "metric_list": [
            {
                "metric": "exact_match",
                "aggregation": "mean",
                "higher_is_better": True,
                "ignore_case": True,
                "regexes_to_ignore": IGNORED,
            }
        ],
        "metadata": {"version": questions_digest(questions)[:12]},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
