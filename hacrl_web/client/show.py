"""What the command prints: tables and JSON. No text of a server or a model reaches the terminal as a command to it."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hacrl_web.web.visible import visible

BLOCKS = "▁▂▃▄▅▆▇█"
UNCUT = 10_000  # columns
# Heads of the columns that give way in a narrow terminal; numbers, ids and states are never cut.
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
    """Of this moment's standard output. Markup is off: brackets in a name are brackets.

    In a pipe or a file nothing is cut or wrapped, so that a row stays a line for grep.
    """
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNCUT
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, width=width)


def safe(value: Any, *, is_line: bool = True) -> Text:
    """A text as people may read it: escape sequences and what reorders or hides is written out."""
    text = "" if value is None else visible(str(value))
    return Text(" ".join(text.split("\n")) if is_line else text)


def state(value: str) -> Text:
    return Text(str(safe(value)), style=STATE_STYLES.get(value, ""))


def format_number(value: Any) -> Text:
    """Three significant digits, a dash where there is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Text("–", style="bright_black")
    return Text(f"{value:,}" if isinstance(value, int) else f"{value:.3g}")


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def print_json(value: Any) -> None:
    """ASCII alone, so that no control character is left."""
    print(json.dumps(value, indent=1, ensure_ascii=True))


def print_text(text: str) -> None:
    """The text of a file: as it is for a pipe, with control characters written out in a terminal."""
    sys.stdout.write("".join(f"{visible(one)}\n" for one in text.splitlines()) if sys.stdout.isatty() else text)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, folded: frozenset[str] = FOLDED) -> None:
    """Cells are Text, or are made safe. `empty` stands where there are no rows.

    folded: heads of the columns whose cells may take several lines.
    """
    grid = Table(box=None, pad_edge=False, header_style="bold", show_header=any(head.strip() for head in heads))
    for head in heads:
        grid.add_column(safe(head), no_wrap=head not in folded, overflow="fold" if head in folded else "ellipsis")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else safe(cell) for cell in row))
    out = console()
    out.print(grid if grid.row_count else Text(empty, style="bright_black"))


def line(text: str) -> None:
    console().print(safe(text), soft_wrap=True)


def complain(text: str) -> None:
    Console(stderr=True, markup=False, highlight=False, emoji=False).print(safe(text, is_line=False), soft_wrap=True)


def sparkline(values: Sequence[float | None], width: int = 24) -> str:
    """The last values as blocks from the lowest to the highest; a gap where there is none."""
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
