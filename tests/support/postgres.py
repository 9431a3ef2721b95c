"""A PostgreSQL server of our own for tests: made with initdb, on a unix socket in a short private folder, no port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

GET_IT = "apt-get install postgresql"


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: from PATH, else the newest that Debian keeps out of PATH."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("pg_ctl"):
        return Path(on_path).resolve().parent
    kept = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    return max(kept, key=lambda path: int(path.parent.name), default=None)


@contextlib.contextmanager
def private_postgresql(kept: Path | None = None) -> Iterator[str]:
    """Yields a DATABASE_URL; afterwards the server is stopped and its files are gone. Error: RuntimeError.

    kept: a folder in which the database stays, and is found again.
    """
    folder_of_binaries = binaries()
    if folder_of_binaries is None:
        raise RuntimeError(f"PostgreSQL's initdb is not here: {GET_IT}")
    # Short: with its file name the socket's path must stay under 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    account = _account()
    data = (kept or folder) / "data"
    is_new = not data.exists()
    if is_new:
        data.mkdir(mode=0o700, parents=True)
    for owned in (folder, data) if "user" in account else ():
        shutil.chown(owned, account["user"])

    def run(program: str, *arguments: str) -> None:
        command = [str(folder_of_binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, **account)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout[-500:]}\n{done.stderr[-1500:]}")

    try:
        if is_new:
            run("initdb", "-D", str(data), "-U", "hacrl", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=200"
        run("pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "-t", "60", "start")
        try:
            yield f"postgres://hacrl@{quote(str(folder), safe='')}/postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "fast" if kept else "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> dict[str, Any]:
    """Whom to run the server as: it refuses root, so root lends it another account."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("root needs an account named postgres or nobody to run PostgreSQL as")
