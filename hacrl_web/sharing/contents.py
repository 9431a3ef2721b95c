"""What a link or a file shows of a page: the templates of that page, without what acts or leads elsewhere.

A feature adds pages of its own by a module `shared` with PAGES (hacrl_web/features.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import AnonymousUser
from django.contrib.staticfiles.finders import find
from django.http import QueryDict
from django.template.loader import render_to_string
from django.urls import Resolver404, ResolverMatch, resolve, reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from hacrl_web.accounts.models import Project, User
from hacrl_web.features import feature_modules
from hacrl_web.insight.compare.comparison import ACCURACY
from hacrl_web.insight.compare.lines import agent_lines
from hacrl_web.insight.plotly_figures import lines_figure
from hacrl_web.leaderboard.board.boards import sweep_board
from hacrl_web.leaderboard.board.selection import BoardSelection, board_at, read_selection
from hacrl_web.leaderboard.board.table import make_table
from hacrl_web.leaderboard.render.context import board_context
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.storage.stored_spec import recorded_spec
from hacrl_web.runs.sweeps.views import sweep_context
from hacrl_web.sharing.static_page import static_html

STYLES = ("site", "run", "board", "insight", "docs", "report", "shared")
METRICS = {ACCURACY: "", "reward/mean": "reward", "response_length/mean": "tokens of a response"}
# Comments, fonts, and what else of a style sheet names a file.
_OUTSIDE = re.compile(r"/\*.*?\*/|@font-face\s*\{[^}]*\}|[\w-]+:[^;{}]*url\([^)]*\)[^;}]*;?", re.DOTALL)
# Project, name, the page's own address, template and context of its content.
Content = tuple[Project, str, str, str, dict[str, Any]]
Reader = Callable[[User, ResolverMatch, QueryDict, str], Content | None]


@dataclass(frozen=True)
class SharedPage:
    project: Project
    name: str
    address: str
    template: str
    context: Mapping[str, Any]

    def html(self) -> SafeString:
        """Its content as nobody in particular sees it: the static part alone."""
        return static_html(render_to_string(self.template, {**self.context, "user": AnonymousUser()}))

    def document(self, *, until: datetime | None = None, is_file: bool = False) -> str:
        """The whole page. until: of a link.  is_file: styles inside, so that it needs nothing else."""
        context = {"page": self, "content": self.html(), "now": timezone.now(), "until": until}
        context |= {"styles": _styles()} if is_file else {"sheets": [f"css/{name}.css" for name in STYLES]}
        return render_to_string("sharing/page.html", context)


def shared_page(user: User, address: str, host: str) -> SharedPage | None:
    """The page at an address of the product, as `user` may show it; None if there is none that can be shown.

    host: name under which the browser reaches the product, by which a text may name its pages.
    """
    with suppress(Resolver404, ValueError):
        parts = urlsplit(address)
        match = resolve(parts.path)
        if reader := _readers().get(match.view_name):
            content = reader(user, match, QueryDict(parts.query), host)
            return None if content is None else SharedPage(*content)
    return None


def _readers() -> dict[str, Reader]:
    own: dict[str, Reader] = {"runs:run_detail": _run, "runs:sweep_detail": _sweep, "leaderboard:board": _board}
    return own | {name: reader for module in feature_modules("shared") for name, reader in module.PAGES.items()}


def _styles() -> SafeString:
    """The style sheets as one text. Fonts are the reader's own."""
    texts = [_OUTSIDE.sub("", Path(str(find(f"css/{name}.css"))).read_text()) for name in STYLES]
    return mark_safe("\n".join(texts))  # noqa: S308 - our own files


def _run(user: User, match: ResolverMatch, *_: Any) -> Content | None:
    """The results of a run, its curves and what it was."""
    runs = Run.objects.visible_to(user).exclude(state=State.DRAFT).select_related("project", "cloned_from")
    run = runs.filter(pk=match.kwargs["run_id"]).first()
    if run is None:
        return None
    spec = recorded_spec(run)
    figures = [
        {"id": f"figure-{place}", "title": label.capitalize(), "json": lines_figure(lines, label)}
        for place, (metric, name) in enumerate(METRICS.items())
        for label in [name or f"held-out {run.score_word}"]
        if (lines := agent_lines(run, metric))
    ]
    shares = spec.algorithm.shares_rollouts and len(spec.agents) > 1
    context = {"run": run, "page_data": {"shares": shares}, "figures": figures, "spec": spec}
    return run.project, run.name, run.get_absolute_url(), "sharing/run.html", context


def _sweep(user: User, match: ResolverMatch, *_: Any) -> Content | None:
    """The board of a sweep and its runs by seed, or the trials of a search."""
    sweep = Sweep.objects.visible_to(user).select_related("project").filter(pk=match.kwargs["sweep_id"]).first()
    if sweep is None or sweep.is_draft:
        return None
    board = sweep_board(sweep)
    context = sweep_context(sweep) | board_context(make_table(board, BoardSelection()), "shared")
    return sweep.project, sweep.name, sweep.get_absolute_url(), "sharing/sweep.html", context


def _board(user: User, _: ResolverMatch, query: QueryDict, *__: Any) -> Content | None:
    """A board as its address selects it; of one project, because its members alone may show it."""
    board = board_at(query, user)
    if board is None or len(board.projects) != 1:
        return None
    project = Project.objects.get(pk__in=board.projects)
    selection = read_selection(query, board)
    context = board_context(make_table(board, selection), "shared")
    address = f"{reverse('leaderboard:board')}?{selection.query(board)}"
    return project, board.name, address, "sharing/board.html", context
