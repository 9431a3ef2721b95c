"""The network of reward functions: none unless a function asks for it where the operator allows it, and never more."""

from __future__ import annotations

import socket

import pytest

from tests.support.judge_server import judge_server
from workers.contract.spec.reward_function import (
    NETWORK_VARIABLE,
    FunctionFile,
    FunctionFileError,
    check_new_source,
    check_source,
)
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier, RewardFunctionError

ASKS = "NETWORK = True\n"
CALL = """
import json, urllib.request
def reward(question, answer, response, **fields):
    body = json.dumps({"messages": [{"content": response}]}).encode()
    request = urllib.request.Request("ADDRESS", body, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as reply:
        return float(json.load(reply)["choices"][0]["message"]["content"])
"""
DEED = """
import os, socket
def reward(question, answer, response, **fields):
    try:
        DEED
    except OSError as error:
        return {"reward": 0, "reason": type(error).__name__}
    return {"reward": 1, "reason": "done"}
"""


def rewarded(source: str) -> tuple[float | None, str]:
    check_source(source)
    with FunctionVerifier(FunctionFile("remote", source)) as verifier:
        [verdict] = verifier.score_cases([Case("q", "a", "half", {"id": "q1"})])
    return verdict.reward, verdict.reason


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv(NETWORK_VARIABLE, "1")


@pytest.fixture
def server():
    with judge_server(lambda message: {"half": "0.5"}[message]) as one:
        yield one


def test_function_that_asks_where_it_is_allowed_reaches_an_address(server, allowed):
    assert rewarded(ASKS + CALL.replace("ADDRESS", server.address)) == (0.5, "reward 0.5")


@pytest.mark.parametrize(
    "head", ["", "NETWORK = False\n", "if True:\n    NETWORK = True\n", "NETWORK = True\nNETWORK = False\n"]
)
def test_function_that_does_not_ask_has_no_network_where_it_is_allowed(server, allowed, head):
    with pytest.raises(RewardFunctionError, match=r"URLError.*not permitted"):
        rewarded(head + CALL.replace("ADDRESS", server.address))
    assert server.requests == []


@pytest.mark.parametrize("value", ["", "0", "true", "yes"])
def test_function_that_asks_where_it_is_not_allowed_is_refused(server, monkeypatch, value):
    monkeypatch.setenv(NETWORK_VARIABLE, value)
    with pytest.raises(RewardFunctionError, match=r"'remote'.*NETWORK = True.*HACRL_REWARD_NETWORK=1"):
        rewarded(ASKS + CALL.replace("ADDRESS", server.address))
    assert server.requests == []


@pytest.mark.parametrize(
    "deed",
    [
        "socket.socket(socket.AF_UNIX)",
        "socket.socketpair()",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket().bind(('127.0.0.1', 0))",
        "socket.socket().listen()",
        "socket.create_server(('127.0.0.1', 0))",
        "os.fork()",
        "open('/etc/passwd')",
        "open('/etc/ssl/private/key.pem', 'w')",
        "open('/proc/self/environ')",
    ],
)
def test_with_the_network_everything_else_stays_fenced(allowed, deed):
    reward, reason = rewarded(ASKS + DEED.replace("DEED", deed))
    assert reward == 0, reason
    assert reason in ("PermissionError", "FileNotFoundError", "OSError"), reason


def test_both_families_of_addresses_can_be_used(allowed):
    families = "[socket.socket(family) for family in (socket.AF_INET, socket.AF_INET6)]"
    if not socket.has_ipv6:
        families = "socket.socket()"
    assert rewarded(ASKS + DEED.replace("DEED", families)) == (1, "done")


@pytest.mark.parametrize("line", ["NETWORK = 1", "NETWORK = bool(1)", "NETWORK: bool", "NETWORK = None"])
def test_request_for_the_network_is_a_plain_word(line):
    with pytest.raises(FunctionFileError, match=r"NETWORK must be True or False \(line 1\)"):
        check_new_source(f"{line}\ndef reward(question, answer, response, **fields): return 1")


def test_request_is_part_of_the_version():
    plain = FunctionFile("f", "def reward(question, answer, response, **fields): return 1\n")
    asks = FunctionFile("f", ASKS + plain.text)
    assert (plain.uses_network, asks.uses_network) == (False, True)
    assert plain.version != asks.version


@pytest.mark.parametrize("line", ["NETWORK = 'mlp'", "NETWORK = bool(1)", "NETWORK: bool"])
def test_run_with_a_function_of_an_earlier_version_goes_on_and_has_no_network(line, tmp_path, allowed):
    """The name may have had another use before it had a meaning."""
    path = tmp_path / "f.py"
    path.write_text(f"{line}\n" + DEED.replace("DEED", "socket.socket()"))
    stored = FunctionFile.read(path)
    assert not stored.uses_network
    assert rewarded(stored.text) == (0, "PermissionError")
