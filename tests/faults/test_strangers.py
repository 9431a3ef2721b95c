"""What a stranger, a full disk and a locked database do to the server, and to five users who read pages meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from hacrl_web.web.http_limits import HALF_SENT
from tests.faults.world import ROOT, World
from tests.support.postgres import GET_IT, binaries

pytestmark = pytest.mark.slow
PROMISED_P95_S = 0.3
LOCK_S = 62.0
ANSWER_S = 20.0  # promised of a write that waits
MAX_GROWTH = 64 * 2**20  # of the web's memory


def stranger(world: World, kind: str, seconds: float, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.strangers", kind, str(world.port), str(seconds), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


@dataclass
class Watch:
    """Five readers and the web's memory: calm at first, then during each attack."""

    world: World
    run: str
    seconds: float
    figures: dict[str, str] = field(default_factory=dict)
    calm_s: float = 0.0

    def p95(self, what: str, attack: Callable[[], Any] = lambda: None) -> Any:
        """What the attack returns; it is over before the readers are, or about then."""
        paths = ("/", "/runs/", f"/runs/{self.run}")
        reading = stranger(self.world, "readers", self.seconds, ",".join(self.world.keys["readers"]), ",".join(paths))
        web = psutil.Process(self.world.pid("web"))
        before = most = web.memory_info().rss
        over = threading.Event()

        def look() -> None:
            nonlocal most
            while not over.wait(0.1):
                most = max(most, web.memory_info().rss)

        looks = threading.Thread(target=look)
        looks.start()
        try:
            result = attack()
            read = told(reading)
        finally:
            over.set()
            looks.join()
            reading.kill()
        assert read["failed"] == [], what
        p95 = statistics.quantiles([seconds for _, seconds in read["times"]], n=20)[-1]
        slowest = max(read["times"], key=lambda one: one[1])
        self.calm_s = self.calm_s or p95
        load = os.getloadavg()[0]
        memory = f"memory {before / 2**20:.0f} MiB, at most {most / 2**20:.0f}"
        self.figures[what] = f"p95 {1000 * p95:.0f} ms of {len(read['times'])} pages, {memory}, load {load:.1f}"
        self.figures[what] += f", slowest {slowest[0]} with {1000 * slowest[1]:.0f} ms"
        print(f"{self.world.kind}, {what}: {self.figures[what]}")
        assert p95 < max(PROMISED_P95_S, 3 * self.calm_s), self.figures
        assert most - before < MAX_GROWTH, self.figures
        return result


def watch_of(world: World, seconds: float) -> Watch:
    run_id = world.launch("complete", steps=3)
    world.until_state(run_id, "completed")
    watch = Watch(world, str(run_id), seconds)
    watch.p95("warming up")
    watch.calm_s = 0.0
    watch.p95("no attack")
    return watch


def endless_header(watch: Watch) -> None:
    attack = stranger(watch.world, "endless", watch.seconds)
    answer = watch.p95("endless header", lambda: told(attack))
    assert set(answer["answers"]) <= {"HTTP/1.1 431 Request Header Fields Too Large", "reset"}
    assert any("431" in line for line in answer["answers"])
    assert answer["sent"] < 2**24, "what the kernel's buffers hold"


def half_sent_requests(watch: Watch, *, until_all_end: bool) -> None:
    attack = stranger(watch.world, "half", 60 if until_all_end else watch.seconds)
    time.sleep(1.5)
    web = psutil.Process(watch.world.pid("web"))
    most = 0

    def wait() -> dict[str, Any]:
        nonlocal most
        while attack.poll() is None:
            most = max(most, len(web.net_connections("tcp")))
            time.sleep(0.3)
        return told(attack)

    answer = watch.p95("1,000 half-sent requests", wait)
    assert set(answer["answers"]) <= {"HTTP/1.1 408 Request Timeout", "closed"}
    assert len(answer["answers"]) >= 1000 - HALF_SENT
    assert sum("408" in line for line in answer["answers"]) >= 0.9 * len(answer["answers"])
    assert answer["open"] == 0 or not until_all_end
    assert most < HALF_SENT + 50, "connections open at once"


@contextlib.contextmanager
def lock(world: World) -> Iterator[None]:
    """No writer of runs gets through."""
    if world.kind == "sqlite":
        with world.locked_database():
            yield
        return
    import psycopg

    with psycopg.connect(world.database.url) as connection:
        connection.execute("LOCK TABLE runs_run IN EXCLUSIVE MODE")
        yield
        connection.rollback()


def locked_database(watch: Watch, seconds: float) -> None:
    def write() -> list[tuple[int, float]]:
        began, answers = time.monotonic(), []
        with lock(watch.world):
            while not answers or time.monotonic() - began < seconds - ANSWER_S:
                answer = watch.world.ask(f"/api/v1/runs/{watch.run}/archive", {})
                answers.append((answer.status, answer.seconds))
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        return answers

    answers = watch.p95(f"database locked for {seconds:.0f} s", write)
    print(f"{watch.world.kind}, writes: {', '.join(f'{status} after {took:.1f} s' for status, took in answers)}")
    assert {status for status, _ in answers} == {503}
    assert max(took for _, took in answers) < ANSWER_S
    assert watch.world.ask(f"/api/v1/runs/{watch.run}/archive", {}).status == 200
    assert watch.world.ask(f"/api/v1/runs/{watch.run}/unarchive", {}).status == 200


def links_at_depth(world: World) -> None:
    folder = world.data / "models" / uuid.uuid4().hex
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub" / "deep" / "x").symlink_to("/etc/passwd")
    refused = world.ask("/api/v1/models", {"kind": "local", "location": str(folder), "name": "x"})
    assert refused.status == 422
    assert "'sub/deep/x' links to a place outside the model folders" in refused.text


def upload(world: World) -> tuple[int, str]:
    """A benchmark of one question."""
    boundary, session = "x" * 30, world.keys["session"]
    fields = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="name"\r\n\r\nb{uuid.uuid4().hex[:8]}\r\n',
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="q.jsonl"\r\n\r\n'
        '{"question": "1+1", "answer": "2"}\n\r\n',
        f"--{boundary}--\r\n",
    ]
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    headers = {
        "Cookie": f"hacrl_session={session}; hacrl_csrf={'a' * 32}",
        "X-CSRFToken": "a" * 32,
        "Content-Type": f"multipart/form-data; boundary={boundary}",
    }
    connection.request("POST", "/api/v1/benchmarks", "".join(fields), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def full_disk(watch: Watch) -> None:
    world = watch.world
    filler = world.data / "filler"

    def act() -> None:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"0" * 2**16):
                pass
        time.sleep(6)  # pages look once in 5 s
        page = world.ask("/runs/")
        assert page.status == 200
        assert f"The disk of {world.data} is full: 0 B of " in page.text
        status, text = upload(world)
        assert status == 507
        assert f"The disk of {world.data} is full" in text
        launched = world.ask("/api/v1/runs", world.request("complete", 3))
        if launched.status == 507:  # SQLite has no room for the row either
            assert f"The disk of {world.data} is full" in launched.text
            return
        assert launched.status == 201
        world.runs.append(uuid.UUID(launched.body["id"]))
        time.sleep(6)
        assert world.state(world.runs[-1]) == "queued"
        assert f"The disk of {world.data} is full" in world.ask(f"/runs/{world.runs[-1]}").text

    try:
        watch.p95("full disk", act)
    finally:
        filler.unlink()
    time.sleep(6)
    assert "data-disk" not in world.ask("/runs/").text
    assert upload(world)[0] == 201
    world.until_state(world.launch("complete", steps=3), "completed")
    for run_id in world.runs:
        world.until_state(run_id, "completed")


@pytest.mark.full
def test_strangers_and_a_lock_do_not_hold_up_other_users(world: World) -> None:
    if world.kind == "postgresql":
        pytest.skip("the longer test has PostgreSQL")
    watch = watch_of(world, 3.0)
    endless_header(watch)
    half_sent_requests(watch, until_all_end=False)
    locked_database(watch, 5.0)
    links_at_depth(world)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_each_attack_at_its_full_length(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if database == "postgresql" and binaries() is None:
        pytest.skip(f"no PostgreSQL here; get it: {GET_IT}")
    monkeypatch.setenv("FAULTS_LOCK_WAIT_S", "15")  # the product's
    with World(database, disk_mib=256) as world:
        watch = watch_of(world, 20.0)
        endless_header(watch)
        half_sent_requests(watch, until_all_end=True)
        watch.seconds = LOCK_S + 2
        locked_database(watch, LOCK_S)
        watch.seconds = 20.0
        links_at_depth(world)
        if os.path.ismount(world.data):
            full_disk(watch)
        else:
            print("no file system could be mounted: the full disk is left out")
