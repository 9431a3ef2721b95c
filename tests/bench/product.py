"""What the benchmarks in a browser share: the product itself, started as users start it, and a Chromium logged in."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def environment(data: str) -> dict[str, str]:
    """This process' environment, but for the product in `data` alone."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return {**kept, "HACRL_DATA": data, "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}


@contextlib.contextmanager
def running(data: str, **variables: str) -> Iterator[tuple[str, str]]:
    """`up` over a data folder on a free port. Yields its address and the path of the one-time login."""
    command = [sys.executable, "-m", "hacrl_web.ops.up", "up", "--port", "0"]
    up = subprocess.Popen(command, cwd=ROOT, env=environment(data) | variables, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        found = next(f for line in up.stdout if (f := re.search(r"(http://[^/\s]+)(/login/\S+)", line)))
        yield found[1], found[2]
    finally:
        up.terminate()
        up.wait(timeout=60)


@contextlib.contextmanager
def generated_runs() -> Iterator[str]:
    """A data folder with a few generated runs."""
    with tempfile.TemporaryDirectory() as data:
        for command in (
            ["manage.py", "migrate", "-v0"],
            ["-m", "tools.generated_runs", "--runs", "3", "--steps", "20"],
        ):
            subprocess.run([sys.executable, *command], cwd=ROOT, env=environment(data), check=True, capture_output=True)
        yield data


@contextlib.contextmanager
def logged_in(url: str, login: str, **page_options: Any) -> Iterator[Any]:
    """A page of a Chromium without a GPU."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM_FLAGS

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(base_url=url, **page_options)
        page.goto(login)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_load_state()
        yield page
        browser.close()
