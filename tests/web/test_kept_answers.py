"""What browsers and proxies may keep: static files, which are nobody's; no page, answer of the API, download or error.

`test_access` walks every page, operation and download of a viewer for the same header.
"""

from __future__ import annotations

import pytest
from django.contrib.staticfiles.finders import get_finders
from django.templatetags.static import static
from django.test import Client

KEPT_NOWHERE = "no-store, private"


def static_paths() -> list[str]:
    """As a page names them; a folder of files may have a prefix."""
    found = (place for finder in get_finders() for place in finder.list([]))
    return sorted({"/".join(filter(None, (getattr(storage, "prefix", ""), path))) for path, storage in found})


def test_static_files_may_be_kept_and_are_the_same_for_everybody(client, user):
    client.force_login(user)
    paths = static_paths()
    visitor = Client()
    answers = {path: (client.get(static(path)), visitor.get(static(path))) for path in paths}
    print(f"{len(answers)} static files")
    assert len(answers) >= 60
    for path, both in answers.items():
        mine, anybodys = (b"".join(answer) for answer in both)
        assert mine == anybodys, path
        for answer in both:
            assert answer.status_code == 200, path
            assert "public" in answer["Cache-Control"], path
            assert "max-age" in answer["Cache-Control"], path
            assert "no-store" not in answer["Cache-Control"], path
            assert not answer.cookies, path
            assert "Cookie" not in answer.get("Vary", ""), path


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("get", "/nowhere", 404),
        ("get", "/static/nowhere.js", 404),
        ("get", "/static/../hacrl_web/settings.py", 404),
        ("get", "/api/v1/nowhere", 404),
        ("get", "/api/v1/runs/none", 422),
        ("get", "/runs/?page=x", 200),
        ("put", "/runs/", 403),
        ("patch", "/api/v1/runs", 405),
        ("post", "/account/tokens", 403),
        ("post", "/api/v1/groups", 403),
    ],
)
def test_errors_of_a_user_are_kept_nowhere(user, method, address, status):
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = getattr(client, method)(address)
    assert (answer.status_code, answer["Cache-Control"]) == (status, KEPT_NOWHERE)


def test_crash_is_kept_nowhere(client, user, monkeypatch):
    client.force_login(user)
    client.raise_request_exception = False
    monkeypatch.setattr("hacrl_web.runs.workspace.views.page_of", lambda *_: 1 / 0)
    answer = client.get("/runs/")
    assert (answer.status_code, answer["Cache-Control"]) == (500, KEPT_NOWHERE)
