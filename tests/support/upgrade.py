"""The data folder of 26 November 2026 (tests/data/upgrade) in this version: restored, migrated, asked and resumed.

    python -m tests.support.upgrade FOLDER ask | resume RUN | algorithms

prints JSON: what every old address answers, or how interrupted runs ended. RUN: paused or killed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import logging
import os
import sqlite3
import sys
import tarfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).resolve().parents[1] / "data" / "upgrade"
PLACE = "/hacrl-upgrade-fixture/data"
TOKEN = "hacrl_jnPcdx30PFS5erm6Jx3peoGPqzsiamtA6wvcZc"
TIMINGS = ("seq", "attempt", "time", "crc", "elapsed_s", "eta_s", "phase_s", "resident_bytes", "device_peak_bytes")


def restore(folder: Path) -> None:
    """Unpack the data folder at `folder`, its old place replaced by the new one."""
    folder.mkdir(parents=True)
    with tarfile.open(FIXTURE / "files.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    for path in folder.glob("runs/*/spec.json"):
        path.write_text(path.read_text().replace(PLACE, str(folder)))
    text = gzip.decompress((FIXTURE / "database.sql.gz").read_bytes()).decode().replace(PLACE, str(folder))
    with sqlite3.connect(folder / "db.sqlite3") as database:
        database.executescript(text)


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The scalars of a JSON value by path; `#` is the length of a list."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from flat(one, f"{path}/{key}")
    elif isinstance(value, list):
        yield f"{path}/#", len(value)
        for number, one in enumerate(value):
            yield from flat(one, f"{path}/{number}")
    else:
        yield path, value


class FormValues(HTMLParser):
    """The value of each field of the forms of a page, as a browser would send it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}
        self.select = self.area = ""
        self.first: str | None = None
        self.option: list[Any] | None = None
        self.feed(text)

    def put(self, name: str, value: Any) -> None:
        if name in self.values:
            earlier = self.values[name]
            value = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        self.values[name] = value

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name, kind = values.get("name"), values.get("type")
        is_box = kind in ("checkbox", "radio")
        is_field = tag == "input" and name != "csrfmiddlewaretoken" and kind not in ("submit", "file", "range")
        if name and is_field and (not is_box or "checked" in values):
            self.put(name, values.get("value", "on" if is_box else ""))
        if tag == "select":
            self.select, self.first = name or "", None
        if tag == "option" and self.select:
            self.end_option()
            self.option = [values.get("value"), "selected" in values, ""]
        if tag == "textarea" and name:
            self.area = name
            self.put(name, "")

    def end_option(self) -> None:
        if self.option:
            value = self.option[2].strip() if self.option[0] is None else self.option[0]
            self.first = value if self.first is None else self.first
            if self.option[1]:
                self.put(self.select, value)
        self.option = None

    def handle_endtag(self, tag: str) -> None:
        if tag in ("option", "select"):
            self.end_option()
        if tag == "select":
            if self.select and self.select not in self.values and self.first is not None:
                self.put(self.select, self.first)
            self.select = ""
        if tag == "textarea":
            self.area = ""

    def handle_data(self, data: str) -> None:
        if self.option:
            self.option[2] += data
        if self.area:
            self.values[self.area] += data


def answer_of(client: Any, address: str, headers: dict[str, str]) -> dict[str, Any]:
    """What an address answers: status, type, and the values of JSON, CSV and forms."""
    answer = client.get(address, headers=headers)
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    result: dict[str, Any] = {"status": answer.status_code, "type": kind, "location": answer.headers.get("Location")}
    if kind == "application/json":
        result["values"] = dict(flat(json.loads(body)))
    elif kind == "text/csv":
        lines = list(csv.reader(io.StringIO(body.decode())))
        result["csv"] = {"header": lines[0], "rows": len(lines) - 1}
        result["values"] = {str(number): line for number, line in enumerate(lines[1:])}
    elif kind == "text/html" and address.startswith(("/runs/new", "/evaluate")) and answer.status_code == 200:
        text = body.decode()
        values = FormValues(text[text.index("<main") : text.index("</main")]).values
        result["form"] = {name: "true" if value == ["false", "true"] else value for name, value in values.items()}
    return result


def ask(folder: Path) -> list[dict[str, Any]]:
    """What every old address answers now, in the order of addresses.json."""
    from django.test import Client

    from hacrl_web.accounts.models import User

    admin = Client(SERVER_NAME="localhost")
    admin.force_login(User.objects.get(username="admin"))
    board = admin.get("/leaderboard/board.json?sweep=1").json()
    row_ids = {row["algorithm"]: row["id"] for row in board["rows"]}
    answers = []
    for one in json.loads((FIXTURE / "addresses.json").read_text()):
        address = one["address"]
        for name, row_id in row_ids.items():
            address = address.replace(f"{{row:{name}}}", row_id)
        by_token = one["as"] != "admin"
        client = Client(SERVER_NAME="localhost") if by_token else admin
        result = answer_of(client, address, {"Authorization": f"Bearer {TOKEN}"} if by_token else {})
        text = json.dumps(result).replace(str(folder), PLACE)
        for name, row_id in row_ids.items():
            text = text.replace(row_id, f"{{row:{name}}}")
        answers.append(json.loads(text))
    return answers


def resume(folder: Path, name: str) -> dict[str, Any]:
    """How an interrupted run ends that the version before the restructuring began."""
    run_id = json.loads((FIXTURE / "resumed.json").read_text())["resume"][name]
    return ends_of({name: run_id}, "step-000004", (3, 4))


def resume_algorithms(folder: Path) -> dict[str, Any]:
    """How an interrupted run of each algorithm ends."""
    twins = json.loads((FIXTURE / "algorithms.json").read_text())
    return ends_of({name: twin["run"] for name, twin in twins.items()}, "step-000006", (6,))


def ends_of(runs: dict[str, str], checkpoint_name: str, steps: tuple[int, ...]) -> dict[str, Any]:
    """By name: the run's state, its last checkpoint's checksums, its events of these steps."""
    from hacrl_web.runs.models import Run
    from hacrl_web.runs.worker.tasks import supervise

    ends = {}
    for name, run_id in runs.items():
        run = Run.objects.get(pk=run_id)
        run.request_resume("test")
        assert supervise(run.pk)
        run.refresh_from_db()
        checkpoint = run.run_dir / "checkpoints" / checkpoint_name
        ends[name] = {
            "state": [run.state, run.step, run.attempt],
            "checksums": {
                path.relative_to(checkpoint).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(checkpoint.rglob("*.safetensors"))
            },
            "events": last_events(run.run_dir / "events.jsonl", steps),
        }
    return ends


def last_events(spool: Path, steps: tuple[int, ...]) -> list[dict[str, Any]]:
    """The newest attempt's events of these steps, without timings."""
    events: dict[str, dict[str, Any]] = {}
    for line in spool.read_text().splitlines():
        event = json.loads(line)
        if event["type"] in ("metrics", "evaluation", "answers", "progress") and event["step"] in steps:
            key = json.dumps([event.get(name) for name in ("type", "step", "agent", "source", "benchmark", "first")])
            events.pop(key, None)
            events[key] = {name: value for name, value in event.items() if name not in TIMINGS}
    return list(events.values())


def main(folder: Path, verb: str, *names: str) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "hacrl_web.settings", "HACRL_DATA": str(folder), "OMP_NUM_THREADS": "1"}
    os.environ |= {"HACRL_API_READS_PER_MINUTE": "0", "DATABASE_URL": ""}
    restore(folder)
    import django

    django.setup()
    logging.disable(logging.CRITICAL)
    from hacrl_web.ops.schema import bring_up_to_date

    bring_up_to_date()
    print(json.dumps({"ask": ask, "resume": resume, "algorithms": resume_algorithms}[verb](folder, *names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
