"""A real `up` (Redis, web, worker, dispatcher, trainer) over its own data folder, and a logged-in Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.faults.world import World

ROOT = Path(__file__).resolve().parents[2]
START_S = 120
PATIENCE_MS = 60_000  # of what a page does: a loaded machine is no failure
OFFLINE = "ERR_INTERNET_DISCONNECTED"
BROWSERS = ("chromium-headless-shell", "/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome")
# No sandbox: the tests also run as root in containers. The first keep Chromium from drawing as a GPU would, which takes
# most of its time (Debian's script `chromium` asks for that, so its binary comes first); the rest from asking its
# maker's hosts.
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-compositing",
    "--disable-gpu-rasterization",
    "--disable-software-rasterizer",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Server:
    """A running product."""

    url: str
    login_path: str
    data: Path
    maker: subprocess.Popen[str]  # tests/support/browser/maker.py

    def make(self, *words: str) -> str:
        """What a module and its arguments print that put something into the product's database."""
        assert self.maker.stdin is not None
        assert self.maker.stdout is not None
        print(json.dumps(words), file=self.maker.stdin, flush=True)
        made = json.loads(self.maker.stdout.readline() or "null")
        assert made is not None, f"{words}: {(self.data / 'maker.err').read_text()[-2000:]}"
        return str(made)

    def generated_run(self, *options: str) -> str:
        """The path of the last run that `tools.generated_runs` makes."""
        return re.findall(r"/runs/[0-9a-f-]{36}", self.make("tools.generated_runs", *options))[-1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
    # Two products and their monitor take a fifth of a processor: the second one starts when the first tests are over.
    items.sort(key=lambda item: "shared_world" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`up` on a free port; ended with TERM."""
    data = tmp_path_factory.mktemp("data")
    environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")}
    environment |= {"HACRL_DATA": str(data), "OMP_NUM_THREADS": "1", "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}

    def start(*words: str, errors: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with open(data / errors, "w") as file:
            return subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, env=environment, stderr=file, **pipes)

    process = start("hacrl_web.ops.up", "up", "--port", "0", errors="up.err")
    watchdog = threading.Timer(START_S, process.kill)
    watchdog.start()
    try:
        found = None
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"(http://[^/\s]+)(/login/\S+)", line):
                break
        watchdog.cancel()
        assert found, f"`up` did not come up: {(data / 'up.err').read_text()[-3000:]}"
        with start("tests.support.browser.maker", errors="maker.err") as maker:
            yield Server(found[1], found[2], data, maker)
    finally:
        watchdog.cancel()
        process.terminate()
        with process:
            process.wait(timeout=60)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Closed before other tests run: with Playwright's event loop in their thread, Django would refuse each query."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        message = "no Chromium: apt-get install chromium-headless-shell"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """A logged-in browser that fails the test as soon as a page asks another host for anything."""
    opened = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900})
    opened.set_default_timeout(PATIENCE_MS)
    asked_elsewhere: list[str] = []
    opened.on(
        "request", lambda r: None if r.url.startswith((server.url, "data:", "blob:")) else asked_elsewhere.append(r.url)
    )
    page = opened.new_page()
    page.goto(server.login_path)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile(re.escape(server.url) + r"/?$"))
    page.close()
    yield opened
    opened.close()
    assert asked_elsewhere == [], f"pages asked other hosts: {asked_elsewhere[:5]}"


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page whose scripts may not fail."""
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda m: problems.append(m.text) if m.type == "error" and "status of 4" not in m.text else None,
    )
    yield opened
    opened.close()
    if any(OFFLINE in problem for problem in problems):  # the test took the network away, and htmx says what it missed
        problems = [problem for problem in problems if OFFLINE not in problem and not problem.startswith("htmx:")]
    assert problems == [], f"errors in the page: {problems[:5]}"


@pytest.fixture
def clock_page(browser: Browser, context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page with a clock that the test moves, in a context of its own: it replaces `performance` of all its pages."""
    state = context.storage_state()
    opened = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900}, storage_state=state)
    opened.set_default_timeout(PATIENCE_MS)
    opened.clock.install()
    yield opened.new_page()
    opened.close()


@pytest.fixture(scope="package")
def registered(context: BrowserContext, server: Server) -> Path:
    """Two tiny models, their group and a benchmark. Returns the folder of the models and of the questions."""
    folder = server.data / "models"
    server.make("tests.support.browser.registered", str(folder))
    return folder


@pytest.fixture(scope="package")
def runs(context: BrowserContext, server: Server) -> dict[str, Any]:
    """Ids of completed runs with numbers of a known shape: tests.support.browser.made_runs."""
    return dict(json.loads(server.make("tests.support.browser.made_runs").splitlines()[-1]))


@pytest.fixture(scope="package")
def hostile_run(context: BrowserContext, server: Server) -> str:
    """The path of a run whose texts are markup and scripts."""
    return f"/runs/{server.make('tests.support.browser.hostile_run').strip()}"


@pytest.fixture(scope="package")
def boards(context: BrowserContext, server: Server) -> dict[str, str]:
    """The paths of boards by name: tests.support.browser.made_sweeps."""
    return dict(json.loads(server.make("tests.support.browser.made_sweeps").splitlines()[-1]))


@pytest.fixture(scope="package")
def shared_world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """A product with fake trainers, in which no run of an earlier test is left in the queue."""
    yield shared_world
    shared_world.end_all()


@pytest.fixture
def world_page(browser: Browser, world: World) -> Iterator[Page]:
    """A page of that product, logged in, whose scripts may not fail."""
    context = browser.new_context(base_url=world.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([{"name": "hacrl_session", "value": world.keys["session"], "url": world.url}])
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    context.close()
    assert problems == [], f"errors in the page: {problems[:5]}"
