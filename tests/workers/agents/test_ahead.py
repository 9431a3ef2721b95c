"""Sampling ahead: which weights sample, what weighs their rollouts, and that a resumed run repeats itself."""

from __future__ import annotations

import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.support.workers.endings import assert_same_end, last_records
from tests.support.workers.processes import forked as forked
from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train
from workers.agents import ahead
from workers.agents.ahead import Ahead, AheadSampler
from workers.agents.local import LocalAgent
from workers.agents.messages import AgentLost
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import split_questions
from workers.rollouts.sampler import Sample
from workers.trainer.step import batch_of_step
from workers.trainer.stop_signals import StopFlag
from workers.trainer.trainer import Trainer

CPU = torch.device("cpu")
ONE_OFF: dict[str, Any] = {"rollout": {"max_staleness": 1}}


@pytest.fixture
def in_this_process(monkeypatch):
    """Samplers without processes of their own, which take seconds to start."""
    monkeypatch.setattr(
        ahead, "RankedAgent", lambda spec, index, folder: LocalAgent(spec.agents[index], spec, CPU, folder)
    )


def own(run_dir: Path, name: str) -> dict[str, list[float]]:
    """An agent's metric by step."""
    found = [record for record in records(run_dir, "metrics") if record["source"] is None]
    return {
        agent: [record["values"].get(name) for record in found if record["agent"] == agent]
        for agent in ("Qwen", "Llama")
    }


def trained(spec: RunSpec, run_dir: Path, attempt: int = 1) -> Path:
    train(spec, run_dir, attempt).close()
    return run_dir


@pytest.mark.usefixtures("in_this_process")
def test_second_step_is_sampled_by_the_first_weights_and_weighed_by_the_second(tmp_path):
    sections: dict[str, Any] = {"training": {"steps": 2}, "evaluation": {"eval_interval": 0}}
    spec = make_spec(tmp_path, make_pair(tmp_path), rollout={"max_staleness": 1, "importance_cap": 1.1}, **sections)
    run_dir = trained(spec, tmp_path / "run")
    assert own(run_dir, "staleness") == {"Qwen": [0, 1], "Llama": [0, 1]}
    start = make_spec(tmp_path, make_pair(tmp_path), **sections)
    questions = batch_of_step(start, 1, split_questions(start.data).train)
    rollouts = {(r["agent"], r["prompt_id"], r["sample"]): r for r in records(run_dir, "rollout") if r["step"] == 2}
    rows = {
        (r["agent"], r["prompt_id"], r["sample"]): r
        for r in records(run_dir, "contribution")
        if r["step"] == 2 and r["agent"] == r["source"] and r["mini_batch"] == 0 and r["weight"]
    }
    weights = []
    for agent in start.agents:
        expected = LocalAgent(agent, start, CPU, None).generate(1, questions).responses
        for question, responses in zip(questions, expected, strict=True):
            for number, response in enumerate(responses):
                place = (agent.name, question.id, number)
                assert rollouts[place]["completion"] == response.text
                if place in rows:  # s = 1, so its weight is the advantage times that of its importance
                    by_hand = min(math.exp(rollouts[place]["mean_logp"] - response.mean_logp), 1.1)
                    assert rows[place]["weight"] == pytest.approx(rows[place]["advantage"] * by_hand, rel=1e-4)
                    weights.append(by_hand)
    assert min(weights) < 0.9
    assert max(weights) == 1.1
    simultaneous = trained(start, tmp_path / "simultaneous")
    assert own(simultaneous, "staleness") == {"Qwen": [None, None], "Llama": [None, None]}
    completions = [(r["completion"], r["mean_logp"]) for r in records(simultaneous, "rollout") if r["step"] == 2]
    assert completions != [(r["completion"], r["mean_logp"]) for r in rollouts.values()]


@pytest.mark.usefixtures("in_this_process")
def test_run_resumed_between_two_steps_ends_as_the_uninterrupted_one_bit_for_bit(tmp_path):
    agents = make_pair(tmp_path)
    agents[1]["lora_rank"] = 2  # its sampler gets the matrices alone
    spec = make_spec(tmp_path, agents, training={"steps": 4}, checkpoint={"save_steps": 2, "keep": 9}, **ONE_OFF)
    whole = trained(spec, tmp_path / "whole")
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / "step-000004")
    assert_same_end(trained(spec, cut, attempt=2), whole)
    assert min(own(cut, "staleness")["Llama"][-2:]) == 1
    assert last_records(cut, "answers") == last_records(whole, "answers")


@pytest.mark.usefixtures("in_this_process")
def test_rollouts_that_are_not_learned_from_yet_are_those_to_store(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), **ONE_OFF)
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    sampler, questions = agent._sampler, split_questions(spec.data).train[:2]
    assert isinstance(sampler, AheadSampler)
    for step in (1, 2):
        agent.sample_ahead(step, questions)
    first = sampler.take(1)
    assert first is not None
    assert sampler.oldest() is first  # a stop may come before the update
    sampler.drop()
    second = sampler.oldest()
    assert second is not None
    assert second.step == 2
    agent.close()


def test_stored_rollouts_are_read_back_exactly():
    samples = [
        Sample([3, 5], [-0.1, -1 / 3], True, 0.7),
        Sample([], [], False, 0.0),
        Sample([2], [-2.0], True, 0.1, True),
    ]
    stored = Ahead(4, samples, 8, ["halved"], "")
    assert Ahead.from_state(*stored.state()) == stored


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


class Kills(HashVerifier):
    """Kills the first agent's sampler in the second step's verification."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.agents = 6, []  # each agent's evaluation, then each agent's rollouts of two steps

    def score(self, completions, answers):
        self.left -= 1
        if not self.left:
            os.kill(self.agents[0]._sampler._process._processes[0].pid, signal.SIGKILL)
        return super().score(completions, answers)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_sampler_is_a_process_that_ends_with_its_agent(tmp_path, monkeypatch):
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"steps": 4}, checkpoint={"save_steps": 1}, **ONE_OFF)
    run_dir, verifier, before = tmp_path / "apart", Kills(), children()
    run_dir.mkdir()
    trainer = Trainer(spec, run_dir, SpoolWriter(run_dir, 1), verifier, StopFlag())  # type: ignore[arg-type]
    load = trainer.load

    def loaded() -> dict[str, Any]:
        state = load()
        verifier.agents = trainer.agents
        return state

    monkeypatch.setattr(trainer, "load", loaded)
    with pytest.raises(AgentLost, match="the process of Qwen ended by signal 9 in sample_with"):
        trainer.train()
    resident, _ = trainer.team.placement.used_bytes()
    of_samplers = [agent.sampler_bytes()[0] for agent in verifier.agents]
    assert min(of_samplers) > 50_000_000  # Python and torch
    assert resident > sum(of_samplers)
    trainer.close()
    assert children() == before
    assert records(run_dir, "checkpoint")
    monkeypatch.setattr(
        ahead, "RankedAgent", lambda spec, index, folder: LocalAgent(spec.agents[index], spec, CPU, folder)
    )
    assert_same_end(trained(spec, run_dir, attempt=2), trained(spec, tmp_path / "together"))
