"""The harness itself: each invariant can fail, and the proxy does what it says."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection

from hacrl_web.runs.models import RolloutSample, Run, StatusChange, TelemetryEvent
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.runs.worker.tasks import supervise, this_worker
from tests.faults.invariants import Monitor, check_run, compare
from tests.faults.proxy import Proxy
from tests.faults.records import Database, Place
from tests.support.fake_trainer import FakeTrainer
from tests.support.web.factories import make_run
from workers.contract.spec.run import RunSpec
from workers.trainer.checkpoints import FOLDER_NAME

ROOT = Path(__file__).resolve().parents[2]


def database() -> Database:
    """The tests' own, as the checker reads one."""
    known = connection.settings_dict
    if connection.vendor == "sqlite":
        return Database(Path(known["NAME"]))
    return Database(f"postgresql://{known['USER']}@{quote(known['HOST'], safe='')}/{known['NAME']}")


@pytest.fixture
def folders(settings, tmp_path: Path, transactional_db: None) -> None:
    settings.RUNS_DIR = tmp_path / "runs"
    settings.REDIS_URL = f"unix://{tmp_path}/no-redis.sock"
    settings.TRAINER_COMMAND = [sys.executable, "-m", "tests.support.fake_trainer"]


@pytest.fixture
def run(folders: None) -> Run:
    """A run whose trainer was lost after step 2 and which was completed by another: a sound world."""
    one = make_run(name="complete pace=0", checkpoint={"save_steps": 2})
    one.run_dir.mkdir(parents=True)
    for attempt, mode, steps in ((1, "silent", 2), (2, "complete", 5)):
        claimed = Run.objects.claim(one.pk, this_worker())
        assert claimed is not None
        train(claimed, mode, steps)
        Shipper(one.pk, one.run_dir, attempt).ship()
        if mode == "silent":
            claimed.requeue(reason="lost", attempt=attempt, is_interruption=True)
        else:
            claimed.transition_to("completed", reason="", attempt=attempt)
    one.refresh_from_db()
    return one


def train(run: Run, mode: str, steps: int) -> None:
    """An attempt of the fake trainer, in this process."""
    spec = RunSpec.model_validate({**run.spec, "name": f"{mode} pace=0"})
    training = spec.training.model_copy(update={"steps": steps})
    before = signal.getsignal(signal.SIGTERM)
    try:
        FakeTrainer(spec.model_copy(update={"training": training}), run.run_dir, run.attempt).run()
    finally:
        signal.signal(signal.SIGTERM, before)


def violated(run: Run, *browsers: list[Place]) -> set[str]:
    return {violation.invariant for violation in check_run(database(), run.run_dir, run.pk, browsers)}


def shown(run: Run) -> list[Place]:
    return database().places(run.pk)


def two_writers(run: Run) -> None:
    TelemetryEvent.objects.filter(run=run, seq=run.last_seq).update(attempt=1)


def lost_event(run: Run) -> None:
    TelemetryEvent.objects.get(run=run, seq=5).delete()


def doubled_event(run: Run) -> None:
    other = RolloutSample.objects.filter(run=run).last()
    assert other is not None
    TelemetryEvent.objects.create(run=run, seq=other.seq, attempt=2, type="log", payload={}, time=0)


def invented_event(run: Run) -> None:
    TelemetryEvent.objects.create(run=run, seq=run.last_seq + 1, attempt=2, type="log", payload={}, time=0)
    Run.objects.filter(pk=run.pk).update(last_seq=run.last_seq + 1)


def changed_event(run: Run) -> None:
    TelemetryEvent.objects.filter(run=run, seq=5).update(step=77)


def spool_that_forgot(run: Run) -> None:
    """The trainer's own note names an event that neither spool nor database has."""
    with open(run.run_dir / "emitted.txt", "a") as ledger:
        ledger.write(f"{run.last_seq + 1} 2 log None\n")


def second_end(run: Run) -> None:
    StatusChange.objects.create(run=run, from_state="completed", to_state="failed", attempt=2)


def left_end(run: Run) -> None:
    StatusChange.objects.create(run=run, from_state="completed", to_state="running", attempt=2)
    Run.objects.filter(pk=run.pk).update(state="running")


def unrecorded_end(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(state="failed")


def flipped_checkpoint(run: Run) -> None:
    newest = max((run.run_dir / FOLDER_NAME).glob("step-*"))
    file = next(newest.glob("agents/*/weights.bin"))
    file.write_bytes(b"?" + file.read_bytes()[1:])


def lost_checkpoint(run: Run) -> None:
    newest = max((run.run_dir / FOLDER_NAME).glob("step-*"))
    newest.rename(newest.with_name(".gone"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "invariants"),
    [
        (two_writers, {"I1", "I2"}),
        (lost_event, {"I2"}),
        (doubled_event, {"I2"}),
        (invented_event, {"I2"}),
        (changed_event, {"I2"}),
        (spool_that_forgot, {"I2"}),
        (second_end, {"I3"}),
        (left_end, {"I3"}),
        (unrecorded_end, {"I3"}),
        (flipped_checkpoint, {"I6"}),
        (lost_checkpoint, {"I6"}),
    ],
)
def test_broken_world_is_noticed_and_a_sound_one_is_not(
    run: Run, break_it: Callable[[Run], None], invariants: set[str]
) -> None:
    assert violated(run, shown(run), shown(run)) == set()
    break_it(run)
    assert violated(run) == invariants


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda log: log[:-1], "missing [4]"),
        (lambda log: [*log, log[-1]], "some twice"),
        (lambda log: [log[1], log[0], *log[2:]], "out of order"),
        (lambda log: [*log, (9, 1, "log", 4)], "not stored [9]"),
        (lambda log: [(1, 1, "log", 8), *log[1:]], "other contents"),
    ],
)
def test_browser_that_saw_something_else_is_noticed(spoil: Callable[[list[Place]], list[Place]], text: str) -> None:
    stored: list[Place] = [(1, 1, "log", 0), (2, 1, "log", 1), (4, 2, "log", 2)]
    assert compare(stored, stored) == []
    assert compare(spoil(stored), stored) == [text]


@pytest.mark.slow
def test_browser_violation_is_of_the_browser(run: Run) -> None:
    assert violated(run, shown(run), shown(run)[1:]) == {"I5"}


@pytest.fixture
def idle_trainers(tmp_path: Path) -> Iterator[Callable[[Path, str], subprocess.Popen[bytes]]]:
    """Starts processes that look like a trainer of a run directory, or like its child."""
    started = []

    def start(run_dir: Path, *arguments: str) -> subprocess.Popen[bytes]:
        code = "print(1, flush=True); import time; time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=run_dir, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_process_left_behind_is_noticed(run: Run, idle_trainers) -> None:
    left = idle_trainers(run.run_dir)
    assert violated(run) == {"I4"}
    left.kill()
    left.wait()
    assert violated(run) == set()


@pytest.mark.slow
def test_monitor_sees_two_trainers_and_an_end_that_changes(run: Run, idle_trainers) -> None:
    Run.objects.filter(pk=run.pk).update(state="running")
    monitor = Monitor(database(), [run.run_dir.parent])
    idle_trainers(run.run_dir, "--attempt", "2")
    monitor.look()
    assert monitor.violations == []
    idle_trainers(run.run_dir, "--attempt", "3")
    monitor.look()
    assert [violation.invariant for violation in monitor.violations] == ["I1"]
    Run.objects.filter(pk=run.pk).update(state="failed")
    monitor.look()
    Run.objects.filter(pk=run.pk).update(state="queued")
    monitor.look()
    assert [violation.invariant for violation in monitor.violations] == ["I1", "I4", "I3"]


# ---- the proxy ------------------------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[one], daemon=True).start()

    def answer(one: socket.socket) -> None:
        with one:
            while block := one.recv(4096):
                one.sendall(block)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    one = Proxy(("127.0.0.1", 0), ("127.0.0.1", echo))
    yield one
    one.close()


def ask(client: socket.socket, text: bytes, timeout_s: float = 5.0) -> bytes:
    client.settimeout(timeout_s)
    client.sendall(text)
    return client.recv(100)


def test_proxy_passes_pauses_delays_and_cuts(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert ask(client, b"one") == b"one"
        proxy.pause()
        time.sleep(0.05)
        with pytest.raises(TimeoutError):
            ask(client, b"two", 0.3)
        proxy.resume()
        client.settimeout(5)
        assert client.recv(100) == b"two"
        proxy.delay_s = 0.2
        started = time.monotonic()
        assert ask(client, b"three") == b"three"
        assert time.monotonic() - started >= 0.4  # there and back
        proxy.delay_s = 0.0
        proxy.cut()
        assert_closed(client)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert_closed(client)
    proxy.mend()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert ask(client, b"four") == b"four"


def assert_closed(client: socket.socket) -> None:
    client.settimeout(5)
    with contextlib.suppress(ConnectionError):
        assert client.recv(100) == b""


def test_proxy_of_a_dead_server_refuses(tmp_path: Path) -> None:
    one = Proxy(tmp_path / "in", tmp_path / "nobody")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "in"))
        assert_closed(client)
    one.close()


# ---- the fake trainer -----------------------------------------------------------------------------------------------


def test_fake_trainer_needs_no_torch() -> None:
    code = "import sys, tests.support.fake_trainer; print([n for n in ('torch', 'django') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_killed_fake_run_repeats_its_steps(folders: None) -> None:
    """It dies in step 3 and continues from step 2, with the numbers of a run that was never killed."""
    whole = make_run(name="complete", checkpoint={"save_steps": 2})
    killed = make_run(whole.owner, name="crash-once", checkpoint={"save_steps": 2})
    for one in (whole, killed, killed):
        assert supervise(one.pk)

    def numbers_of(one: Run) -> list:
        found = one.events.filter(type="metrics").order_by("step", "agent", "source")
        return list(found.values_list("step", "agent", "source", "payload"))

    assert numbers_of(killed) == numbers_of(whole)
    assert len(numbers_of(whole)) == 5 * 4
