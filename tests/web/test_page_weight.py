"""What the most visited pages make a browser load: scripts and styles, ours and the libraries', but for Plotly."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from django.conf import settings
from django.contrib.staticfiles.finders import find

from tests.support.web.factories import make_run, metrics
from tests.web.client.test_client import stored

pytestmark = pytest.mark.django_db
LIMIT = 350_000  # bytes
ROOT = "/" + settings.STATIC_URL.lstrip("/")
NAMED = re.compile(r"""<script\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*\brel="stylesheet"[^>]*\bhref="([^"]+)\"""")
IMPORTED = re.compile(r"""^(?:import|export)\b[^;]*?["'](\.[^"']+)["'];""", re.MULTILINE)


def loaded(page: str) -> dict[str, int]:
    """Bytes of each file that a page names, and of those that its modules import. What a click loads is not among."""
    waiting = ["".join(found) for found in NAMED.findall(page)]
    sizes: dict[str, int] = {}
    while waiting:
        address = waiting.pop()
        if address in sizes:
            continue
        path = find(address.removeprefix(ROOT))
        assert path, address
        sizes[address] = Path(path).stat().st_size
        if address.endswith((".js", ".mjs")) and "plotly" not in address:
            waiting += [urljoin(address, name) for name in IMPORTED.findall(Path(path).read_text())]
    return sizes


def test_home_run_and_leaderboard_are_light(web, user):
    if not (settings.BASE_DIR / "frontend" / "static" / "vendor" / "uplot").exists():
        pytest.skip("the browser libraries are missing: ./hacrl up installs them (npm ci)")
    run = stored(make_run(user), *[metrics(step, x=1.0) for step in range(3)])
    board = f"/leaderboard/board?group={run.group_id}&benchmark={run.benchmark_id}"
    for path in ("/", "/runs/", "/runs/?tab=compare", run.get_absolute_url(), "/leaderboard/", board):
        sizes = loaded(web.get(path).content.decode())
        light = {name: size for name, size in sizes.items() if "plotly" not in name.rpartition("/")[2]}
        ours = sum(size for name, size in light.items() if "/vendor/" not in name and "htmx" not in name)
        print(f"{path.partition('?')[0][:12]:12} {len(light)} files, {sum(light.values())} bytes, of these ours {ours}")
        assert f"{ROOT}css/site.css" in light
        assert f"{ROOT}js/lib/frame.js" in light
        assert not [name for name in light if "katex" in name], "formulas are drawn where somebody asks for them"
        assert sum(light.values()) < LIMIT, (path, light)
