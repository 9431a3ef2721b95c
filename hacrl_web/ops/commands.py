"""The command lines of the product's processes, for `up` and for containers. Standard library only."""

from __future__ import annotations

import os
import sys

ROLES = ("web", "worker", "dispatcher", "watcher")


def command(role: str, host: str = "0.0.0.0", port: int = 8000) -> list[str]:  # noqa: S104 - for containers; `up` passes its host
    """The command line of one process. host, port: address of the web."""
    # X-Forwarded-For from any client would evade the login throttle, so only the named proxies are trusted.
    proxies = os.environ.get("HACRL_PROXY_ADDRESSES", "").replace(" ", "")
    forwarded = ("--proxy-headers", "--forwarded-allow-ips", proxies) if proxies else ("--no-proxy-headers",)
    words = {
        "web": [
            *("-m", "uvicorn", "hacrl_web.asgi:application", "--host", host, "--port", str(port), *forwarded),
            *("--lifespan", "off", "--no-server-header", "--timeout-graceful-shutdown", "3", "--ws-max-size", "65536"),
        ],
        "worker": [
            *("-m", "celery", "-A", "hacrl_web.celery", "worker", "--pool", "prefork", "-c", "1"),
            *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
        ],
        "dispatcher": ["manage.py", "dispatch"],
        "watcher": ["manage.py", "watch"],
    }
    return [sys.executable, *words[role]]
