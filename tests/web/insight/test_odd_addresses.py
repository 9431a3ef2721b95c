"""Odd addresses of pages: an unreadable value of any parameter still shows the page, and none of it is markup."""

from __future__ import annotations

import pytest
from django.urls import reverse

from hacrl_web.insight.evaluations.views import EvaluationsQuery, NewEvaluationQuery
from hacrl_web.insight.rollouts.filter import RolloutFilter
from hacrl_web.insight.run_tabs.views import ConfigQuery, EventsQuery
from hacrl_web.leaderboard.board.selection import BoardSelection
from hacrl_web.web.page_query import PageQuery
from tests.support.web.insight_help import evaluation, stored
from tests.support.web.insight_rows import contribution, insert, rollout
from tests.support.web.leaderboard_help import finished_sweep

pytestmark = pytest.mark.django_db
ODD = [
    "\x00", "-1", "9" * 5000, "9" * 30, "١", "nan", "1e999", "9.9e9", "1.5", "..", "1-", "x.y", "[]", "last", "%_'\"",
    "<script>alert(1)</script>", "payload__values", "a\x00\n", "00000000-0000-0000-0000-000000000000",
]  # fmt: skip
# Name of the page -> its parameters, and those that no model reads.
PAGES: dict[str, tuple[type[PageQuery], tuple[str, ...]]] = {
    "insight:run_rollouts": (RolloutFilter, ("rollout", "maths", "query", "agent__in", "order_by")),
    "insight:run_evaluations": (EvaluationsQuery, ("page",)),
    "insight:run_config": (ConfigQuery, ()),
    "insight:run_events": (EventsQuery, ()),
    "insight:run_checkpoints": (PageQuery, ("verify", "ask")),
    "insight:run_what_if": (PageQuery, ("first", "alpha")),
    "insight:evaluate": (NewEvaluationQuery, ()),
    "harness:evaluate": (NewEvaluationQuery, ("tasks",)),
    "leaderboard:board": (BoardSelection, ("page",)),
    "leaderboard:index": (PageQuery, ("q", "page")),
    "reports:report_list": (PageQuery, ("q", "page")),
    "docs:search": (PageQuery, ("q",)),
}


@pytest.mark.parametrize("name", PAGES)
def test_odd_values_of_each_parameter_show_a_page(client, owner, name, request):
    run = stored(owner, evaluation(0, "A", 0.5))
    insert(run.pk, [rollout(101, 1, "A", "p", 0), contribution(102, 1, "B", "A", "p", 0)])
    page = reverse(name, args=[run.pk] if name.startswith("insight:run_") else [])
    of_board = {"sweep": finished_sweep(owner, {"gspo": (0.4,)}).pk} if name == "leaderboard:board" else {}
    query, further = PAGES[name]
    parameters = [*(field.alias or key for key, field in query.model_fields.items()), *further]
    if "against" in parameters and name == "insight:run_config":
        parameters.remove("against")  # another run that does not exist is 404
        assert {client.get(page, {"against": odd}).status_code for odd in ODD} == {404}
    is_full = not request.config.getoption("markexpr")
    for shift in range(0, len(ODD), 1 if is_full else 2):  # in `full` each parameter has each value once
        odd = {parameter: ODD[(place + shift) % len(ODD)] for place, parameter in enumerate(parameters)}
        answer = client.get(page, of_board | odd, follow=True)
        assert answer.status_code == 200, odd
        assert b"<script>alert" not in answer.content, odd
