"""README's script, as printed: it launches the demo's pair, says what it waits for, and the pair learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hacrl_web.client.api import ApiError, Client
from hacrl_web.runs.launch.plan import plan_of
from hacrl_web.runs.models import Run
from tests.support.web.factories import make_benchmark, make_group
from workers.contract.demo_recipe import AGENTS, BENCHMARK_NAME

README = Path(__file__).resolve().parents[3] / "README.md"


class Recorded(Client):
    """Keeps what a launch sends, and replays the frames of a run that waits, starts and learns."""

    sent: dict

    def __init__(self, *_: object) -> None:
        self.url = "http://testserver"

    def pages(self, path, /, **_):
        return iter([{"id": 7, "name": " + ".join(AGENTS.values()) if path == "/groups" else BENCHMARK_NAME}])

    def post(self, path, body=None, **_):
        type(self).sent = body
        return {"id": "r", "url": "/runs/r"}

    def frames(self, run, after=0, **_):
        yield {"status": {"state": "queued", "reason": "waits for a worker"}, "events": []}
        payload = {"metric": "accuracy", "value": 0.25}
        event = {"type": "evaluation", "step": 0, "agent": "Qwen3 100k", "payload": payload}
        yield {"status": {"state": "running", "reason": ""}, "events": [event]}


def script() -> str:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]


def test_script_launches_the_demo_s_settings_and_prints_what_it_waits_for(user, monkeypatch, capsys):
    monkeypatch.setattr("hacrl_web.client.api.Client", Recorded)
    monkeypatch.setenv("HACRL_URL", "http://testserver")
    monkeypatch.setenv("HACRL_TOKEN", "token")
    exec(compile(script(), str(README), "exec"), {})
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == ["queued: waits for a worker", "running", "step 0: Qwen3 100k answers 25% right"]
    request = Recorded.sent | {"group": make_group(user).pk, "benchmark": make_benchmark(user).pk}
    (spec,) = plan_of(user, request, Run).specs
    # The settings with which the demo's pair learns, not those of the delta trap.
    assert (spec.algorithm.delta, spec.training.learning_rate, spec.training.steps) == (0.8, 4e-4, 40)


def test_launch_takes_names_and_says_which_there_is_not():
    with pytest.raises(ApiError, match="There is no benchmark named 'sums'"):
        Recorded().launch({"group": " + ".join(AGENTS.values()), "benchmark": "sums"})
