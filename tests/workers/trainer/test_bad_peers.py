"""Real training beside a peer that nobody should learn from: the honest agent ends no worse than alone.

Measured in docs/LOG.md, "A liar and a noisy peer". TOLERANCE is on the mean over the seeds.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from tests.support.workers.peers import StartVerifier, emit_noise, last_rewards, train_with_liar
from tests.support.workers.tiny import CHARACTERS, make_pair, make_spec, records
from tests.workers.demo.test_demo import spec_of
from workers.contract.demo_recipe import AGENTS, demo_settings
from workers.contract.spec.algorithm import RECOMMENDED
from workers.contract.spec.run import RunSpec
from workers.verifiers.service import Verifier

SEEDS = (1, 2)
TOLERANCE = 0.08
QUARANTINE = {"peer_quarantine": True}
AUDIT = {"audit_share": 0.2}


@pytest.fixture(scope="module")
def mean_reward(tmp_path_factory):
    """The honest agent's mean reward over the last 5 of 20 steps and the seeds; its peer is as told."""
    root = tmp_path_factory.mktemp("peers")
    pair = make_pair(root)

    @cache
    def ends(peer: str, **algorithm) -> float:
        found = []
        for seed in SEEDS:
            run_dir = root / f"{peer}-{seed}-{'-'.join(f'{name}{value}' for name, value in algorithm.items())}"
            spec = make_spec(
                root,
                pair,
                seed=seed,
                algorithm=algorithm,
                training={"steps": 20, "train_batch_size": 8, "mini_batch_size": 8},
                rollout={"num_generations": 8},
                evaluation={"eval_interval": 0},
                telemetry={"rollout_interval": 0, "alignment_interval": 0},
            )
            with pytest.MonkeyPatch.context() as patch:
                if peer == "noise":
                    emit_noise(patch, "Llama", "".join(CHARACTERS), 6)
                train_with_liar(spec, run_dir, 1 if peer == "liar" else None, StartVerifier())
            found.append(last_rewards(run_dir, "Qwen", 5))
        return fmean(found)

    return ends


@pytest.mark.full
def test_liar_pulls_the_honest_agent_down_unless_it_is_quarantined(mean_reward):
    alone = mean_reward("honest", sharing=False)
    assert alone > 0.7  # there is something to lose
    assert mean_reward("liar") < alone - 0.2
    assert mean_reward("liar", **QUARANTINE) > alone - TOLERANCE


@pytest.mark.full
def test_audit_alone_keeps_the_liar_out(mean_reward):
    assert mean_reward("liar", **AUDIT) > mean_reward("honest", sharing=False) - TOLERANCE


@pytest.mark.full
def test_noise_does_not_pull_the_honest_agent_down(mean_reward):
    assert mean_reward("noise", **QUARANTINE) > mean_reward("honest", sharing=False) - TOLERANCE


@pytest.mark.full
def test_quarantine_leaves_an_honest_pair_its_gain(mean_reward):
    assert mean_reward("honest", **QUARANTINE) > mean_reward("honest", sharing=False)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rule", ["hacpo", RECOMMENDED])
@pytest.mark.parametrize("peer", ["liar", "noise"])
def test_honest_agent_of_the_demo_ends_as_alone(demo, tmp_path, peer, rule):
    """24 steps, two seeds; its accuracy on 400 problems. docs/LOG.md: seed 0, quarantine alone."""
    honest, bad = AGENTS.values()
    ends: dict[str, list[float]] = {"alone": [], peer: []}
    for seed in (0, 1):
        for name, algorithm in (("alone", {"sharing": False}), (peer, {**QUARANTINE, **AUDIT})):
            settings = {**demo_settings(rule)["algorithm"], **algorithm}
            base = spec_of(demo, rule, training={"steps": 24}, evaluation={"eval_interval": 0})
            spec = RunSpec.model_validate({**base.model_dump(mode="json"), "algorithm": settings, "seed": seed})
            with pytest.MonkeyPatch.context() as patch, Verifier("math") as verifier:
                if (name, peer) == ("noise", "noise"):
                    emit_noise(patch, bad, "0123456789+-*()=;}", 24)
                run_dir = tmp_path / f"{name}{seed}"
                train_with_liar(spec, run_dir, 1 if name == "liar" else None, verifier)
            last = [r for r in records(run_dir, "evaluation") if (r["step"], r["agent"]) == (24, honest)]
            ends[name].append(last[0]["value"])
    assert fmean(ends[peer]) >= fmean(ends["alone"]) - 0.05


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    from workers.demo.make import make_demo

    folder = tmp_path_factory.mktemp("demo") / "cache"
    make_demo(folder)
    return folder
