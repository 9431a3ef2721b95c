"""The panels of the Overview: their order, sizes, and which are pinned, hidden or added, saved for a project.

A layout is one line of text, which addresses hold too: the panels in order, separated by commas. Each is
`-` if hidden, `*` if pinned, the key of a chart or `+` and a metric (`+metric~`: of pairs), and `:s`, `:m` or `:l`.
An empty text is the layout that every project begins with.
"""

from __future__ import annotations

import re
from typing import Any

from hacrl_web.accounts.models import Role, User
from hacrl_web.accounts.roles.projects import require
from hacrl_web.insight.models import PanelLayout
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors

MAX_LAYOUT = 4000
NEWEST = 20  # events of an agent that are looked at: some metrics are recorded every few steps alone
_PANEL = re.compile(r"-?\*?(?:\+[\w/.@%-]{1,120}~?|[\w-]{1,60})(?::[sml])?")


def panels_of(run: Run) -> str:
    """The layout that the run's project has saved."""
    if run.project_id is None:
        return ""
    return PanelLayout.objects.filter(project=run.project_id).values_list("panels", flat=True).first() or ""


def save_panels(user: User, run: Run, panels: str) -> None:
    """Save a layout for the run's project. Error: FieldErrors."""
    require(user, run.project, Role.MEMBER)
    bad = next((one for one in panels.split(",") if one and not _PANEL.fullmatch(one)), "")
    if bad or len(panels) > MAX_LAYOUT:
        message = f"“{bad[:60]}” is no panel." if bad else f"At most {MAX_LAYOUT:,} characters."
        raise FieldErrors.single("invalid", message, "panels")
    PanelLayout.objects.update_or_create(project=run.project, defaults={"panels": panels})


def recorded_metrics(run: Run) -> list[dict[str, Any]]:
    """Metrics that the run has recorded, by name: of single agents, and of pairs of a learner and a source."""
    agents = run.agent_names
    names: set[tuple[str, bool]] = set()
    for agent in agents:
        for source in ("", *(other for other in agents if other != agent)):
            events = run.events.filter(type="metrics", agent=agent, source=source).order_by("-step", "-seq")
            for payload in events.values_list("payload", flat=True)[:NEWEST]:
                names |= {(name, bool(source)) for key in ("values", "ratios") for name in payload.get(key, {})}
    return [{"metric": name, "is_pair": is_pair} for name, is_pair in sorted(names)]
