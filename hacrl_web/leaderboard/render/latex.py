"""The board as a LaTeX table (booktabs): texts of the page, the best score bold, scores that may be best underlined.

Numbers are aligned at their points, without a package for it: what is before the point has a column of its own, as have
the point with what is behind it, and the interval.
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
MEASURED, DECIMAL, PLAIN = "r@{}l@{}l", "r@{}l", "r"  # columns of one of the page's: with an interval, without, others


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; control characters are left out."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text if letter.isprintable())


def latex(table: BoardTable, section: paper.PaperSection | None, address: str) -> str:
    """Part of a document; needs booktabs. address: of the page with the same numbers."""
    columns = extras(table)
    kinds = [MEASURED] * len(table.columns) + [_kind(column) for column in columns]
    heads = [escaped(f"{c.title} {c.measured_by}") for c in table.columns]
    heads += [f"$\\Delta$ {escaped(table.baseline)}" if c.name == "gain" else escaped(c.label) for c in columns]
    lines = [
        f"% {_comment(table.board.name)}",
        f"% {_comment(address)}",
        f"% {_comment(INTERVALS)}.",
        *(f"% {_comment(group.row.label)}: {missing}" for group in table.groups for missing in group.row.missing),
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{''.join(kinds)}}}",
        r"\toprule",
        _heads(kinds, heads),
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        lines += [_row([*_cells(table, group, line, columns)]) for line in group.lines]
    for start in table.starts:
        lines.append(r"\midrule")
        for line in start.lines:
            scores = [_score(line.cells[column.key]) for column in table.columns]
            empty = [_empty(_kind(column)) for column in columns]
            lines.append(_row(["start" if line is start.lines[0] else "", _agent(line), *scores, *empty]))
    lines += [r"\bottomrule", r"\end{tabular}", *_reported(section)]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """The text in one line, so that no line break in a name ends the comment."""
    return " ".join(text.split())


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _kind(column: Column) -> str:
    """The LaTeX columns of one of the further columns of the page."""
    return MEASURED if column.name == "gain" else DECIMAL if column.is_decimal else PLAIN


def _width(kind: str) -> int:
    """How many LaTeX columns it has."""
    return len(kind.replace("@{}", ""))


def _heads(kinds: Sequence[str], heads: Sequence[str]) -> str:
    """The first row: a head stands over all columns of its numbers."""
    over = zip(kinds, heads, strict=True)
    return _row(["Algorithm", "Agent", *(rf"\multicolumn{{{_width(kind)}}}{{c}}{{{head}}}" for kind, head in over)])


def _empty(kind: str) -> str:
    return " & ".join([""] * _width(kind))


def _missing(kind: str) -> str:
    return rf"\multicolumn{{{_width(kind)}}}{{c}}{{{escaped(MISSING)}}}"


def _number(text: str, style: str = "") -> str:
    """Two cells: what is before the point, and the rest. style: a command around each that is not empty."""
    if text == MISSING:
        return _missing(DECIMAL)
    whole, point, rest = text.partition(".")
    parts = [escaped(part) for part in (whole, point + rest)]
    return " & ".join(f"{style}{{{part}}}" if style and part else part for part in parts)


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
            yield _empty(_kind(column))
        elif column.name == "seeds":
            yield f"{len(group.row.seeds)} of {group.row.num_planned}"
        else:
            value = group.value(column.name)
            text = MISSING if value is None else column.text(value)
            yield _number(text) if column.is_decimal else escaped(text)


def _interval(estimate: MeanInterval) -> str:
    if estimate.are_seeds_equal:
        return rf"\ (all {estimate.count} seeds equal)"
    return "" if estimate.half_width is None else rf"\ $\pm$ {escaped(plain_score(estimate.half_width))}"


def _score(cell: Cell) -> str:
    if cell.score is None:
        return _missing(MEASURED)
    style = {"best": r"\textbf", "may be best": r"\underline"}.get(cell.mark, "")
    return f"{_number(plain_score(cell.score.mean), style)} & {_interval(cell.score)}"


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return _missing(MEASURED)
    unclear = " (unclear)" if cell.comparison == "unclear" else ""
    return f"{_number(signed_fixed(cell.difference.mean))} & {_interval(cell.difference)}{unclear}"


def _reported(section: paper.PaperSection | None) -> list[str]:
    """The paper's numbers in a separate table: they are not measured here."""
    if section is None:
        return []
    kinds = [DECIMAL] * len(section.columns)
    return [
        "",
        f"% reported ({paper.SOURCE}), {_comment(section.key)}: not measured here",
        rf"\begin{{tabular}}{{ll{''.join(kinds)}}}",
        r"\toprule",
        _heads(kinds, [escaped(name) for name, _ in section.columns]),
        r"\midrule",
        *(
            _row(
                [
                    escaped(line.algorithm),
                    escaped(line.agent),
                    *(_number(line.score(column)) for _, column in section.columns),
                ]
            )
            for line in section.lines
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
