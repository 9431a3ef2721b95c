"""The examples of docs/verifiers.md as cases: the document is the test's data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from workers.contract.verifier_kinds import FLEXIBLE_KINDS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "verifiers.md"
PYTHON_TESTS = "assert add(2, 3) == 5"
PARTIAL_TESTS = "assert add(2, 3) == 5\nassert add(0, 0) == 0\nassert 2 + 2 == 4"

_SECTION = re.compile(r"^## (\w+) \(version (\d+)\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_EXAMPLE = re.compile(
    r"(response\s+)?`([^`\n]+)`\s+is\s+(correct|incorrect|unscorable|worth\s+0\.\d+)\s+for\s+`([^`\n]+)`", re.IGNORECASE
)
_CODE = re.compile(r"^```python (correct|incorrect|worth 0\.\d+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FLEXIBLE = re.compile(r"^## Flexible extraction\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
REWARDS = {"correct": 1.0, "incorrect": 0.0, "unscorable": None}


def _reward(verdict: str) -> float | None:
    """`worth 0.5` is partial credit."""
    return float(verdict.split()[1]) if verdict.startswith("worth") else REWARDS[verdict]


@dataclass(frozen=True)
class Example:
    kind: str
    gold: str
    response: str
    reward: float | None


def versions() -> dict[str, int]:
    """By kind: the version that the document describes."""
    return {kind: int(version) for kind, version, _ in _SECTION.findall(DOCUMENT.read_text())}


def examples() -> list[Example]:
    found = []
    for kind, _, text in _SECTION.findall(DOCUMENT.read_text()):
        for whole, shown, verdict, gold in _EXAMPLE.findall(text):
            response = shown if whole else f"\\boxed{{{shown}}}"
            found.append(Example(kind, gold, response, _reward(verdict)))
        for verdict, code in _CODE.findall(text):
            tests = PARTIAL_TESTS if kind == "python_partial" else PYTHON_TESTS
            found.append(Example(kind, tests, f"```python\n{code}```", _reward(verdict)))
    return found


def flexible_examples() -> list[Example]:
    """Of the section on flexible extraction: each is one of both kinds."""
    [text] = _FLEXIBLE.findall(DOCUMENT.read_text())
    found = _EXAMPLE.findall(text)
    assert all(whole for whole, *_ in found), "these examples are responses"
    return [
        Example(kind, gold, response, REWARDS[verdict])
        for kind in FLEXIBLE_KINDS
        for _, response, verdict, gold in found
    ]
