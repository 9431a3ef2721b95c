"""Processes of a service: with HACRL_LOG_FORMAT=json every line of a log is one JSON object; the web starts loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from hacrl_web.ops.preflight import ROOT

LOGGED = """
import logging, django, hacrl_web.celery
django.setup()
hacrl_web.celery.app.log.setup(loglevel="INFO")
for name in ("uvicorn.access", "celery.worker", "hacrl_web.runs"):
    logging.getLogger(name).info("hello from %s", name)
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("django.request").exception("two\\nlines")
"""


def logged(kind: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HACRL_LOG_FORMAT": kind, "DJANGO_SETTINGS_MODULE": "hacrl_web.settings"}
    command = [sys.executable, "-c", LOGGED]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_every_line_is_an_object():
    done = logged("json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    names = ["uvicorn.access", "celery.worker", "hacrl_web.runs"]
    assert [(one["level"], one["logger"], one["message"]) for one in lines[:-1]] == [
        ("INFO", name, f"hello from {name}") for name in names
    ]
    assert lines[-1]["message"] == "two\nlines"
    assert "ZeroDivisionError" in lines[-1]["exc_info"]
    assert all(one["process"] > 0 and one["time"].startswith("20") for one in lines)


PROGRAM = """
import gc, hacrl_web.asgi, sys
print(gc.get_freeze_count(), len(gc.get_objects()), "hacrl_web.api" in sys.modules)
"""


def test_full_collections_leave_out_what_the_web_process_has_loaded(tmp_path):
    environment = os.environ | {"HACRL_DATA": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    spared, visited, has_api = done.stdout.split()
    assert int(spared) > 100_000
    assert int(visited) < 1_000
    assert has_api == "True"
