"""The paper's own numbers (arXiv 2603.02604, Tables 1, 2, 3 and 7), as printed and apart from measured ones.

They are single values without seeds or intervals, of other hardware, prompts and verifiers: nothing is computed here.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hacrl_web.web.page_query import one_of

SOURCE = "arXiv 2603.02604"
_FILE = Path(__file__).with_name("paper_results.csv")
# Column of the file -> names of the benchmark, in small letters and digits.
_NAMES = {
    "math500": {"math500"},
    "math": {"math"},
    "gsm8k": {"gsm8k"},
    "aime2025": {"aime2025", "aime25"},
    "amc23": {"amc23", "amc2023"},
    "minerva": {"minerva", "minervamath"},
    "olympiad": {"olympiad", "olympiadbench"},
}
ALL = "avg"  # the paper's average over its seven


@dataclass(frozen=True)
class ReportedScores:
    """One printed line: an algorithm's scores of one agent."""

    table: str
    group: str
    agent: str
    algorithm: str
    scores: tuple[tuple[str, str], ...]  # column of the file -> text as printed

    def score(self, column: str) -> str:
        return dict(self.scores).get(column, "")


@dataclass(frozen=True)
class PaperSection:
    """The printed lines of one group in one table, with the columns that this board has too."""

    key: str  # table and group, as in an address
    columns: tuple[tuple[str, str], ...]  # (benchmark's name here, column of the file)
    lines: tuple[ReportedScores, ...]

    @property
    def has_naive(self) -> bool:
        """Whether a line is of the paper's Naive, which may be another rule than ours."""
        return any(line.algorithm == "Naive" for line in self.lines)


@cache
def reported() -> tuple[ReportedScores, ...]:
    with open(_FILE, newline="", encoding="utf-8") as file:
        sections = []
        for row in csv.DictReader(file):
            scores = tuple((name, row[name]) for name in (*_NAMES, ALL))
            sections.append(ReportedScores(row["table"], row["group"], row["model"], row["algorithm"], scores))
    return tuple(sections)


def column_of(benchmark: str) -> str | None:
    """The file's column of a benchmark, by its name."""
    plain = re.sub("[^a-z0-9]", "", benchmark.lower())
    return next((column for column, names in _NAMES.items() if plain in names), None)


def keys() -> list[str]:
    """The tables and groups to choose from."""
    return list(dict.fromkeys(_key(line) for line in reported()))


def _key(line: ReportedScores) -> str:
    return f"Table {line.table}: {line.group}"


def paper_section(benchmarks: Sequence[str], key: str) -> PaperSection | None:
    """The lines of the group with this key, or of the first; None if no benchmark is one of the paper's."""
    columns = tuple((name, column) for name in benchmarks if (column := column_of(name)))
    if not columns:
        return None
    if len({column for _, column in columns}) == len(_NAMES):
        columns += (("average of all seven", ALL),)
    key = one_of(key, keys(), keys()[0])
    return PaperSection(key, columns, tuple(line for line in reported() if _key(line) == key))
