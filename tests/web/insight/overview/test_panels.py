"""The layout of the panels is a project's: members save it, all see it; and any recorded metric can be a panel."""

from __future__ import annotations

import json

import pytest

from tests.support.web.factories import make_member, make_run, metrics
from tests.support.web.insight_help import claimed, store
from tests.support.web.page_text import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(owner):
    return claimed(owner)


def put(client, run, panels: str):
    address = f"/api/v1/runs/{run.pk}/panels"
    return client.put(address, json.dumps({"panels": panels}), content_type="application/json")


def test_saved_layout_is_on_the_page_of_every_run_of_the_project(web, run, owner):
    layout = "*entropy:l,-kl,+loss,+used_frac~:m,clipping"
    assert put(web, run, layout).json()["panels"] == layout
    assert f'<script id="panels-data" type="application/json">"{layout}"' in text_of(web.get(f"/runs/{run.pk}"))
    assert web.get(f"/api/v1/runs/{make_run(owner).pk}/panels").json()["panels"] == layout
    assert put(web, run, "").json()["panels"] == ""


@pytest.mark.parametrize("panels", ["a b", "entropy:x", "<b>", "+", "kl,,+a,b:", "x" * 4001])
def test_text_that_is_no_layout_is_refused(web, run, panels):
    answer = put(web, run, panels)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "panels")


def test_viewer_sees_the_layout_and_saves_none(client, web, run):
    put(web, run, "*entropy")
    client.force_login(make_member(run.project, "viewer"))
    assert put(client, run, "").status_code == 403
    assert client.get(f"/api/v1/runs/{run.pk}/panels").json()["panels"] == "*entropy"
    page = text_of(client.get(f"/runs/{run.pk}"))
    assert "panels-save" not in page
    assert "panels-reset" in page


def test_metrics_are_those_that_were_recorded(web, run):
    store(run, metrics(1, loss=0.5), metrics(2, kl=0.1), metrics(2, "A", "B", used_frac=0.5))
    assert web.get(f"/api/v1/runs/{run.pk}/panels").json()["metrics"] == [
        {"metric": "kl", "is_pair": False},
        {"metric": "loss", "is_pair": False},
        {"metric": "used_frac", "is_pair": True},
    ]
