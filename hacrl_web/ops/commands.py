"""How the product's processes are started: the same words for `up` and for a container. Standard library only."""

from __future__ import annotations

import os
import sys

ROLES = ("web", "worker", "dispatcher", "watcher")


def command(role: str, host: str = "0.0.0.0", port: int = 8000) -> list[str]:  # noqa: S104 - containers; `up` names its host
    """The command line of one process. host, port: where the web listens."""
    words = {
        "web": _web(host, port),
        "worker": [
            *("-m", "celery", "-A", "hacrl_web.celery", "worker", "--pool", "prefork", "-c", "1"),
            *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
        ],
        "dispatcher": ["manage.py", "dispatch"],
        "watcher": ["manage.py", "watch"],
    }
    return [sys.executable, *words[role]]


def _web(host: str, port: int) -> list[str]:
    # X-Forwarded-For from anybody would dodge the login throttle: it counts from the proxies that are named only.
    proxies = os.environ.get("HACRL_PROXY_ADDRESSES", "").replace(" ", "")
    forwarded = ("--proxy-headers", "--forwarded-allow-ips", proxies) if proxies else ("--no-proxy-headers",)
    return [
        *("-m", "uvicorn", "hacrl_web.asgi:application", "--host", host, "--port", str(port), *forwarded),
        *("--lifespan", "off", "--no-server-header", "--timeout-graceful-shutdown", "3", "--ws-max-size", "65536"),
    ]
