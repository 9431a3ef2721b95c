"""What the tests of the explaining pages share: a run with stored events, and a checkpoint on disk."""

from __future__ import annotations

from typing import Any

from hacrl_web.runs.models import Run, Worker
from hacrl_web.runs.telemetry.shipper import Shipper
from hacrl_web.runs.worker.hosts import data_folder_id
from tests.support.fake_trainer import FakeAgent
from tests.support.web.factories import make_run, write_spool
from workers.contract.events import Body, Evaluation
from workers.trainer.checkpoints import save_checkpoint


def claimed(owner: Any, **changes: Any) -> Run:
    """A run that a worker of this data folder has taken."""
    run = Run.objects.claim(make_run(owner, **changes).pk, Worker("host", 1, 0.0, data_folder_id()))
    assert run is not None
    return run


def store(run: Run, *bodies: Body, attempt: int = 1) -> None:
    """Events of an attempt, by the way of spool and shipper."""
    write_spool(run.run_dir, attempt, *bodies)
    Run.objects.filter(pk=run.pk).update(attempt=attempt)
    shipper = Shipper(run.pk, run.run_dir, attempt)
    while shipper.ship().lines:
        pass


def stored(owner: Any, *bodies: Body, **changes: Any) -> Run:
    run = claimed(owner, **changes)
    store(run, *bodies)
    run.refresh_from_db()
    return run


def evaluation(step: int, agent: str, value: float) -> Evaluation:
    return Evaluation(
        step=step, agent=agent, benchmark="b", metric="accuracy", value=value, correct=int(100 * value), asked=100
    )


def add_checkpoint(run: Run, step: int, keep: int = 10) -> None:
    """A checkpoint with small files that are no model."""
    agents: list[Any] = [FakeAgent(name, 0.0) for name in run.agent_names]
    for agent in agents:
        agent.step = step
    run.run_dir.mkdir(parents=True, exist_ok=True)
    save_checkpoint(run.run_dir, step, agents, {"step": step}, keep)
