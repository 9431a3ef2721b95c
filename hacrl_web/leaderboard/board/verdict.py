"""What a board answers in one line: its highest row beside the baseline and beside the next one, and what it cost."""

from __future__ import annotations

from hacrl_web.insight.statistics import MeanInterval
from hacrl_web.leaderboard.board.cells import BoardGroup, BoardTable, paired
from hacrl_web.leaderboard.board.compare import is_comparable
from hacrl_web.runs.templatetags.show import plain_significant, signed


def verdict(table: BoardTable) -> str:
    """`Highest: hacpo 0.663. Over gspo 0.446: +0.216, one seed, no interval, 1.9 times the device time.`

    HACPO's best row against the baseline is always said, also where another row is highest. Empty without a pair.
    """
    scored = [group for group in table.groups if table.cell(group).by_seed]
    scored.sort(key=lambda group: -_mean(table, group))
    if not scored:
        return ""
    top, rest = scored[0], scored[1:]
    baseline = [group for group in rest if group.is_baseline]
    beside = {group.row.id: group for group in [*baseline, *rest[:1]]}
    sentences = [f"Over {words}" for group in beside.values() if (words := _over(table, top, group))]
    ours = next((group for group in scored if group.row.algorithm == "hacpo"), top)
    if ours is not top and baseline and (words := _over(table, ours, baseline[0])):
        sentences.append(f"{_score(table, ours)} over {words}")
    return " ".join([f"Highest: {_score(table, top)}.", *sentences]) if sentences else ""


def _mean(table: BoardTable, group: BoardGroup) -> float:
    score = table.cell(group).score
    return score.mean if score else 0.0


def _score(table: BoardTable, group: BoardGroup) -> str:
    return f"{group.row.label} {plain_significant(_mean(table, group))}"


def _over(table: BoardTable, top: BoardGroup, other: BoardGroup) -> str:
    """The other row and what `top` has over it; empty where no difference may be taken."""
    is_alike = is_comparable(top.row, other.row, table.last) and top.row.agents == other.row.agents
    scores = [table.cell(group).by_seed for group in (top, other)]
    gap = paired(*scores)
    if gap is None or not is_alike:
        return ""
    is_of_all = scores[0].keys() == scores[1].keys()
    parts = [f"{_score(table, other)}: {signed(gap.mean)}", _certainty(gap, is_of_all)]
    mine, theirs = (table.cost(group.row, "device_hours") for group in (top, other))
    if mine and theirs:
        parts.append(f"{plain_significant(mine / theirs, 2)} times the device time")
    return ", ".join(parts) + "."


def _certainty(gap: MeanInterval, is_of_all: bool) -> str:
    """How sure it is. is_of_all: both rows have the same seeds; else their means need not differ by as much."""
    both = "" if is_of_all else " that both have"
    if gap.half_width is None:
        return f"one seed{both}, no interval"
    if gap.are_seeds_equal:
        return f"all {gap.count} seeds{both} are equal"
    text = f"± {plain_significant(gap.half_width, 2)} over {gap.count} seeds{both}"
    return text if gap.is_clear else f"{text} (a tie)"
