"""Entry point of the containers: `python -m hacrl_web.container web | worker | dispatcher | watcher`, or `health ROLE`.

Checks the settings, waits for the database (the web migrates it), and replaces itself by the process of the role, which
then receives the signals and sets the exit status. No shell is involved.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from hacrl_web.ops.preflight import ROLES, ROOT, command, data_folder
from hacrl_web.ops.variables import read_number

WAIT_S = 120.0  # for the database to start, or for the web to migrate it
LIVENESS_S = 60.0  # a dispatcher or watcher without a round for this long hangs
UPLOADS = "tmp"  # of the data folder
PORT = read_number("HACRL_PORT", 8000, least=1)
USAGE = f"usage: python -m hacrl_web.container {{{','.join(ROLES)}}} | health {{{','.join(ROLES)}}}"


def make_home_folder() -> str:
    """The problem; empty if there is one. A new volume of Kubernetes is empty, unlike one of a container engine."""
    try:
        Path.home().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"{Path.home()} cannot be created ({error.strerror}): let user {os.getuid()} write to the data volume."
    return ""


def make_upload_folder() -> str:
    """Makes an empty folder for bodies of requests: a bundle has 4 GiB, and /tmp is small. The problem; else empty."""
    folder = data_folder() / UPLOADS
    try:
        if folder.exists():
            shutil.rmtree(folder)  # uploads that a process before this one did not finish
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        return f"{folder} cannot be made anew ({error.strerror}): let user {os.getuid()} write to the data volume."
    os.environ["TMPDIR"] = str(folder)
    return ""


def prepare_container(role: str) -> int:
    """Exit status: 0 if the process may start; else the problem has been printed."""
    if problem := make_home_folder() or (make_upload_folder() if role == "web" else ""):
        print(problem, file=sys.stderr)
        return 1
    checks = subprocess.run([sys.executable, "manage.py", "check", "--deploy", "--fail-level", "ERROR"], cwd=ROOT)
    if checks.returncode:
        return checks.returncode
    follow = [] if role == "web" else ["--follow"]
    words = ["manage.py", "prepare_database", "--wait-s", str(WAIT_S), *follow]
    return subprocess.run([sys.executable, *words], cwd=ROOT).returncode


def health(role: str) -> str:
    """The problem of the process in this container; empty if it is healthy."""
    return {"web": web_health, "worker": worker_health}.get(role, liveness_health)()


def web_health() -> str:
    """Requests the login page as the proxy does: with an allowed host name and the header about TLS."""
    host = os.environ.get("HACRL_ALLOWED_HOSTS", "").partition(",")[0].lstrip(".") or "localhost"
    headers = {"Host": host} | ({"X-Forwarded-Proto": "https"} if os.environ.get("HACRL_TLS_PROXY") == "1" else {})
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/login", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - http, as above
            return "" if answer.status == 200 else f"the login page answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"the login page answers {error.code}"
    except OSError as error:
        return f"the web does not answer: {error}"


def worker_health() -> str:
    """Checks the heartbeat of the worker's main process."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
    django.setup()
    from hacrl_web.runs.models import Host
    from hacrl_web.runs.worker.hosts import host_name

    host = Host.objects.with_now().filter(name=host_name()).first()
    if host is None or host.silent_s is None:
        return f"host {host_name()} has written no heartbeat"
    return f"no heartbeat for {host.silent_s:.0f} s" if host.is_silent else ""


def liveness_health() -> str:
    """Checks the file that the dispatcher and the watcher touch in each round."""
    path = Path(os.environ.get("HACRL_PULSE_FILE", ""))
    try:
        age = time.time() - path.stat().st_mtime
    except OSError as error:
        return f"HACRL_PULSE_FILE={path} cannot be read: {error.strerror}"
    return f"no round for {age:.0f} s" if age > LIVENESS_S else ""


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "health" and arguments[1] in ROLES:
        problem = health(arguments[1])
        if problem:
            print(problem, file=sys.stderr)
        return 1 if problem else 0
    if len(arguments) != 1 or arguments[0] not in ROLES:
        print(USAGE, file=sys.stderr)
        return 2
    role = arguments[0]
    if status := prepare_container(role):
        return status
    os.chdir(ROOT)
    words = command(role, "0.0.0.0", PORT)  # noqa: S104 - of the container's own network
    os.execv(words[0], words)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
