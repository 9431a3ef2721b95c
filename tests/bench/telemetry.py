"""How fast events go from the spool into the database and from there to browsers.

    python -m tests.bench.telemetry [--full] [--only pipeline,sockets,reader]

One event is one stored row: an agent's metrics of a step, 40 values (sockets: a log line of 120 characters). Every part
runs in processes of its own, as in production: trainer, shipper, web server, browsers. Default: about a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.postgres import GET_IT, private_postgresql

ROOT = Path(__file__).resolve().parents[2]
USERS = 6  # who share the browsers: each has a limit
Report = dict[str, Any]
NAMES = tuple(f"metric/{number}" for number in range(40))


# ---- the parts that run in processes of their own ------------------------------------------------------------------


def produce(run_dir: str, kind: str, rate: float, seconds: float) -> None:
    """A trainer that emits `rate` events a second, 100 times a second; rate 0: as fast as it can, `seconds` events."""
    from workers.contract import events, spool

    writer = spool.SpoolWriter(Path(run_dir), 1, 2**40)
    writer._quota.admits = lambda *_, **__: True  # type: ignore[method-assign] # the pipe is measured, not the limits

    def body(number: int) -> events.Body:
        if kind == "metrics":
            return events.Metrics(
                step=number, agent="A", values={name: number * 0.001 + place / 7 for place, name in enumerate(NAMES)}
            )
        return events.Log(message=f"line {number} " + "x" * 107)

    total = int(seconds) if rate == 0 else int(rate * seconds)
    began, number = time.perf_counter(), 0
    while number < total:
        due = total if rate == 0 else int((time.perf_counter() - began) * rate)
        size = min(due - number, total - number, 500)
        if size > 0:
            writer.emit(*(body(number + place) for place in range(1, size + 1)))
            number += size
        if rate:  # until the next hundredth of a second's worth is due; a late trainer does not rest
            time.sleep(max(0.0, began + number / rate + 0.01 - time.perf_counter()))
    writer.close()
    took = time.perf_counter() - began
    print(json.dumps({"events": total, "seconds": took, "rate": total / took, "cpu_rate": total / time.process_time()}))


def new_run(owner: Any = None) -> Any:
    """A claimed run that somebody could train."""
    from hacrl_web.runs.models import Run, State, Worker
    from tests.support.web.factories import make_run

    run = Run.objects.claim(make_run(owner).pk, Worker("bench", os.getpid(), 0.0, "here"))
    run.transition_to(State.RUNNING, reason="", attempt=1)
    run.run_dir.mkdir(parents=True, exist_ok=True)
    return run


def ship(run_id: str, last_seq: int) -> None:
    """The supervisor's loop over the spool until `last_seq` is stored. Lag: from the event's time to its commit."""
    from hacrl_web.runs.models import Run, TelemetryEvent
    from hacrl_web.runs.telemetry.shipper import Shipper
    from hacrl_web.runs.worker.supervisor import IDLE_S

    run = Run.objects.get(pk=run_id)
    shipper, lags, busy_s, cpu_began = Shipper(run.pk, run.run_dir, 1), [], 0.0, time.process_time()
    while shipper.last_seq < last_seq:
        began = time.perf_counter()
        batch = shipper.ship()
        busy_s += time.perf_counter() - began
        stored_at = time.time()
        lags += [stored_at - record["time"] for record in batch.records]
        if not batch.is_full:
            time.sleep(IDLE_S)
    cpu_rate = last_seq / (time.process_time() - cpu_began)
    stored = TelemetryEvent.objects.filter(run=run)
    distinct = stored.values("seq").distinct().count()
    found = {"lost": last_seq - distinct, "twice": stored.count() - distinct, "busy_s": busy_s, "cpu_rate": cpu_rate}
    print(json.dumps(found | {"lag_p50": quantile(lags, 0.5), "lag_p95": quantile(lags, 0.95), "lag_max": max(lags)}))


def watch(port: int, run_id: str, cookies: str, last_seq: int) -> None:
    """Many browsers: each keeps its cursor, counts gaps, and notes how old the oldest event of each frame is."""
    import asyncio
    import re

    from websockets.asyncio.client import connect

    head = re.compile(r'\{"op":"events","run":"[^"]*","prev":(\d+),"seq":(\d+),"events":\[')
    first_time = re.compile(r'"time":([\d.]+)')
    lags: list[tuple[float, int]] = []
    gaps = 0

    async def browse(cookie: str) -> None:
        nonlocal gaps
        cursor = 0
        origin, headers = f"http://127.0.0.1:{port}", {"Cookie": f"hacrl_session={cookie}"}
        address = f"ws://127.0.0.1:{port}/ws"
        options: dict[str, Any] = {"compression": None, "max_size": None, "open_timeout": 60, "ping_interval": None}
        async with connect(address, origin=origin, additional_headers=headers, **options) as socket:
            await socket.send(json.dumps({"op": "sub", "run": run_id, "after": 0}))
            while cursor < last_seq:
                frame = str(await asyncio.wait_for(socket.recv(), 120))
                found = head.match(frame)
                if found is None:
                    if '"synced"' in frame[:60]:
                        print("synced", flush=True)
                    continue
                gaps += int(found[1]) != cursor
                count, cursor = int(found[2]) - cursor, int(found[2])
                age = first_time.search(frame, found.end())
                assert age is not None
                lags.append((time.time() - float(age[1]), count))

    async def all_of_them() -> None:
        await asyncio.gather(*(browse(cookie) for cookie in cookies.split(",")))

    asyncio.run(all_of_them())
    flat = [lag for lag, count in lags for _ in range(max(1, count // 10))]  # weighted by events
    found = {"gaps": gaps, "frames": len(lags), "p50": quantile(flat, 0.5), "p95": quantile(flat, 0.95)}
    print(json.dumps(found | {"max": max(flat)}))


# ---- what puts them together ---------------------------------------------------------------------------------------


def quantile(numbers: Sequence[float], share: float) -> float:
    return sorted(numbers)[min(len(numbers) - 1, int(share * len(numbers)))]


def start(role: str, *arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.telemetry", "--role", role, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def beside(process: subprocess.Popen[str], producer: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The process after its end. It waits for what the producer emits, so it ends with a producer that fails."""
    while process.poll() is None:
        if producer.poll():
            process.kill()
            raise SystemExit(f"the producer failed with status {producer.returncode}")
        time.sleep(0.02)
    return process


def answer(process: subprocess.Popen[str]) -> Report:
    output, _ = process.communicate(timeout=1800)
    if process.returncode:
        raise SystemExit(f"a part of the bench failed with status {process.returncode}")
    found: Report = json.loads(output.strip().splitlines()[-1])
    return found


@contextlib.contextmanager
def product(database_url: str) -> Iterator[Path]:
    """The product's database, empty and migrated, and a data folder; this process can use its models."""
    folder = Path(tempfile.mkdtemp(prefix="hacrl-bench-"))
    os.environ |= {
        "HACRL_DATA": str(folder),
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "hacrl_web.settings",
    }
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pipeline(name: str, url: str, loads: Sequence[tuple[float, float]], backlog: int) -> list[Report]:
    """Each load (events a second, seconds) through its own run; then a full spool as fast as it goes."""
    found = []
    with product(url):
        for rate, seconds in [*loads, (0, backlog)]:
            run_id, run_dir = answer(start("new"))["run"].split(" ")
            total = int(rate * seconds) or backlog
            producer = start("produce", run_dir, "metrics", rate, seconds)
            if not rate:
                spooled = answer(producer)
            began = time.perf_counter()
            stored = answer(beside(start("ship", run_id, total), producer))
            took = time.perf_counter() - began
            spooled = answer(producer) if rate else spooled
            found.append({"database": name, "asked": rate, "events": total, "spool_rate": spooled["rate"], **stored})
            found[-1]["spool_cpu_rate"] = spooled["cpu_rate"]
            found[-1]["rate"] = total / stored["busy_s"] if not rate else total / max(took, spooled["seconds"])
            show(found[-1])
    return found


def show(row: Report) -> None:
    load = f"{row['asked']:,.0f} events/s asked" if row["asked"] else "full spool, as fast as it goes"
    lag = f"lag p50 {1e3 * row['lag_p50']:.0f} ms, p95 {1e3 * row['lag_p95']:.0f} ms; " if row["asked"] else ""
    print(
        f"{row['database']:10} {load}: emitted {row['spool_rate']:,.0f}/s, stored {row['rate']:,.0f} events/s "
        f"({40 * row['rate']:,.0f} points/s); {lag}{row['lost']} lost, {row['twice']} twice of {row['events']:,}; "
        f"per CPU-second {row['spool_cpu_rate']:,.0f} emitted, {row['cpu_rate']:,.0f} stored",
        flush=True,
    )


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Redis and one uvicorn process, as `./hacrl up` starts them; yields (port, pid of uvicorn)."""
    import socket

    redis = shutil.which("redis-server") or shutil.which("valkey-server")
    if redis is None:
        raise SystemExit("the sockets need a Redis server: apt-get install redis-server")
    (folder / "redis").mkdir(exist_ok=True)
    path = folder / "redis" / "redis.sock"
    os.environ["REDIS_URL"] = f"unix://{path}?db=0"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([redis, "--port", "0", "--unixsocket", str(path), "--save", ""], **options)  # type: ignore[call-overload]
    web = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-m", "uvicorn", "hacrl_web.asgi:application", "--port", str(port), "--lifespan", "off"],
        **options,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port, web.pid
    finally:
        for process in (web, server):
            process.kill()
            process.wait()


def never_read(port: int, run_id: str, cookie: str) -> Any:
    """A browser that subscribes and then reads nothing, with a receive buffer of 16 kB."""
    import socket

    from websockets.sync.client import connect

    tcp = socket.socket()
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    tcp.connect(("127.0.0.1", port))
    headers = {"Cookie": f"hacrl_session={cookie}"}
    origin = f"http://127.0.0.1:{port}"
    options: dict[str, Any] = {"compression": None, "max_queue": 1, "ping_interval": None, "legacy": True}
    opened = connect(f"ws://127.0.0.1:{port}/ws", sock=tcp, origin=origin, additional_headers=headers, **options)
    opened.send(json.dumps({"op": "sub", "run": run_id, "after": 0}))
    return opened


def sockets(count: int, rate: float, seconds: float, deaf: int = 0) -> None:
    """`count` browsers watch one run; `deaf` more never read. Memory: the web process before and after the stream."""
    import psutil

    with product("") as folder, web_server(folder) as (port, web_pid):
        made = answer(start("new", USERS))
        run_id, run_dir = made["run"].split(" ")
        cookies = [made["cookies"][number % USERS] for number in range(count)]
        total = int(rate * seconds)
        browsers = start("watch", port, run_id, ",".join(cookies), total)
        assert browsers.stdout is not None
        for _ in range(count):  # all are there before the first event
            browsers.stdout.readline()
        unread = [never_read(port, run_id, made["cookies"][0]) for _ in range(deaf)]
        shipper = start("ship", run_id, total)
        web = psutil.Process(web_pid)
        before = web.memory_info().rss
        producer = start("produce", run_dir, "log", rate, seconds)
        emitted, stored, seen = answer(producer), answer(shipper), answer(browsers)
        after = web.memory_info().rss
        for opened in unread:
            opened.socket.close()
    print(
        f"{count} sockets{f' + {deaf} that never reads' if deaf else ''} x {emitted['rate']:,.0f} events/s for "
        f"{seconds:g} s: emit to client p50 {1e3 * seen['p50']:.0f} ms, p95 {1e3 * seen['p95']:.0f} ms, "
        f"max {1e3 * seen['max']:.0f} ms; {seen['gaps']} gaps in {seen['frames']:,} frames; {stored['lost']} lost; "
        f"web process {before / 2**20:.0f} -> {after / 2**20:.0f} MiB",
        flush=True,
    )


def new(num_users: str = "0") -> None:
    """A run for the bench, and logins that may see it."""
    import django
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from django.test import Client

    from tests.support.web.factories import make_user

    run = new_run(make_user(f"owner-{time.time_ns()}"))
    cookies = []
    for _ in range(int(num_users)):
        client = Client()
        client.force_login(make_user(f"user-{time.time_ns()}", is_staff=True))
        cookies.append(client.cookies["hacrl_session"].value)
    print(json.dumps({"run": f"{run.pk} {run.run_dir}", "cookies": cookies, "django": django.__version__}))


def play(role: str, arguments: list[str]) -> None:
    if role in ("new", "ship"):
        import logging

        import django

        django.setup()
        logging.getLogger("hacrl_web.runs.messages.pubsub").setLevel(logging.ERROR)  # the pipeline runs without Redis
    if role == "new":
        new(*arguments)
    elif role == "produce":
        produce(arguments[0], arguments[1], float(arguments[2]), float(arguments[3]))
    elif role == "ship":
        ship(arguments[0], int(arguments[1]))
    elif role == "watch":
        watch(int(arguments[0]), arguments[1], arguments[2], int(arguments[3]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the loads of the aims: about 15 minutes")
    parser.add_argument("--only", default="pipeline,sockets,reader", help="parts, with commas between")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="one small load on SQLite, five sockets")
    options = parser.parse_args()
    if options.role:
        play(options.role[0], options.role[1:])
        return
    if options.smoke:
        pipeline("SQLite", "", [(500.0, 2.0)], 1000)
        sockets(5, 100, 2)
        return
    parts = options.only.split(",")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}")
    loads = [(5000.0, 600.0), (20_000.0, 30.0)] if options.full else [(5000.0, 8.0)]
    if "pipeline" in parts:
        pipeline("SQLite", "", loads, 200_000 if options.full else 20_000)
        try:
            with private_postgresql() as url:
                pipeline("PostgreSQL", url, loads, 200_000 if options.full else 20_000)
        except RuntimeError as error:
            print(f"PostgreSQL: left out: {error} ({GET_IT})")
    if "sockets" in parts:
        for count in (20, 100, 300) if options.full else (20, 100):
            sockets(count, 1000, 60 if options.full else 5)
    if "reader" in parts:
        sockets(5, 1000, 300 if options.full else 8, deaf=1)


if __name__ == "__main__":
    main()
