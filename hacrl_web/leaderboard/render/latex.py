"""The board as a LaTeX table (booktabs): texts of the page, the best score bold, scores that may be best underlined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hacrl_web.leaderboard.board import paper
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardLine, BoardTable, Cell
from hacrl_web.leaderboard.render.context import extras
from hacrl_web.leaderboard.render.exports import INTERVALS
from hacrl_web.runs.templatetags.formats import MISSING, count, plain_score, plain_significant, signed_fixed
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
_HEADS = {
    "seeds": "Seeds",
    "start": "Start",
    "rollouts": "Rollouts",
    "tokens": "Tokens",
    "training_hours": "Training hours",
    "per_1000": "Gain per 1,000 rollouts",
}


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; control characters are left out."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text if letter.isprintable())


def latex(table: BoardTable, section: paper.PaperSection | None, address: str) -> str:
    """Part of a document; needs booktabs. address: of the page with the same numbers."""
    names = extras(table)
    heads = ["Algorithm", "Agent", *(escaped(f"{c.title} {c.measured_by}") for c in table.columns)]
    heads += [f"$\\Delta$ {escaped(table.baseline)}" if name == "gain" else _HEADS[name] for name in names]
    lines = [
        f"% {_comment(table.board.name)}",
        f"% {_comment(address)}",
        f"% {_comment(INTERVALS)}.",
        *(f"% {_comment(group.row.label)}: {missing}" for group in table.groups for missing in group.row.missing),
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * (len(heads) - 2)}}}",
        r"\toprule",
        _row(heads),
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        lines += [_row([*_cells(table, group, line, names)]) for line in group.lines]
    for start in table.starts:
        lines.append(r"\midrule")
        for line in start.lines:
            scores = [_score(line.cells[column.key]) for column in table.columns]
            lines.append(_row(["start" if line is start.lines[0] else "", _agent(line), *scores, *[""] * len(names)]))
    lines += [r"\bottomrule", r"\end{tabular}", *_reported(section)]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """The text in one line, so that no line break in a name ends the comment."""
    return " ".join(text.split())


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _agent(line: BoardLine) -> str:
    return escaped(line.agent) if line.agent else "mean"


def _cells(table: BoardTable, group: BoardGroup, line: BoardLine, names: Sequence[str]) -> Iterator[str]:
    is_head = line is group.head
    yield escaped(group.row.label) if is_head else ""
    yield _agent(line)
    for column in table.columns:
        cell = line.cells[column.key]
        yield _difference(cell) if table.selection.show == "difference" else _score(cell)
    for name in names:
        if name == "gain":
            yield _difference(line.cells[table.last.key])
        elif name == "start":
            yield escaped(plain_score(line.start.mean if line.start else None))
        else:
            yield escaped(extra_text(table, group, name)) if is_head else ""


def extra_text(table: BoardTable, group: BoardGroup, name: str) -> str:
    """The text of a row's seeds, mean cost or gain."""
    if name == "seeds":
        return f"{len(group.row.seeds)} of {group.row.num_planned}"
    if name in ("rollouts", "tokens"):
        return count(table.cost(group.row, name))
    return plain_significant(table.per_1000(group) if name == "per_1000" else table.cost(group.row, name))


def _interval(estimate: MeanInterval) -> str:
    if estimate.are_seeds_equal:
        return f" (all {estimate.count} seeds equal)"
    return "" if estimate.half_width is None else rf" $\pm$ {escaped(plain_score(estimate.half_width))}"


def _score(cell: Cell) -> str:
    if cell.score is None:
        return escaped(MISSING)
    text = escaped(plain_score(cell.score.mean))
    marked = {"best": rf"\textbf{{{text}}}", "may be best": rf"\underline{{{text}}}"}.get(cell.mark, text)
    return marked + _interval(cell.score)


def _difference(cell: Cell) -> str:
    if cell.difference is None:
        return escaped(MISSING)
    unclear = " (unclear)" if cell.comparison == "unclear" else ""
    return escaped(signed_fixed(cell.difference.mean)) + _interval(cell.difference) + unclear


def _reported(section: paper.PaperSection | None) -> list[str]:
    """The paper's numbers in a separate table: they are not measured here."""
    if section is None:
        return []
    heads = ["Algorithm", "Agent", *(escaped(name) for name, _ in section.columns)]
    return [
        "",
        f"% reported ({paper.SOURCE}), {_comment(section.key)}: not measured here",
        rf"\begin{{tabular}}{{ll{'r' * len(section.columns)}}}",
        r"\toprule",
        _row(heads),
        r"\midrule",
        *(
            _row([escaped(line.algorithm), escaped(line.agent), *(line.score(column) for _, column in section.columns)])
            for line in section.lines
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
