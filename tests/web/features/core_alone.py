"""Run by test_features.py without any optional feature: pages, API, a launch, a bundle, a deletion."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.urls import URLResolver, get_resolver

from hacrl_web.insight.bundle.export import bundle_of
from hacrl_web.insight.bundle.importing import import_bundle
from hacrl_web.runs.archive.deletion import delete_run
from hacrl_web.runs.archive.leftover_files import remove_leftovers
from hacrl_web.runs.models import Run
from hacrl_web.runs.worker.tasks import supervise
from tests.support.web.factories import make_run

pytestmark = pytest.mark.django_db(transaction=True)
RUN = "<uuid:run_id>"


def routes(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        yield from routes(pattern.url_patterns, route) if isinstance(pattern, URLResolver) else [route]


def test_core_stands_alone(web, user, fake_trainer):
    run = make_run(user)
    assert supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.step) == ("completed", 5)
    tried = 0
    for route in routes(get_resolver().url_patterns):
        address = f"/{route}".replace(RUN, str(run.pk))
        if "<" not in address and address not in ("/logout", "/readyz"):
            answer = web.get(address)
            assert answer.status_code < 500, address
            assert answer.status_code == 200 or not address.endswith(RUN), address
            tried += answer.status_code == 200
    assert tried > 80, tried
    for tab in ("", "/collaboration", "/evaluations", "/events", "/config", "/system", "/rollouts", "/what-if"):
        assert web.get(f"/runs/{run.pk}{tab}").status_code == 200, tab
    assert not [path for path in web.get("/api/v1/openapi.json").json()["paths"] if "notes" in path or "alert" in path]
    assert web.get("/notes").status_code == web.get("/alerts/").status_code == web.get("/reports/").status_code == 404
    file = BytesIO(b"".join(bundle_of(run, checkpoints=False)))
    delete_run(user, run)
    remove_leftovers(run)
    assert import_bundle(user, file, len(file.getvalue())).run.pk == run.pk
    assert Run.objects.get().last_seq == run.last_seq
    call_command("makemigrations", "--check")
    tables = connection.introspection.table_names()
    assert not [
        name for name in tables if name.startswith(("alerts_", "mirrors_", "reports_", "sharing_", "throw_away"))
    ]
