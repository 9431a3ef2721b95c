"""Prints tables and JSON. Control characters in texts of servers and models never reach the terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hacrl_web.web.visible import visible
from workers.contract import number_format

# The command as its user types it: an installed `hacrl` is on PATH; the launcher installs `./hacrl` alone.
HACRL = "hacrl" if Path(sys.argv[0]).name == "hacrl" else "./hacrl"
BLOCKS = "▁▂▃▄▅▆▇█"
PIPE_WIDTH = 10_000
# Heads of columns that wrap in a narrow terminal; numbers, ids and states are never cut.
FOLDED = frozenset({"name", "agents", "tags", "about", "what was found", "why"})
STATE_STYLES = {
    "queued": "bright_black",
    "starting": "blue",
    "running": "blue",
    "paused": "yellow",
    "completed": "green",
    "failed": "red",
    "lost": "magenta",
}


def console() -> Console:
    """For standard output, without markup: brackets in a name are printed.

    In a pipe or a file nothing is cut or wrapped: each row is one line, for grep.
    """
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=width)


def safe(value: Any, *, is_line: bool = True) -> Text:
    """A text with its control, invisible and reordering characters written out."""
    text = "" if value is None else visible(str(value))
    return Text(" ".join(text.split("\n")) if is_line else text)


def state(value: str) -> Text:
    return Text(str(safe(value)), style=STATE_STYLES.get(value, ""))


def format_number(value: Any, metric: str = "") -> Text:
    """A count, or a value of the metric by the rule of its kind; a dash for what is no number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Text(number_format.MISSING, style="bright_black")
    is_count = isinstance(value, int) and not metric
    return Text(number_format.format_count(value) if is_count else number_format.format_metric(metric, value))


def format_difference(value: Any, metric: str) -> Text:
    """A difference of two values of a metric with its sign; a dash for what is no number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return Text(number_format.MISSING, style="bright_black")
    return Text(number_format.format_metric_difference(metric, value))


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def moment(value: str | None) -> str | None:
    """A time of the API to the second, such as 2026-11-26 01:28:14 UTC; other commands get it unchanged by --json."""
    return None if value is None else f"{datetime.fromisoformat(value).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def print_json(value: Any) -> None:
    """Print a value as JSON in ASCII, which has no control characters."""
    print(json.dumps(value, indent=1, ensure_ascii=True))


def print_text(text: str) -> None:
    """The text of a file: as it is for a pipe, with control characters written out in a terminal."""
    sys.stdout.write("".join(f"{visible(one)}\n" for one in text.splitlines()) if sys.stdout.isatty() else text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, folded: frozenset[str] = FOLDED) -> None:
    """Cells that are not Text are made safe. empty: printed in place of a table without rows.

    folded: heads of the columns whose cells may wrap.
    """
    grid = Table(box=None, pad_edge=False, header_style="bold", show_header=any(head.strip() for head in heads))
    for head in heads:
        grid.add_column(safe(head), no_wrap=head not in folded, overflow="fold" if head in folded else "ellipsis")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else safe(cell) for cell in row))
    console().print(grid if grid.row_count else Text(empty, style="bright_black"))


def print_rows(
    rows: Sequence[Any], json: bool, heads: Sequence[str], cells: Callable[[Any], Sequence[Any]], *, empty: str
) -> None:
    """A list as JSON or as a table. cells: those of one row."""
    if json:
        print_json(rows)
    else:
        table(heads, map(cells, rows), empty=empty)


def line(text: str) -> None:
    console().print(safe(text), soft_wrap=True)


def complain(text: str) -> None:
    Console(stderr=True, markup=False, highlight=False, emoji=False).print(safe(text, is_line=False), soft_wrap=True)


def sparkline(values: Sequence[float | None], width: int = 24) -> str:
    """The last values as blocks, scaled from the lowest to the highest; a gap for a missing value."""
    newest = list(values)[-width:]
    finite = [value for value in newest if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    return "".join(
        " " if value is None or not math.isfinite(value) else BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))]
        for value in newest
    )
