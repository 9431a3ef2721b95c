"""The address of the workspace of runs: which runs it lists, in which columns and groups, and what its panels show.

The address is the whole workspace: a saved view is one of them under a name. What only the page's script reads is
here too, so that links and saved views keep it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Literal
from uuid import UUID

from django.http import QueryDict
from pydantic import BeforeValidator

from hacrl_web.runs.models import HELD, RunQuerySet, State
from hacrl_web.web.page_query import PageQuery, Text

MAX_LONG_TEXT = 4000
UNDER_WAY = "held"  # in `state`: what the number in the header counts
MAX_KEYS = 2  # settings by which runs are grouped
_SETTING = re.compile(r"[a-z_]{1,40}(\.([a-z_][a-z0-9_]{0,59}|\d{1,3})){0,5}")


def _long_text(text: str) -> str:
    return text.replace("\x00", "").strip()[:MAX_LONG_TEXT]


LongText = Annotated[str, BeforeValidator(_long_text)]


def is_setting(name: str) -> bool:
    """Whether a name has the form of a setting's dotted path, such as `training.learning_rate`."""
    return _SETTING.fullmatch(name) is not None and "." in name


class WorkspaceQuery(PageQuery):
    """q: a part of the name of a run or its sweep.  runs: only these.  by: what runs are grouped by.

    show, hide: keys of rows whose lines are switched on or off by hand.  The fields from `panels` on are of the panels,
    and `metric`, `baseline` and `best` of the comparison.
    """

    state: State | Literal["", "held"] = ""
    tag: Text = ""
    archived: Literal["", "1"] = ""
    q: Text = ""
    runs: tuple[UUID, ...] = ()
    sort: Text = ""
    by: tuple[Text, ...] = ()
    columns: LongText = ""
    layout: Literal["", "table", "panels"] = ""
    tab: Literal["", "compare"] = ""
    show: LongText = ""
    hide: LongText = ""
    metric: Text = ""
    baseline: Text = ""
    best: Literal["", "high", "low"] = ""
    panels: LongText = ""
    agents: Literal["", "each"] = ""
    x: Literal["", "rollouts", "tokens", "elapsed"] = ""
    smooth: Text = ""
    log: Text = ""
    first: Text = ""
    last: Text = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """What runs are grouped by."""
        return tuple(dict.fromkeys(filter(None, self.by)))[:MAX_KEYS]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(name, value) of each hidden field of a form that keeps the address."""
        return [(name, value) for name, values in QueryDict(self.encode()).lists() for value in values]


def narrowed(runs: RunQuerySet, query: WorkspaceQuery) -> RunQuerySet:
    """The runs with the query's tag and name, in any state; archived runs alone or left out, unless runs are named."""
    if query.runs:
        runs = runs.filter(pk__in=query.runs)
    else:
        runs = runs.filter(archived_at__isnull=not query.archived)
    if query.tag:
        runs = runs.tagged(query.tag)
    return runs.named(query.q)


def states_of(state: str) -> Collection[str]:
    """The states that a list shows; `held`: those of runs that train now; empty: all."""
    if not state:
        return State.values
    return HELD if state == UNDER_WAY else [state]


def in_state(runs: RunQuerySet, state: str) -> RunQuerySet:
    """The runs in the states of `states_of`."""
    return runs.filter(state__in=states_of(state)) if state else runs
