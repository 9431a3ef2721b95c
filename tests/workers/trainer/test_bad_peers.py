"""Real training beside a peer that nobody should learn from: the honest agent ends no worse than alone.

Measured in docs/LOG.md, "A liar and a noisy peer". TOLERANCE is on the mean over the seeds.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from tests.support.workers.peers import StartVerifier, emit_noise, last_rewards, train_with_liar
from tests.support.workers.tiny import CHARACTERS, make_pair, make_spec

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
