"""What holds for every page, whoever asks: names are text, and the browser is told the content policy."""

from __future__ import annotations

from typing import Any

MARKUP = "<img src=x onerror=alert(1)>'\"&"  # a name, where names may be anything


def check_page(answer: Any, route: str) -> bool:
    """Names are text, and browsers are told the policy of every page and file. True where a hostile name is shown."""
    is_page = answer["Content-Type"].startswith("text/html")
    shown = (b"".join(answer) if answer.streaming else answer.content).decode() if is_page else ""
    assert MARKUP[:11] not in shown, route
    policy = dict(one.strip().partition(" ")[::2] for one in answer["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'", route
    allowed = {"script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "form-action": "'self'"}
    assert {name: policy[name] for name in allowed} == allowed, route
    told = [answer[name] for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy")]
    assert told == ["DENY", "nosniff", "same-origin"], route
    return "&lt;img src=x" in shown
