"""Quarantine: its states by hand, what a learner makes of a step without a source, and the ledger of such a step."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.workers.peers import StartVerifier, train_with_liar
from tests.support.workers.tiny import make_spec, records, same_weights
from workers.agents.messages import GeneratedRollouts, Response
from workers.algorithms.hacpo import Hacpo
from workers.algorithms.registry import algorithms
from workers.questions.dataset import Question
from workers.trainer.checkpoints import newest_checkpoint
from workers.trainer.scoring import Scorer
from workers.trainer.step import LearnerRows
from workers.trainer.stop_signals import StopFlag
from workers.trainer.trust import AuditTally, Trust

ALL = [[True, True], [True, True]]


def trust(**settings) -> Trust:
    return Trust(["A", "B"], Hacpo(peer_quarantine=True, audit_share=0.1, **settings))


# The states of a pair


def test_clearly_negative_mean_shuts_out_and_only_a_clearly_positive_one_lets_back():
    watched = trust(quarantine_smoothing=0.5, quarantine_margin=0.1)
    assert watched.note_alignment(0, {1: 0.1}) == []  # mean .1
    assert watched.note_alignment(0, {1: -0.1}) == []  # (.05 - .1) / 1.5 = -.033: within the margin
    (entry,) = watched.note_alignment(0, {1: -0.375})  # (-.025 - .375) / 1.75 = -.229
    assert entry.level == "warning"
    assert "quarantined: A <- B: smoothed gradient alignment -0.229 is below -0.1" in entry.message
    assert [watched.trusted_sources(learner) for learner in (0, 1)] == [[True, False], [True, True]]  # B still hears A
    assert watched.note_alignment(0, {1: 0.3}) == []  # (-.2 + .3) / 1.875 = .053: above 0, but not above .1
    assert watched.trusted_sources(0) == [True, False]
    (release,) = watched.note_alignment(0, {1: 0.3})  # (.05 + .3) / 1.9375 = .181
    assert release.level == "info"
    assert "released from quarantine: A <- B: smoothed gradient alignment 0.181 is above 0.1" in release.message
    assert watched.trusted_sources(0) == [True, True]


def test_alignment_that_could_not_be_measured_is_no_evidence():
    watched = trust()
    watched.note_alignment(0, {1: -0.5})
    before = watched.state_dict()
    assert watched.note_alignment(0, {1: None}) == []
    assert watched.note_alignment(0, {}) == []
    assert watched.state_dict() == before
    assert trust().note_alignment(0, {1: None}) == []


cosines = st.lists(st.none() | st.floats(-1, 1), max_size=40)


@given(cosines, cosines, st.sampled_from([0.0, 0.5, 0.8, 0.95]))
def test_states_follow_the_smoothed_mean_and_resume_exactly(before, after, smoothing):
    watched = trust(quarantine_smoothing=smoothing, quarantine_margin=0.05)
    for value in before:
        was_out = not watched.trusted_sources(0)[1]
        changes = watched.note_alignment(0, {1: value})
        mean, is_out = watched.alignment[0][1].mean, not watched.trusted_sources(0)[1]
        assert len(changes) == (was_out != is_out)
        if mean is not None and value is not None:
            assert is_out == (mean < -0.05 or (was_out and mean <= 0.05))
    resumed = trust(quarantine_smoothing=smoothing, quarantine_margin=0.05)
    resumed.load_state_dict(json.loads(json.dumps(watched.state_dict())))
    for value in after:
        assert resumed.note_alignment(0, {1: value}) == watched.note_alignment(0, {1: value})
    assert resumed.state_dict() == watched.state_dict()


def test_audit_shuts_out_for_everybody_and_readmits_below_half_the_threshold():
    watched = trust(audit_threshold=0.2, audit_smoothing=0.5)

    def audit(disagreed: int, decided: int):
        return watched.note_audit([AuditTally(decided, decided, 0), AuditTally(decided + 5, decided, disagreed)])

    assert audit(8, 8) == []  # too few answers for a verdict on the verdicts
    (entry,) = audit(6, 8)  # (4 + 6) / (4 + 8) = 83 %
    assert entry.level == "warning"
    assert "contradicts the rewards of B: 6 of 8 answers of this step, smoothed 83%" in entry.message
    assert [watched.trusted_sources(learner) for learner in (0, 1)] == [[True, False], [True, True]]
    assert audit(0, 0) == []
    assert audit(0, 20) == []  # 5 / 26 = 19 %: below the threshold, not below half of it
    assert not watched.trusted_sources(0)[1]
    (release,) = audit(0, 20)  # 2.5 / 33 = 8 %
    assert release.readmitted == 1
    assert watched.trusted_sources(0) == [True, True]


# What a learner makes of a step


def rewards_of_three() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    rewards = torch.randint(0, 2, (3, 4, 5), generator=generator).float()
    valid = torch.rand(3, 4, 5, generator=generator) > 0.1
    ratio = torch.tensor([[1.0, 2.0, 0.5], [0.5, 1.0, 0.25], [2.0, 4.0, 1.0]], dtype=torch.float64)
    return rewards, valid, ratio


@pytest.mark.parametrize("settings", [{}, {"advantage": "plain"}, {"scale_rewards": "batch"}, {"name": "naive_source"}])
def test_judgement_is_as_if_the_source_had_sent_nothing(settings):
    rewards, valid, ratio = rewards_of_three()
    algorithm = algorithms()[settings.get("name", "hacpo")](**settings)
    trusted = torch.tensor([[True, False, True], [True, True, True], [True, True, True]])
    found = algorithm.objective(rewards, valid, ratio, trusted=trusted)
    two = torch.tensor([0, 2])
    without = algorithm.objective(rewards[two], valid[two], ratio[two][:, two])
    assert torch.equal(found.advantages[0][two], without.advantages[0])
    assert torch.equal(found.baselines[0], without.baselines[0])
    assert not found.in_baseline[0][1].any()
    whole = algorithm.objective(rewards, valid, ratio)
    for learner in (1, 2):  # theirs is what it would have been
        assert torch.equal(found.advantages[learner], whole.advantages[learner])
    assert torch.equal(found.advantages[0][1], whole.advantages[0][1])  # watched as if it were trusted


def test_quarantined_source_has_no_place_in_any_mini_batch(tmp_path, trio):
    spec = make_spec(tmp_path, trio)
    response = Response("1", "1", "stop", 2, 2, -1.0)
    generated = [GeneratedRollouts([[response] * 4] * 4, (0.0, 0.0))] * 3
    shape = (3, 4, 4)
    view = (generated, torch.ones(shape), torch.ones(shape, dtype=torch.bool), torch.ones(3, 3))
    trusted = [True, False, True]
    rows = LearnerRows(spec, 0, 0, *view, trusted)
    batches = rows.mini_batches()
    assert [Counter(row.source for row in rows) for rows in batches] == [{0: 16}, {2: 16}]  # not: half empty ones
    assert Counter(row.source for row in rows.quarantined()) == {1: 16}
    assert len(LearnerRows(spec, 0, 0, *view, [True, False, False]).mini_batches()) == 1  # the self block alone


# The trainer


def run(tmp_path, pair, name: str, liar: int | None = None, attempt: int = 1, verifier=None, **sections):
    training = {"steps": 6, "train_batch_size": 8, "mini_batch_size": 8, **sections.pop("training", {})}
    algorithm = sections.pop("algorithm", {})
    spec = make_spec(
        tmp_path, pair, training=training, algorithm=algorithm, evaluation={"eval_interval": 0}, seed=2, **sections
    )
    return train_with_liar(spec, tmp_path / name, liar, verifier or StartVerifier(), attempt)


def test_option_changes_nothing_while_everybody_is_trusted(tmp_path, trio, monkeypatch):
    plain = run(tmp_path, trio[:2], "plain", training={"steps": 2})
    monkeypatch.setattr(Trust, "trusted_sources", lambda self, learner: ALL[learner])
    watched = run(
        tmp_path, trio[:2], "watched", training={"steps": 2}, algorithm={"peer_quarantine": True, "audit_share": 1.0}
    )
    assert same_weights(watched, plain)
    assert "trust" not in plain.state_dict()
    assert "trust" in watched.state_dict()
    told = {
        name for record in records(tmp_path / "plain", "metrics") for name in (*record["values"], *record["ratios"])
    }
    assert not [name for name in told if name.startswith(("audit", "quarantined", "gradient_alignment/"))]


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory, trio):
    """A run in which the verdicts on Llama are inverted; checkpoints after steps 3 and 6."""
    root = tmp_path_factory.mktemp("lied_to")
    settings = {
        "algorithm": {"peer_quarantine": True, "audit_share": 0.5, "quarantine_interval": 1},
        "checkpoint": {"save_steps": 3, "keep": 2},
    }
    return root, settings, run(root, trio[:2], "run", 1, **settings)


def test_ledger_of_a_step_with_a_quarantine_adds_up(lied_to):
    root, *_ = lied_to
    shut = {
        (r["step"], r["agent"], r["source"]) for r in records(root / "run", "metrics") if r["values"].get("quarantined")
    }
    assert shut
    log = [r for r in records(root / "run", "log") if r["level"] == "warning"]
    assert any("quarantined: " in r["message"] for r in log)
    [audit] = [r for r in log if "the audit contradicts the rewards of Llama" in r["message"]]  # all along, told once
    assert audit["step"] == 0
    rows = records(root / "run", "contribution")
    assert {(r["step"], r["agent"], r["source"]) for r in rows if r["drop_reason"] == "quarantined"} == shut
    for row in rows:
        if row["drop_reason"] == "quarantined":
            assert (row["weight"], row["mini_batch"], row["sequence_ratio"]) == (0.0, None, None)
    for pair in {(r["step"], r["agent"], r["source"]) for r in rows}:
        of_pair = [r for r in rows if (r["step"], r["agent"], r["source"]) == pair]
        kinds = Counter(
            "dropped"
            if r["drop_reason"]
            else "zero advantage"
            if r["advantage"] == 0
            else "used"
            if r["weight"]
            else "clipped"
            for r in of_pair
        )
        assert sum(kinds.values()) == 8 * 4  # 8 prompts, 4 rollouts: every one is told, once
        if pair in shut:
            assert kinds == {"dropped": 32}
    for r in records(root / "run", "metrics"):
        if (r["step"], r["agent"], r["source"]) in shut:
            assert r["values"]["dropped"] == 32.0
            assert r["ratios"]["used_frac"] == [0.0, 32.0]


def test_resumed_run_repeats_the_uninterrupted_one(lied_to, trio):
    root, settings, whole = lied_to
    told = [record for record in records(root / "run", "metrics") if record["step"] > 3]
    folder = root / "run" / "checkpoints"
    (folder / "step-000006").rename(folder / "gone")
    found, _ = newest_checkpoint(root / "run")
    assert found is not None
    assert found.step == 3
    assert found.trainer["trust"]["disagreement"][1][2] == 1.0  # shut out then
    assert found.trainer["trust"]["alignment"][0][1][1] > 2  # three measurements, smoothed
    resumed = run(root, trio[:2], "run", 1, attempt=2, **settings)
    assert same_weights(resumed, whole)
    again = [record for record in records(root / "run", "metrics") if record["attempt"] == 2]

    def bodies(found: list[dict]) -> list[dict]:
        return [{key: r[key] for key in ("step", "agent", "source", "values", "ratios")} for r in found]

    assert bodies(again) == bodies(told)
    assert resumed.state_dict()["trust"] == whole.state_dict()["trust"]


@pytest.mark.parametrize(("has_environment", "reward"), [(False, 0.0), (True, 1.0)])
def test_reward_that_comes_with_an_answer_counts_only_with_an_environment(has_environment, reward):
    claimed = Response("9", "9", "stop", num_tokens=1, length=1, mean_logp=-1.0, reward=1.0)
    scorer = Scorer(StartVerifier(), StopFlag(), print, has_environment=has_environment)
    scores = scorer.score_step([Question("1", "?", "0")], [GeneratedRollouts([[claimed]], (0.0, 1.0))], 1)
    assert scores.rewards.tolist() == [[[reward]]]  # StartVerifier pays for 0 to 3
