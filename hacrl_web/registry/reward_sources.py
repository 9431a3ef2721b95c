"""What reward functions and judges have in common: rows whose newest version lies in a file that trainers read.

Settings name them, benchmarks choose them by their verifier, and both are tried on responses and on questions.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hacrl_web.registry import values
from hacrl_web.registry.models import Benchmark, Judge, RewardFunction
from hacrl_web.web.errors import FieldErrors
from workers.contract.spec.rewards import REWARD_NAME

MAX_RESPONSE = 100_000
TRIED_QUESTIONS = 5
NO_ANSWER = "I do not know."

SourceT = TypeVar("SourceT", Judge, RewardFunction)


def named_rows(kind: type[SourceT], names: Sequence[str], project: Any) -> dict[str, SourceT]:
    """The rows of a project by name or id; one that is not there is left out."""
    rows: dict[str, SourceT] = {}
    for name in names:
        query = {"pk": int(name)} if name.isascii() and name.isdigit() and len(name) < 19 else {"name": name}
        row = kind.objects.filter(project=project, **query).first()
        if row is not None:
            rows[name] = row
    return rows


def chosen_source(
    kind: type[SourceT], its_verifier: str, project: Any, verifier: str | None, name: object
) -> SourceT | None:
    """The row that a benchmark with `verifier` names, by name or id; its_verifier: of the kind. Error: ValueProblem."""
    text = str(name or "").strip()
    if verifier != its_verifier:
        if text and verifier:
            message = f"It belongs to the verifier {its_verifier}: choose both or neither."
            raise values.ValueProblem("not_a_choice", message)
        return None
    row = named_rows(kind, [text], project).get(text) if text else None
    if row is None:
        label = kind._meta.verbose_name
        raise values.ValueProblem("not_found", f"There is no {label} {text[:80]!r} in this project.")
    return row


def delete_source(row: Judge | RewardFunction) -> None:
    """Delete the row; its file stays for the runs that name it. Error: FieldErrors (409) while a benchmark uses it."""
    if benchmark := row.benchmarks.first():
        raise FieldErrors.single("in_use", f"The benchmark {benchmark.name} uses it: delete that first.", status=409)
    row.delete()


def source_name(value: object) -> str:
    """The name of a function or a judge, which also names its metric. Error: ValueProblem."""
    name = values.text(value, 40)
    if not re.fullmatch(REWARD_NAME, name):
        raise values.ValueProblem("bad_name", "Use small letters, digits and _, beginning with a letter.")
    return name


def tried_case(question: object, gold: object, response: object, **fields: str) -> dict[str, Any]:
    """A case to try from the texts of a form. Error: FieldErrors."""
    checker = values.Checker()
    texts = {
        "question": checker.take("question", _checked_text, question),
        "answer": checker.take("gold", _checked_text, gold),
        "response": checker.take("response", _checked_text, response),
    }
    checker.finish()
    return texts | {"fields": fields}


def trial_cases(benchmark: Benchmark) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first questions, and for each two cases: the boxed reference answer, and no answer."""
    questions = [one for one in benchmark.sample[:TRIED_QUESTIONS] if isinstance(one, dict)]
    cases = [
        {
            "question": str(one.get("question", "")),
            "answer": str(one.get("answer", "")),
            "response": text,
            "fields": {"id": str(one.get("id", "")), "subject": str(one.get("subject", "")), "difficulty": ""},
        }
        for one in questions
        for text in (f"\\boxed{{{one.get('answer', '')}}}", NO_ANSWER)
    ]
    return questions, cases


def trial_rows(questions: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each question from the results of its two cases."""
    pairs = zip(questions, results[::2], results[1::2], strict=True)
    return [
        {"question": one.get("question"), "answer": one.get("answer"), "correct": right, "none": nothing}
        for one, right, nothing in pairs
    ]


def _checked_text(value: object) -> str:
    """A text to try. Error: ValueProblem."""
    if not isinstance(value, str) or len(value) > MAX_RESPONSE:
        raise values.ValueProblem("not_text", f"Text of at most {MAX_RESPONSE:,} characters is needed.")
    return value.replace("\x00", "").replace("\r\n", "\n").encode("utf-8", "replace").decode()


def write_at_once(path: Path, text: str) -> Path:
    """Write a file so that each reader finds the former text or the whole new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path
