"""The board as a LaTeX table (booktabs, siunitx): texts of the page, the best score bold, scores that may be best
underlined. Numbers stand in columns of type S, which align them at their points; intervals follow in columns of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hacrl_web.leaderboard.board import paper
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardLine, BoardTable, Cell
from hacrl_web.leaderboard.board.columns import Column
from hacrl_web.leaderboard.render.context import extras
from hacrl_web.leaderboard.render.exports import INTERVALS
from hacrl_web.runs.templatetags.formats import MISSING, plain_score, signed_fixed
from hacrl_web.web.statistics import MeanInterval

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "−": "$-$",
    "ω": r"$\omega$",
    "…": r"\ldots{}",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
MEASURED, NUMBER, PLAIN = "S@{}l", "S", "r"  # columns of one of the page's: with an interval, without, others


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; control characters are left out."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text if letter.isprintable())


def latex(table: BoardTable, section: paper.PaperSection | None, address: str) -> str:
    """Part of a document. address: of the page with the same numbers."""
    columns = extras(table)
    kinds = [MEASURED] * len(table.columns) + [_kind(column) for column in columns]
    heads = [escaped(f"{c.title} {c.measured_by}") for c in table.columns]
    heads += [f"$\\Delta$ {escaped(table.baseline)}" if c.name == "gain" else escaped(c.label) for c in columns]
    blocks = [[_row([*_cells(table, group, line, columns)]) for line in group.lines] for group in table.groups]
    for start in table.starts:
        empty = [" & " if _kind(column) == MEASURED else "" for column in columns]
        rows = [[_agent(line), *(_score(line.cells[c.key]) for c in table.columns), *empty] for line in start.lines]
        blocks.append([_row(["" if place else "start", *cells]) for place, cells in enumerate(rows)])
    return "\n".join(
        [
            f"% {_comment(table.board.name)}",
            f"% {_comment(address)}",
            f"% {_comment(INTERVALS)}.",
            *(f"% {_comment(group.row.label)}: {missing}" for group in table.groups for missing in group.row.missing),
            r"% \usepackage{booktabs,siunitx}",
            *_tabular(kinds, heads, blocks),
            *_reported(section),
            "",
        ]
    )


def _tabular(kinds: Sequence[str], heads: Sequence[str], blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """The table: a head spans the columns of its numbers, and a line is above each block of rows."""
    over = [rf"\multicolumn{{{1 + (k == MEASURED)}}}{{c}}{{{head}}}" for k, head in zip(kinds, heads, strict=True)]
    yield rf"\begin{{tabular}}{{ll{''.join(kinds)}}}"
    yield r"\toprule"
    yield _row(["Algorithm", "Agent", *over])
    for block in blocks:
        yield r"\midrule"
        yield from block
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _comment(text: str) -> str:
    """The text in one line, so that no line break in a name ends the comment."""
    return " ".join(text.split())


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _kind(column: Column) -> str:
    """The LaTeX columns of one of the further columns of the page."""
    return MEASURED if column.name == "gain" else NUMBER if column.is_decimal else PLAIN


def _number(text: str, style: str = "") -> str:
    """A cell of type S; in braces what is no plain number. style: a command around it."""
    if style or text == MISSING:
        return f"{{{style}{{{escaped(text)}}}}}"
    return text.replace("−", "-").replace(",", "")


def _agent(line: BoardLine) -> str:
    return escaped(line.agent) if line.agent else "mean"


def _cells(table: BoardTable, group: BoardGroup, line: BoardLine, columns: Sequence[Column]) -> Iterator[str]:
    is_head = line is group.head
    yield escaped(group.row.label) if is_head else ""
    yield _agent(line)
    for score in table.columns:
        cell = line.cells[score.key]
        yield _difference(cell) if table.selection.show == "difference" else _score(cell)
    for column in columns:
        if column.name == "gain":
            yield _difference(line.last)
        elif column.name == "start":
            yield _number(plain_score(line.start.mean if line.start else None))
        elif not is_head:
            yield ""
        elif column.name == "seeds":
            yield f"{len(group.row.seeds)} of {group.row.num_planned}"
        else:
            value = group.value(column.name)
            text = MISSING if value is None else column.text(value)
            yield _number(text) if column.is_decimal else escaped(text)


def _interval(estimate: MeanInterval) -> str:
    if estimate.are_seeds_equal:
        return rf"\ (all {estimate.count} seeds equal)"
    return "" if estimate.half_width is None else rf"\ $\pm$ {plain_score(estimate.half_width)}"


def _score(cell: Cell) -> str:
    if cell.score is None:
        return f"{_number(MISSING)} & "
    style = {"best": r"\textbf", "may be best": r"\underline"}.get(cell.mark, "")
    return f"{_number(plain_score(cell.score.mean), style)} & {_interval(cell.score)}"


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return f"{_number(MISSING)} & "
    unclear = " (unclear)" if cell.comparison == "unclear" else ""
    return f"{_number(signed_fixed(cell.difference.mean))} & {_interval(cell.difference)}{unclear}"


def _reported(section: paper.PaperSection | None) -> list[str]:
    """The paper's numbers in a separate table: they are not measured here."""
    if section is None:
        return []
    rows = [
        _row([escaped(line.algorithm), escaped(line.agent), *(_number(line.score(key)) for _, key in section.columns)])
        for line in section.lines
    ]
    heads = [escaped(name) for name, _ in section.columns]
    note = f"% reported ({paper.SOURCE}), {_comment(section.key)}: not measured here"
    return ["", note, *_tabular([NUMBER] * len(heads), heads, [rows])]
