"""Run once inside a new world: makes users with sessions, a group and a benchmark, and prints their keys as JSON."""

from __future__ import annotations

import json
from typing import Any

import django

django.setup()

from django.test import Client  # noqa: E402

from tests.support.web import factories  # noqa: E402


def prepare() -> dict[str, Any]:
    user = factories.make_user("ada", is_staff=True)  # who may drain a host
    client = Client()
    client.force_login(user)
    session = client.cookies["hacrl_session"].value
    group = factories.make_group(user)
    readers = []
    for number in range(5):
        client = Client()
        client.force_login(factories.make_member(group.project, name=f"reader {number}"))
        readers.append(client.cookies["hacrl_session"].value)
    return {
        "readers": readers,
        "session": session,
        "group": group.pk,
        "benchmark": factories.make_benchmark(user).pk,
    }


if __name__ == "__main__":
    print(json.dumps(prepare()))
