"""What a board answers in one line: its highest row beside the baseline and beside the next one, and what it cost."""

from __future__ import annotations

from hacrl_web.insight.estimate import Estimate
from hacrl_web.leaderboard.cells import Group, Table, paired
from hacrl_web.leaderboard.compare import is_comparable
from hacrl_web.runs.templatetags.show import plain_significant, signed


def verdict(table: Table) -> str:
    """`hacpo 0.663. gspo 0.446: +0.216, one seed, no interval, 1.9 times the device time.` Empty without a pair."""
    scored = [group for group in table.groups if table.cell(group).by_seed]
    scored.sort(key=lambda group: -_mean(table, group))
    if not scored:
        return ""
    top, rest = scored[0], scored[1:]
    beside = {group.row.id: group for group in [*(one for one in rest if one.is_baseline), *rest[:1]]}
    said = [words for group in beside.values() if (words := _beside(table, top, group))]
    return " ".join([f"{top.row.label} {plain_significant(_mean(table, top))}.", *said]) if said else ""


def _mean(table: Table, group: Group) -> float:
    score = table.cell(group).score
    return score.mean if score else 0.0


def _beside(table: Table, top: Group, other: Group) -> str:
    """The other row and what the top has over it; empty where no difference may be taken."""
    is_alike = is_comparable(top.row, other.row, table.last) and top.row.agents == other.row.agents
    gap = paired(table.cell(top).by_seed, table.cell(other).by_seed)
    if gap is None or not is_alike:
        return ""
    parts = [f"{other.row.label} {plain_significant(_mean(table, other))}: {signed(gap.mean)}", _certainty(gap)]
    mine, theirs = (table.cost(group.row, "device_hours") for group in (top, other))
    if mine and theirs:
        parts.append(f"{plain_significant(mine / theirs, 2)} times the device time")
    return ", ".join(parts) + "."


def _certainty(gap: Estimate) -> str:
    if gap.half_width is None:
        return "one seed, no interval"
    if gap.are_seeds_equal:
        return f"all {gap.count} seeds equal"
    return f"± {plain_significant(gap.half_width, 2)} over {gap.count} seeds" + ("" if gap.is_clear else " (a tie)")
