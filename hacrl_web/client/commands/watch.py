"""Commands that follow a run: its metrics as a live table with sparklines, and its log."""

from __future__ import annotations

import json as json_module
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hacrl_web.client.api import PATIENCE_S, TERMINAL, Client, metric_values
from hacrl_web.client.command import RUN_FAILED, AsJson, RunName, client_command, connect, run_id
from hacrl_web.client.show import complain, console, format_number, line, print_json, safe, sparkline, state
from workers.contract import number_format

METRICS = ("reward/mean", "capability", "completions/mean_length")
POINTS = 200
LINES = 5
REFRESHES_PER_S = 4


@dataclass
class RunScreen:
    """The state of a run, as of the last frame, and how it is drawn."""

    name: str
    status: dict[str, Any] = field(default_factory=dict)
    points: dict[tuple[str, str], deque[float | None]] = field(default_factory=dict)
    log_lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))

    def add(self, frame: dict[str, Any]) -> None:
        self.status = frame["status"]
        for event in frame["events"]:
            body = event["payload"]
            if event["type"] == "metrics" and not event["source"]:
                for name, value in metric_values(event).items():
                    self.points.setdefault((event["agent"], name), deque(maxlen=POINTS)).append(value)
            elif event["type"] == "log":
                self.log_lines.append(str(body.get("message", "")))

    @property
    def phase(self) -> str:
        """What a starting run waits for; else empty."""
        return str(self.status.get("reason") or "") if self.status.get("state") == "starting" else ""

    def render(self, metrics: tuple[str, ...]) -> Group:
        status = self.status
        progress = status.get("progress") or {}
        eta = progress.get("eta_s")
        head = Text.assemble(safe(self.name), "  ", state(status.get("state", "")))
        head.append(f"  {safe(self.phase)}")
        head.append(f"  step {format_number(status.get('step'))} of {format_number(status.get('total_steps'))}")
        head.append(f"  {number_format.format_duration(eta)} left" if isinstance(eta, int | float) else "")
        grid = Table("agent", "metric", "now", "", box=None, pad_edge=False, header_style="bold")
        for (agent, name), values in sorted(self.points.items()):
            if name in metrics:
                grid.add_row(safe(agent), safe(name), format_number(values[-1], name), sparkline(values))
        numbers = grid if grid.row_count else Text("No numbers yet.", style="bright_black")
        return Group(head, numbers, *(Text(str(safe(text))[:200], style="bright_black") for text in self.log_lines))


@client_command
def watch(
    run: RunName,
    metric: Annotated[list[str] | None, typer.Option(help="Which numbers. Repeat it.")] = None,
    json: AsJson = False,
) -> None:
    """Show a run until it has ended. With --json each event as a line. Exit status 6 where it did not complete.

    Example: hacrl watch swan --metric reward/mean
    """
    with connect() as client:
        watch_run(client, run_id(client, run), tuple(metric or METRICS), json=json)


def watch_run(client: Client, run: str, metrics: tuple[str, ...] = METRICS, *, json: bool = False) -> None:
    """Errors: ApiError, Unreachable; typer.Exit where the run has failed or was stopped."""
    if json:
        for event in client.follow(run, on_outage=_report_outage):
            print(json_module.dumps(event), flush=True)
        final = client.get(f"/runs/{run}")["state"]
    else:
        screen = RunScreen(client.get(f"/runs/{run}")["name"])
        final = _follow(client.frames(run, on_outage=_report_outage), screen, metrics)
    if final != "completed":
        raise typer.Exit(RUN_FAILED)


def _follow(frames: Iterator[dict[str, Any]], screen: RunScreen, metrics: tuple[str, ...]) -> str:
    """Draw a live table in a terminal; elsewhere print a line for each step, then the table. Returns the last state."""
    if sys.stdout.isatty():
        with Live(console=console(), refresh_per_second=REFRESHES_PER_S) as live:
            for frame in frames:
                screen.add(frame)
                live.update(screen.render(metrics))
    else:
        last_line = ""
        for frame in frames:
            screen.add(frame)
            steps = f"step {screen.status['step']} of {screen.status['total_steps']}"
            text = f"{screen.status['state']}: {screen.phase or steps}"
            if text != last_line:
                line(text)
            last_line = text
        console().print(screen.render(metrics))
    if screen.status.get("state") in TERMINAL and screen.status.get("reason"):
        line(screen.status["reason"])
    return str(screen.status.get("state"))


def _report_outage(error: Exception) -> None:
    complain(f"hacrl: {error}\nhacrl: Trying again for {PATIENCE_S:.0f} s; no event is lost.")


@client_command
def logs(
    run: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run has ended.")] = False,
    search: Annotated[str, typer.Option("--search", "-s", help="Only lines that hold this.")] = "",
    level: Annotated[str, typer.Option(help="info, warning or error.")] = "",
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, help="How many of the newest lines first.")] = 100,
    json: AsJson = False,
) -> None:
    """The log of a run.

    Example: hacrl logs swan -f --search checkpoint
    """
    with connect() as client:
        name = run_id(client, run)
        filters: dict[str, Any] = {"q": search or None, "level": level or None}
        cursor = client.get(f"/runs/{name}")["last_seq"]
        newest = list(client.pages(f"/runs/{name}/log", most=tail, order="newest", **filters)) if tail else []
        ends = _attempt_ends(client, name)
        # Each attempt's lines, then how it ended.
        lines = sorted([*newest[::-1], *(ends if tail else ())], key=lambda one: one["attempt"])[-tail:]
        lines = [one for one in lines if _matches(one, search, level)]
        if json and not follow:
            return print_json(lines)
        for one in lines:
            _print_line(one, json)
        if follow:
            newest_seq = max([cursor, *(one["seq"] for one in newest)])
            for event in client.follow(name, newest_seq, on_outage=_report_outage):
                one = _log_line(event)
                if one and _matches(one, search, level):
                    _print_line(one, json)
            for one in _attempt_ends(client, name)[len(ends) :]:
                if _matches(one, search, level):
                    _print_line(one, json)
    return None


def _attempt_ends(client: Client, name: str) -> list[dict[str, Any]]:
    """Lines on how the attempts of a run ended: a trainer that was killed logged nothing."""
    return [{"seq": None} | end for end in client.get(f"/runs/{name}/history", up_to=0)["ends"]]


def _matches(one: dict[str, Any], search: str, level: str) -> bool:
    return search.lower() in one["text"].lower() and level in ("", one["level"])


def _log_line(event: dict[str, Any]) -> dict[str, Any] | None:
    if event["type"] != "log":
        return None
    body, at = event["payload"], datetime.fromtimestamp(event["time"], UTC)
    names = {"seq": event["seq"], "attempt": event["attempt"], "at": at.isoformat(timespec="milliseconds")}
    return names | {"level": body.get("level", "info"), "text": str(body.get("message", ""))}


def _print_line(one: dict[str, Any], json: bool) -> None:
    if json:
        print(json_module.dumps(one), flush=True)
    else:
        at = datetime.fromisoformat(one["at"]).astimezone(UTC)  # the server writes one kind of line with `Z`
        line(f"{at:%Y-%m-%d %H:%M:%S}Z {one['level']:7} {one['text']}")
