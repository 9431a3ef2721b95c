"""schemathesis generates requests from the API's description: no 500, and one error body."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hacrl_web.accounts.models import ApiToken, User
from hacrl_web.accounts.tokens.service import make_token
from hacrl_web.registry.base.children import HUB_ACCOUNT, IMPORTER, INSPECTOR, VERIFIER, ChildResult
from tests.support.web.factories import make_run, make_user, metrics
from tests.web.client.test_client import stored

EXAMPLES = int(os.environ.get("HACRL_FUZZ_EXAMPLES") or 25)  # of each operation
DESCRIPTION = "/api/v1/openapi.json"
REFUSALS = (401, 404, 405)  # to a visitor: ninja looks for the operation before it looks for the login
PHASES = (Phase.explicit, Phase.generate)  # a failure is told as it is: making it smaller takes minutes


@pytest.fixture
def without_children(monkeypatch):
    """No child processes: what they say of odd requests is tested where they are started."""
    nothing = ChildResult(b"", 1, False)
    monkeypatch.setattr("hacrl_web.insight.checkpoints.ask_agents.run_child", lambda *_, **__: nothing)
    for program in (INSPECTOR, VERIFIER, IMPORTER, HUB_ACCOUNT):
        monkeypatch.setattr(program, "run", lambda *_: nothing)


@pytest.fixture
def same_connection():
    """Requests do not close the connection that holds the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.django_db
@pytest.mark.parametrize("role", ["visitor", "member", "staff"])
def test_whatever_fits_the_description_or_does_not_gets_a_proper_answer(without_children, same_connection, role):
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install schemathesis")
    owner = make_user(is_staff=role == "staff")
    run = stored(make_run(owner), *[metrics(step, x=1.0) for step in range(3)])
    headers = {"Authorization": f"Bearer {make_token(owner, name='fuzz', scopes=['read', 'write'], days=1)[1]}"}
    schema = schemathesis.openapi.from_wsgi(DESCRIPTION, get_wsgi_application(), headers=headers)
    known = {"run_id": str(run.pk), "project_id": run.project.pk, "pk": run.group.pk}
    sent = {} if role == "visitor" else headers
    counts: Counter[int] = Counter()
    began = time.monotonic()

    def check(case: Any, is_known: bool) -> None:
        # Half of them are asked of objects that there are, or all would end at 404.
        if is_known:
            own = {"pk": run.benchmark.pk} if "/benchmarks/" in case.path else {}
            case.path_parameters.update(
                {name: value for name, value in (known | own).items() if name in case.path_parameters}
            )
        ApiToken.objects.update(revoked_at=None)  # it may have asked for its own end
        response = case.call(headers=sent)
        told = f"{case.method} {response.request.url}: {response.status_code} {response.content[:500]!r}"
        assert response.status_code < 500, told
        counts[response.status_code] += 1
        if response.status_code >= 400:
            body = json.loads(response.content)
            assert set(body) == {"error", "errors"}, told
            assert body["error"]["message"], told
        assert User.objects.filter(is_superuser=True).count() == 0
        assert role != "visitor" or response.status_code in REFUSALS, told

    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        cases = st.one_of([operation.as_strategy(mode) for mode in schemathesis.GenerationMode])
        wanted = given(case=cases, is_known=st.booleans())
        every = list(HealthCheck)
        own = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=every, phases=PHASES)
        own(wanted(check))()
    seconds = f"{time.monotonic() - began:.0f} s"
    print(
        f"{role}: {len(operations)} operations, {counts.total()} requests in {seconds}: {dict(sorted(counts.items()))}"
    )
    assert len(operations) >= 80
