"""What the trainer does while an agent works: it asks that agent nothing, and a stop does not wait for it."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers.ranks_in_threads import put_ranks_into_threads
from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train
from workers.agents import ahead, rank_main
from workers.agents.interface import AgentInterface, RemoteAgent
from workers.agents.local import LocalAgent
from workers.agents.multi_process import RankedAgent
from workers.agents.parallel import ParallelCalls
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.model import memory
from workers.model.loading import choose_device
from workers.questions.dataset import Question
from workers.trainer import trainer as trainer_module
from workers.trainer.scoring import VerifierFails
from workers.trainer.stop_signals import StopFlag, Stopped
from workers.trainer.trainer import Trainer

PATIENCE_S = 20.0  # of a test for what never happens if the code is wrong
APART: dict[str, Any] = {"compute": {"placement": "processes"}}


@pytest.fixture
def _threads(monkeypatch):
    put_ranks_into_threads(monkeypatch)


@pytest.fixture
def gate():
    """Opened at the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def trainer_of(spec: RunSpec, run_dir: Path, verifier: HashVerifier, stop: StopFlag) -> Trainer:
    run_dir.mkdir()
    return Trainer(spec, run_dir, SpoolWriter(run_dir, 1), verifier, stop)


def before(monkeypatch: pytest.MonkeyPatch, method: str, act: Callable[[LocalAgent, Any], None]) -> None:
    """Call `act(agent, first argument)` before each call of a method of an agent."""
    original = getattr(LocalAgent, method)

    def acted(self: LocalAgent, *arguments: Any, **options: Any) -> Any:
        act(self, arguments[0])
        return original(self, *arguments, **options)

    monkeypatch.setattr(LocalAgent, method, acted)


# One call at a time


def test_remote_agent_has_the_methods_of_the_interface_and_no_others():
    names = [name for name, _ in inspect.getmembers(AgentInterface, inspect.isfunction) if not name.startswith("_")]
    assert len(names) == 14
    for name in names:
        assert callable(getattr(RemoteAgent, name))
        assert inspect.signature(getattr(LocalAgent, name)) == inspect.signature(getattr(AgentInterface, name))


@pytest.mark.usefixtures("_threads")
def test_misspelt_call_of_a_remote_agent_is_an_attribute_error(tmp_path):
    agent = RankedAgent(make_spec(tmp_path, make_pair(tmp_path), **APART), 0, None)
    with pytest.raises(AttributeError, match="generat"):
        agent.generat(0, [])  # type: ignore[attr-defined]
    agent.close()


@pytest.mark.usefixtures("_threads")
def test_threads_that_call_one_agent_get_their_own_answers(tmp_path):
    agent = RankedAgent(make_spec(tmp_path, make_pair(tmp_path), **APART), 0, None)
    question = Question("1", "1+2=", "3")
    with ThreadPoolExecutor(2) as pool:
        lengths = pool.submit(lambda: [agent.prompt_lengths([question]) for _ in range(200)])
        notes = pool.submit(lambda: [agent.take_notes() for _ in range(200)])
        sizes = [agent.used_bytes() for _ in range(200)]
        assert lengths.result() == [[4]] * 200
        assert notes.result() == [[]] * 200
    assert all(isinstance(resident, int) and resident > 0 and peak is None for resident, peak in sizes)
    agent.close()


@pytest.mark.usefixtures("_threads")
def test_progress_of_an_evaluation_does_not_wait_for_a_slow_agent(tmp_path, monkeypatch, gate):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 0}, **APART)
    local = spec.model_copy(update={"compute": spec.compute.model_copy(update={"placement": "local"})})
    train(local, tmp_path / "local").close()
    waits: list[bool] = []
    before(
        monkeypatch,
        "evaluate",
        lambda agent, step: waits.append(gate.wait(PATIENCE_S)) if agent.name == "Llama" else None,
    )
    emit = SpoolWriter.emit

    def emitted(spool: SpoolWriter, *bodies: Any) -> None:
        emit(spool, *bodies)
        if any(body.type == "progress" for body in bodies):
            gate.set()

    monkeypatch.setattr(SpoolWriter, "emit", emitted)
    monkeypatch.setattr(rank_main, "used_bytes", lambda: (1000, 7))
    monkeypatch.setattr(memory, "used_bytes", lambda: (1, None))
    train(spec, tmp_path / "apart").close()
    assert waits == [True]  # the first agent's progress was told meanwhile
    told = [(one["resident_bytes"], one["device_peak_bytes"]) for one in records(tmp_path / "apart", "progress")]
    assert told == [(2001, 7), (2001, 7)]  # both agents, also the one at work
    kept = ("agent", "step", "value", "asked", "correct")
    evaluations = [
        [[record[key] for key in kept] for record in records(tmp_path / name, "evaluation")]
        for name in ("local", "apart")
    ]
    assert evaluations[0] == evaluations[1]


@pytest.mark.usefixtures("_threads")
def test_memory_of_an_agent_on_a_ray_node_is_that_of_all_its_processes(tmp_path, monkeypatch):
    ray_placement = pytest.importorskip("workers.agents.ray_placement", exc_type=ImportError)
    monkeypatch.setattr(rank_main, "used_bytes", lambda: (1000, 7))
    monkeypatch.setattr(ray_placement, "used_bytes", lambda: (1, None))
    process = ray_placement.AgentProcess()
    process.agent = RankedAgent(make_spec(tmp_path, make_pair(tmp_path), **APART), 0, None)
    assert process.used_bytes() == (1001, 7)
    process.agent.close()


# A stop


def test_all_calls_have_ended_once_the_slowest_has(gate):
    calls = ParallelCalls(2)
    quick, slow = calls.begin([lambda: True, lambda: gate.wait(PATIENCE_S)])
    assert quick.has_ended_within(PATIENCE_S)
    assert not slow.has_ended_within(0.01)
    assert not calls.has_ended_within(0.01)
    gate.set()
    assert calls.has_ended_within(PATIENCE_S)
    assert slow.has_ended_within(0.0)
    calls.close()


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("ends_in_time", [False, True])
def test_stop_while_an_agent_generates_saves_only_if_it_ends_in_time(tmp_path, monkeypatch, gate, ends_in_time):
    stop = StopFlag()

    def act(agent: LocalAgent, step: int) -> None:
        if step == 1 and agent.name == "Llama":
            gate.wait(PATIENCE_S)
        elif step == 1:
            stop.is_set = True

    before(monkeypatch, "generate", act)
    spec = make_spec(tmp_path, make_pair(tmp_path), evaluation={"eval_interval": 0}, **APART)
    trainer = trainer_of(spec, tmp_path / "run", HashVerifier(), stop)
    with pytest.raises(Stopped):
        trainer.train()
    monkeypatch.setattr(trainer_module, "STOP_PATIENCE_S", PATIENCE_S if ends_in_time else 0.05)
    if ends_in_time:
        threading.Timer(0.1, gate.set).start()
    started = time.monotonic()
    trainer.save_if_cheap()
    assert time.monotonic() - started < PATIENCE_S / 2
    messages = [record["message"] for record in records(tmp_path / "run", "log")]
    assert ("stopped without a checkpoint of step 1: an agent was still at work" in messages) is not ends_in_time
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1] * ends_in_time
    gate.set()
    trainer.close()


@pytest.mark.usefixtures("_threads")
def test_nothing_is_generated_after_a_stop(tmp_path, monkeypatch):
    stop, generated = StopFlag(), []
    before(monkeypatch, "generate", lambda agent, step: generated.append(step))
    spec = make_spec(tmp_path, make_pair(tmp_path), evaluation={"eval_interval": 0}, **APART)
    trainer = trainer_of(spec, tmp_path / "run", HashVerifier(), stop)
    monkeypatch.setattr(trainer.progress, "record_step", lambda step: setattr(stop, "is_set", True))
    with pytest.raises(Stopped):
        trainer.train()
    assert generated == [0, 0]
    trainer.save_if_cheap()
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1]
    trainer.close()


@pytest.mark.usefixtures("_threads")
def test_verifier_that_fails_in_an_evaluation_saves_after_the_agent_at_work(tmp_path, monkeypatch, gate):
    class FailsInTheSecondEvaluation(HashVerifier):
        calls = 0

        def score(self, completions, answers):
            self.calls += 1  # 2 evaluations, steps 1 and 2, then the evaluation after step 2
            if self.calls == 5:
                threading.Timer(0.1, gate.set).start()
                raise VerifierFails("out of order")
            return super().score(completions, answers)

    before(
        monkeypatch,
        "evaluate",
        lambda agent, step: gate.wait(PATIENCE_S) if (agent.name, step) == ("Llama", 2) else None,
    )
    # With another's answer taken for its own, the checkpoint would be complete before this agent's files are.
    before(monkeypatch, "save_state", lambda agent, stem: time.sleep(0.3) if agent.name == "Llama" else None)
    spec = make_spec(tmp_path, make_pair(tmp_path), **APART)
    trainer = trainer_of(spec, tmp_path / "run", FailsInTheSecondEvaluation(), StopFlag())
    with pytest.raises(VerifierFails, match="out of order"):
        trainer.train()
    assert not gate.is_set()
    trainer.save_if_between_steps()
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [2]
    trainer.close()
    train(spec, tmp_path / "run", attempt=2).close()  # the checkpoint is of both agents, and complete
    assert [record["step"] for record in records(tmp_path / "run", "started")] == [0, 2]
    assert [record["step"] for record in records(tmp_path / "run", "evaluation")] == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("ends_in_time", [False, True])
def test_stop_does_not_wait_for_rollouts_that_are_sampled_ahead(tmp_path, monkeypatch, gate, ends_in_time):
    monkeypatch.setattr(
        ahead,
        "RankedAgent",
        lambda spec, index, folder: LocalAgent(spec.agents[index], spec, choose_device(spec, index), folder),
    )
    stop = StopFlag()
    before(monkeypatch, "sample_with", lambda agent, weights: gate.wait(PATIENCE_S))
    before(monkeypatch, "sample_ahead", lambda agent, step: setattr(stop, "is_set", step == 2))
    spec = make_spec(
        tmp_path,
        make_pair(tmp_path),
        training={"steps": 4},
        evaluation={"eval_interval": 0},
        rollout={"max_staleness": 1},
    )
    trainer = trainer_of(spec, tmp_path / "run", HashVerifier(), stop)
    with pytest.raises(Stopped):
        trainer.train()
    if ends_in_time:
        gate.set()
    else:  # 10 s after a stop nothing is waited for
        stop.requested_at = time.monotonic() - trainer_module.STOP_PATIENCE_S
    started = time.monotonic()
    trainer.save_if_cheap()
    assert time.monotonic() - started < PATIENCE_S / 2
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1] * ends_in_time
    gate.set()
    trainer.close()
