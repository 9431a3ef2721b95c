"""What a page of another origin can do to somebody who is logged in here: nothing. And hostile names stay names.

The other page comes from another port of the same host, which browsers call the same site: cookies travel with it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Server
from tests.browser.test_rollouts import watched as watched
from tests.support.browser.hostile_run import MARKUP
from tests.support.http_server import Handler, http_server

# What a page of the other origin tries; each answers with what came of it.
FORM = """([action, fields]) => {
  const form = Object.assign(document.createElement("form"), { method: "post", action });
  for (const [name, value] of Object.entries(fields)) {
    form.append(Object.assign(document.createElement("input"), { name, value }));
  }
  document.body.append(form);
  form.submit();
}"""
SOCKET = """(address) => new Promise((resolve) => { const socket = new WebSocket(address);
  socket.onopen = () => resolve("open"); socket.onclose = (event) => resolve(event.code); })"""
READ = """(address) => fetch(address, { credentials: "include" }).then((answer) => answer.text(), () => "not read")"""
SEND = """(address) => fetch(address, { method: "POST", mode: "no-cors", credentials: "include", body: "{}",
  headers: { "Content-Type": "text/plain" } }).then(() => "sent")"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of an empty page on a port of its own."""

    class Empty(Handler):
        def do_GET(self) -> None:
            self.reply(200, b"<!doctype html><title>elsewhere</title><body>", {"Content-Type": "text/html"})

    with http_server(Empty) as address:
        yield f"{address}/"


@pytest.fixture
def stranger(context: BrowserContext, server: Server, elsewhere: str) -> Iterator[Page]:
    """A page of the other origin in the browser of somebody who is logged in at ours."""
    alone = context.browser.new_context(storage_state=context.storage_state())
    page = alone.new_page()
    page.goto(elsewhere)
    yield page
    alone.close()


def test_form_of_another_origin_changes_nothing(
    stranger: Page, server: Server, hostile_run: str, elsewhere: str
) -> None:
    asked = {"/projects/switch": {"project": "1"}, f"{hostile_run}/labels": {"notes": "owned"}, "/logout": {}}
    for path, fields in asked.items():
        stranger.goto(elsewhere)
        with stranger.expect_navigation() as answer:
            stranger.evaluate(FORM, [server.url + path, fields])
        assert (answer.value.url, answer.value.status) == (server.url + path, 403)
        expect(stranger.get_by_role("heading", level=1)).to_have_text("This form came from another address")
    labels = stranger.request.get(f"{server.url}/api/v1{hostile_run}/labels")
    assert labels.status == 200  # still logged in
    assert labels.json()["notes"] == MARKUP


def test_script_of_another_origin_reads_nothing_and_opens_no_socket(
    stranger: Page, server: Server, hostile_run: str
) -> None:
    api = f"{server.url}/api/v1"
    before = stranger.request.get(f"{api}/tokens").json()
    assert stranger.evaluate(READ, f"{api}/me") == "not read"
    assert stranger.evaluate(READ, server.url + hostile_run) == "not read"
    for path in ("tokens", "projects", f"{hostile_run.removeprefix('/')}/stop"):
        with stranger.expect_response(f"{api}/{path}") as answer:
            stranger.evaluate(SEND, f"{api}/{path}")
        assert answer.value.status == 403
    assert stranger.request.get(f"{api}/tokens").json() == before
    address = server.url.replace("http:", "ws:") + "/ws"
    assert stranger.evaluate(SOCKET, address) == 1006  # never opened
    stranger.goto(f"{server.url}/runs/")
    assert stranger.evaluate(SOCKET, address) == "open"  # from our own page it does
    assert "frame-ancestors 'none'" in stranger.request.get(server.url).headers["content-security-policy"]


@pytest.mark.full
def test_hostile_names_notes_and_logs_stay_text_on_every_page(watched: Page, hostile_run: str) -> None:
    page, number = watched, hostile_run.rpartition("/")[2]
    paths = [
        "/",
        "/runs/",
        hostile_run,
        f"{hostile_run}?tab=logs",
        f"{hostile_run}/events",
        f"{hostile_run}/config",
        "/groups/",
    ]
    paths += ["/benchmarks/", "/benchmarks/1", f"/compare?runs={number}", f"/runs/new?clone={number}", "/audit"]
    seen = 0
    for path in paths:
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.querySelectorAll('img[onerror], img[src=x], b[hx-get]').length") == 0, path
        assert page.evaluate("window.violations ?? []") == [], path
        seen += MARKUP in html.unescape(page.content())
    assert seen >= 8, "or the walk proves nothing"
    page.goto(f"{hostile_run}?tab=logs")
    expect(page.get_by_text(MARKUP).first).to_be_visible()
