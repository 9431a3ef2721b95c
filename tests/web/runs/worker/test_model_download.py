"""Hub models of a run are downloaded before its trainer starts, by a process that alone has the token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hacrl_web.registry.base.children import HUB_ACCOUNT, ChildResult
from hacrl_web.registry.hub_tokens import service as hub_tokens
from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.runs.worker import supervisor
from tests.support.gated_hub import GATED, NO_ACCESS, RIGHT, gated_hub
from tests.support.web.factories import make_run
from tests.web.runs.worker.test_supervisor import during, trained

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fake_trainer")]


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Any:
    folder = tmp_path / "gated"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (folder / "consolidated.safetensors").write_bytes(b"of another library")
    with gated_hub(folder) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.address)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield made


@pytest.fixture
def environments(monkeypatch) -> list[dict[str, str]]:
    """Those of the trainers that are started."""
    seen: list[dict[str, str]] = []
    start = supervisor.start_trainer

    def noted(*arguments: Any, environment: dict[str, str], **options: Any) -> Any:
        seen.append(environment)
        return start(*arguments, environment=environment, **options)

    monkeypatch.setattr(supervisor, "start_trainer", noted)
    return seen


def gated_run(monkeypatch, token: str = "") -> Run:
    run = make_run()
    spec = run.spec | {"agents": [agent | {"model": GATED} for agent in run.spec["agents"]]}
    Run.objects.filter(pk=run.pk).update(spec=spec)
    if token:
        monkeypatch.setattr(HUB_ACCOUNT, "run", lambda *_: ChildResult(b'{"name": "ada"}', 0, False))
        hub_tokens.set_hub_token(run.project, token)
    return run


def test_starting_run_says_what_it_waits_for(hub, environments, monkeypatch):
    phases: list[str] = []
    show = supervisor.RunSupervisor._show_phase

    def noted(self: supervisor.RunSupervisor, phase: str) -> None:
        show(self, phase)
        phases.append(Run.objects.get(pk=self.run.pk).reason)

    monkeypatch.setattr(supervisor.RunSupervisor, "_show_phase", noted)
    run = gated_run(monkeypatch, RIGHT)
    assert ended(run)[0] == "completed"
    assert f"looking for {GATED} on the Hub" in phases
    # config.json has 2 bytes, model.safetensors 10
    assert phases[-2:] == [f"downloading {GATED}: 12 B of 12 B", "loading the models"]


def ended(run: Run) -> tuple[str, str]:
    trained(run)
    return run.state, run.reason


def test_project_token_downloads_the_model_and_reaches_neither_trainer_nor_run(
    hub, environments, monkeypatch, tmp_path
):
    run = gated_run(monkeypatch, RIGHT)
    assert ended(run)[0] == "completed"
    files = {path.name for path in (tmp_path / "home" / "hub" / "models--meta--gated" / "snapshots").rglob("*.*")}
    assert files == {"config.json", "model.safetensors"}
    [environment] = environments
    assert environment["HF_HUB_OFFLINE"] == "1"
    written = [path for root in (run.run_dir, tmp_path) for path in Path(root).rglob("*") if path.is_file()]
    assert {"spec.json", "events.jsonl", "trainer.log"} <= {path.name for path in written}
    stored = [str(row) for row in TelemetryEvent.objects.filter(run=run).values()] + [str(run.spec), str(environment)]
    assert any(f"downloading {GATED}" in row for row in stored)
    assert not any(RIGHT in text for text in stored)
    assert [path for path in written if RIGHT.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("token", "cause"), [("", "and put a Hub token on the"), (NO_ACCESS, "which has no access yet")]
)
def test_run_that_may_not_have_its_model_fails_with_the_page_of_the_licence(
    hub, environments, monkeypatch, token, cause
):
    state, reason = ended(gated_run(monkeypatch, token))
    assert (state, environments) == ("failed", [])
    assert f"accept its licence at {hub.address}/{GATED}" in reason
    assert cause in reason


def test_token_of_another_secret_key_fails_the_run_with_a_sentence(hub, environments, monkeypatch, settings):
    run = gated_run(monkeypatch, RIGHT)
    settings.SECRET_KEY = "another key of this installation"
    state, reason = ended(run)
    assert (state, environments) == ("failed", [])
    assert reason.endswith("the installation's secret key has changed. Set the token again.")


def test_run_can_be_stopped_while_a_silent_hub_keeps_it_waiting(hub, environments, monkeypatch):
    hub.hangs.set()
    run = gated_run(monkeypatch)

    def is_waiting() -> bool:
        return Run.objects.get(pk=run.pk).heartbeat_at is not None

    thread = during(run, is_waiting, lambda: Run.objects.filter(pk=run.pk).update(desired_state="stop"))
    state, _ = ended(run)
    thread.join()
    assert (state, environments) == ("stopped", [])
