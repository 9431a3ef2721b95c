"""Numbers that no column holds and ids that are none, at every address: no object, and no error of ours."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.support.marks import in_full
from tests.support.web.addresses import (
    BODIES,
    PARAMETER,
    WRITING,
    address,
    declared,
    of_objects,
    query_of,
    routes,
    send,
    verbs_of,
)
from tests.support.web.addresses import mine as mine


def test_number_beyond_every_column_is_not_found(client, mine, request):
    client.force_login(mine.owner)
    tried = 0
    for number in (2**63,) if request.config.getoption("markexpr") else (2**31, 2**63, 10**30):
        for route in of_objects():
            kinds = {name: kind for kind, name in PARAMETER.findall(route)}
            if "int" not in kinds.values():
                continue
            for name in [name for name, kind in kinds.items() if kind == "int"]:
                path = address(route.replace(f"<int:{name}>", str(number)), mine)
                body = {"seeds": [1]} if route.endswith("/seeds") else BODIES.get(route, {})
                verbs = verbs_of(route, request, ("GET", "POST", "PUT", "DELETE"))
                sent = [client.generic(verb, path, json.dumps(body), "application/json") for verb in verbs]
                answers = {one.status_code for one in sent}
                assert 404 in answers, path  # some are read, others written
                assert answers <= {404, 405}, path
                tried += 1
    assert tried >= 30


def test_invalid_id_is_not_found(client, mine, request):
    client.force_login(mine.owner)
    tried = 0
    for odd in ("x", "%00"):
        for route in of_objects():
            kind, name = PARAMETER.findall(route)[0]
            if kind:  # the address itself does not fit, which is a 404 before anything is asked
                continue
            path = address(route.replace(f"<{name}>", odd), mine) + query_of(route)
            answers = [send(client, verb, path, route) for verb in verbs_of(route, request, (*WRITING, "GET"))]
            assert {answer.status_code for answer in answers} <= {404, 405, 422}, (path, answers)
            assert all(answer.json()["error"]["message"] for answer in answers)
            tried += len(answers)
    assert tried >= 150


ODD = ("9" * 23, str(2**63), "9" * 5000, "-" + "9" * 23, "1e400", "%00")


# In turn: each address is asked with one of them, and another at the next address.
@pytest.mark.parametrize("number", ["in turn", *in_full(*ODD)])
def test_number_in_a_query_is_never_a_server_error(client, mine, number):
    client.force_login(mine.owner)
    tried = 0
    names = ("page", "step", "sweep", "limit", "offset", "group", "benchmark", "clone", "state", "agent")
    in_turn = itertools.cycle(ODD if number == "in turn" else [number])
    for route in sorted(set(routes()) - {"readyz"}):  # which is a 503 without Redis
        # The API refuses at the first odd parameter, so there each that it knows alone; pages take what they can use.
        alone = (*declared(route), "unknown") if number == "%00" else declared(route)
        together = [[name] for name in alone] if route.startswith("api/") else [names]
        for asked in together:
            value = next(in_turn)
            answer = client.get(f"{address(route, mine)}?{'&'.join(f'{name}={value}' for name in asked)}")
            assert answer.status_code < 500, (route, asked)
            tried += 1
    assert tried >= 100


def test_sweep_out_of_range_is_refused_beside_its_field(client, mine):
    client.force_login(mine.owner)
    answer = client.get("/api/v1/runs?sweep=99999999999999999999999")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "sweep")
