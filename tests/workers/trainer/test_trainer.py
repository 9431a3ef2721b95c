"""The trainer on random models of a few thousand weights: which rule does what, bit for bit where that is the claim."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from tests.support.marks import in_full
from tests.support.workers.tiny import HashVerifier, make_spec, records, same_weights, train, weights
from workers.agents.local import LocalAgent
from workers.agents.messages import GeneratedRollouts, Response
from workers.contract.checkpoint_manifest import DamagedCheckpoint
from workers.contract.spool import SpoolWriter
from workers.model.memory import device_peak_bytes, resident_bytes
from workers.questions.dataset import Question
from workers.trainer.step import LearnerRows, batch_of_step, learning_rate
from workers.trainer.stop_signals import StopFlag, Stopped
from workers.trainer.trainer import Trainer


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max((left[name] - right[name]).abs().max().item() for name in left)


# What equals what


def test_order_of_agents_changes_nothing(tmp_path, pair):
    forward = train(make_spec(tmp_path, pair), tmp_path / "forward")
    backward = train(make_spec(tmp_path, pair[::-1]), tmp_path / "backward")
    # Sums over the agents of a group may round differently, which Adam enlarges; one other token would move 1e-3.
    assert distance(weights(forward, 0), weights(backward, 1)) < 1e-4
    assert distance(weights(forward, 1), weights(backward, 0)) < 1e-4


# Going on after an interruption


def test_run_that_begins_with_a_checkpoint_of_a_shorter_one_ends_as_the_longer(tmp_path, pair):
    changes = {"training": {"steps": 4, "lr_schedule": "constant"}, "checkpoint": {"save_steps": 2}}
    longer = make_spec(tmp_path, pair, **changes)
    whole = train(longer, tmp_path / "whole")
    train(longer.model_copy(update={"training": longer.training.model_copy(update={"steps": 2})}), tmp_path / "short")
    begun = tmp_path / "further" / "checkpoints" / "step-000002"
    shutil.copytree(tmp_path / "short" / "checkpoints" / "step-000002", begun)
    further = train(longer, tmp_path / "further")
    assert same_weights(further, whole)
    assert [record["step"] for record in records(tmp_path / "further", "started")] == [2]
    assert [record["step"] for record in records(tmp_path / "further", "metrics")][::4] == [3, 4]
    counted = [records(tmp_path / name, "progress")[-1]["rollouts_generated"] for name in ("further", "whole")]
    assert counted[0] == counted[1]


def test_run_whose_first_checkpoint_is_damaged_does_not_begin_anew(tmp_path, pair):
    spec = make_spec(tmp_path, pair, training={"steps": 1}, checkpoint={"save_steps": 1})
    train(spec, tmp_path / "short")
    begun = tmp_path / "further" / "checkpoints" / "step-000001"
    shutil.copytree(tmp_path / "short" / "checkpoints" / "step-000001", begun)
    (begun / "state" / "trainer.json").write_text("{}")
    with pytest.raises(DamagedCheckpoint, match="checkpoint to resume from: step-000001"):
        train(spec, tmp_path / "further")


TOLD = ("metrics", "rollout", "contribution", "evaluation", "progress")


def told(run_dir: Path) -> set[tuple]:
    keys = ("type", "step", "agent", "source", "prompt_id", "sample")
    return {tuple(record.get(key) for key in keys) for kind in TOLD for record in records(run_dir, kind)}


def stop_in(monkeypatch, method: str, step: int, agent: str) -> StopFlag:
    """A flag that is set while `agent` is in `method` of this step (evaluate: of what follows the step)."""
    stop = StopFlag()
    original = getattr(LocalAgent, method)
    calls = Counter[str]()

    def spied(self, *arguments, **options):
        calls[self.name] += 1
        number = arguments[0] if method == "evaluate" else calls[self.name]
        stop.is_set = stop.is_set or (self.name == agent and number == step)
        return original(self, *arguments, **options)

    monkeypatch.setattr(LocalAgent, method, spied)
    return stop


@pytest.mark.parametrize(
    ("method", "step", "agent"),
    [
        ("update", 2, "Llama"),  # the step ends with an evaluation
        ("update", 3, "Llama"),  # the last
        ("evaluate", 0, "Qwen"),
        *in_full(("update", 1, "Llama"), ("evaluate", 2, "Qwen"), ("evaluate", 3, "Qwen")),
    ],
)
def test_stop_at_any_moment_loses_no_event(tmp_path, pair, monkeypatch, method, step, agent):
    spec = make_spec(tmp_path, pair)
    train(spec, tmp_path / "whole")
    run_dir = tmp_path / "stopped"
    run_dir.mkdir()
    stop = stop_in(monkeypatch, method, step, agent)
    trainer = Trainer(spec, run_dir, SpoolWriter(run_dir, 1), HashVerifier(), stop)  # type: ignore[arg-type]
    with pytest.raises(Stopped):
        trainer.train()
    trainer.save_if_cheap()
    assert [record["step"] for record in records(run_dir, "checkpoint")] == [step] * (step > 0)
    monkeypatch.undo()
    train(spec, run_dir, attempt=2)
    assert told(run_dir) == told(tmp_path / "whole")
    whole, resumed = (
        {(r["step"], r["agent"]): (r["correct"], r["asked"]) for r in records(path, "evaluation")}
        for path in (tmp_path / "whole", run_dir)
    )
    assert resumed == whole
    if step:  # told once more for whoever looks on, with the totals so far
        assert [r["step"] for r in records(run_dir, "progress") if r["attempt"] == 2] == list(range(step, 4))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error")])
def test_full_disk_does_not_turn_a_stop_into_a_failure(tmp_path, pair, monkeypatch, error):
    def full(*arguments):
        raise error

    trainer = train(make_spec(tmp_path, pair[:1], training={"steps": 1}), tmp_path / "run")
    trainer.progress.spool = SpoolWriter(tmp_path / "run", 1)
    trainer.checkpoints.step = None
    monkeypatch.setattr("workers.trainer.checkpoints.save_checkpoint", full)
    trainer.save_if_cheap()
    warning = records(tmp_path / "run", "log")[-1]
    assert (warning["level"], warning["message"]) == (
        "warning",
        f"checkpoint of step 1 not written, the earlier ones are kept: {error} (is the disk full?)",
    )


# What is told


def test_events_tell_the_whole_run(tmp_path, pair):
    spec = make_spec(tmp_path, pair, checkpoint={"save_steps": 1, "keep": 2})
    train(spec, tmp_path / "run", verifier=HashVerifier(unscorable="77"))
    run_dir = tmp_path / "run"
    assert [(record["step"], record["agent"]) for record in records(run_dir, "evaluation")] == [
        (step, agent) for step in (0, 2, 3) for agent in ("Qwen", "Llama")
    ]
    assert [record["step"] for record in records(run_dir, "checkpoint")] == [1, 2, 3]
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == ["step-000002", "step-000003"]
    progress = records(run_dir, "progress")
    assert [record["rollouts_generated"] for record in progress] == [32, 64, 96]
    assert progress[-1]["eta_s"] == 0
    assert {"generate", "verify", "update", "telemetry"} <= progress[0]["phase_s"].keys()
    if sys.platform == "linux":  # torch alone takes more
        assert all(record["resident_bytes"] > 50e6 for record in progress)
    if not torch.cuda.is_available():
        assert {record["device_peak_bytes"] for record in progress} == {None}
    rollouts = records(run_dir, "rollout")
    assert len(rollouts) == 96
    pairs = [(record["agent"], record["source"]) for record in records(run_dir, "metrics") if record["step"] == 1]
    assert pairs == [("Qwen", None), ("Qwen", "Llama"), ("Llama", None), ("Llama", "Qwen")]


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_resident_memory_rises_by_what_is_taken():
    """256 MiB of ones; the kernel's counters may lag by some pages."""
    before = resident_bytes()
    taken = b"1" * 2**28
    assert before is not None
    assert abs(resident_bytes() - before - len(taken)) < 2**24


@pytest.mark.gpu
def test_device_peak_is_that_since_the_last_call():
    device_peak_bytes()
    tensor = torch.ones(2**28, dtype=torch.uint8, device="cuda")
    held = device_peak_bytes()
    del tensor
    assert held >= 2**28
    device_peak_bytes()
    assert device_peak_bytes() <= held - 2**28


def test_contributions_can_be_recomputed_from_their_own_fields(tmp_path, pair):
    spec = make_spec(tmp_path, pair)
    train(spec, tmp_path / "run", verifier=HashVerifier(unscorable="7"))
    rewards = {
        (record["step"], record["agent"], record["prompt_id"], record["sample"]): record["reward"]
        for record in records(tmp_path / "run", "rollout")
    }
    rows = records(tmp_path / "run", "contribution")
    unscorable = sum(reward is None for reward in rewards.values())
    assert unscorable > 0
    assert len(rows) == 2 * (96 - unscorable)  # each scored rollout once for each of two learners
    used = 0
    for row in rows:
        assert rewards[row["step"], row["source"], row["prompt_id"], row["sample"]] is not None
        if row["agent"] == row["source"]:
            assert (row["omega"], row["mini_batch"]) == (1.0, 0)  # self first
            continue
        assert row["mini_batch"] == 1
        # Every term of the weight stands in the row itself.
        omega = min(max(row["source_capability"] / row["capability"], 0.1), 10.0)
        assert (row["alpha"], row["omega"]) == (1.0, pytest.approx(omega))
        assert row["reward"] == rewards[row["step"], row["source"], row["prompt_id"], row["sample"]]
        assert row["source_num_tokens"] > 0
        if row["sequence_ratio"] is None:
            assert row["advantage"] == 0 or row["drop_reason"]
            continue
        low = 1 - 0.8 + 0.025  # m = 1
        side = "lower" if row["sequence_ratio"] < low else "upper" if row["sequence_ratio"] > 1 else "none"
        assert row["clip_side"] == side
        clipped = min(max(row["sequence_ratio"], low), 1.0)
        assert row["clipped_ratio"] == pytest.approx(clipped, rel=1e-5)
        expected = clipped**2 * row["omega"] * row["advantage"] if side == "none" else 0.0
        assert row["weight"] == pytest.approx(expected, rel=1e-4)
        used += side == "none"
    assert used > 5
    told = [record for record in records(tmp_path / "run", "metrics") if record["source"]]
    assert sum(record["ratios"]["used_frac"][0] for record in told) == used


def test_old_logps_are_those_of_the_first_update(tmp_path, pair):
    train(make_spec(tmp_path, pair), tmp_path / "run")
    found = [
        record["values"]["sampling_logp_difference/max"]
        for record in records(tmp_path / "run", "metrics")
        if not record["source"]
    ]
    assert max(value for value in found if value is not None) < 5e-6


def test_reward_and_length_metrics_are_those_of_the_rollouts(tmp_path, pair):
    train(make_spec(tmp_path, pair), tmp_path / "run")
    rollouts = records(tmp_path / "run", "rollout")
    for record in records(tmp_path / "run", "metrics"):
        if record["source"]:
            continue
        mine = [r for r in rollouts if (r["step"], r["agent"]) == (record["step"], record["agent"])]
        assert record["ratios"]["reward/mean"] == [sum(r["reward"] for r in mine), 16]
        assert record["ratios"]["completions/clipped_ratio"] == [sum(r["finish_reason"] == "length" for r in mine), 16]
        assert record["values"]["completions/mean_length"] == sum(r["num_tokens"] for r in mine) / 16
        assert 0 < record["values"]["entropy"] < math.log(20)


# The plan of a step


def fake_generated(n: int, prompts: int, samples: int) -> list[GeneratedRollouts]:
    response = Response("1", "1", "stop", 2, 2, -1.0)
    return [GeneratedRollouts([[response] * samples for _ in range(prompts)], (0.0, 1.0)) for _ in range(n)]


def plan(tmp_path: Path, n: int, **changes):
    agents = [{"name": f"agent {index}", "model": "unused"} for index in range(n)]
    spec = make_spec(tmp_path, agents, training={"mini_batch_size": 2}, **changes)
    samples = spec.num_generations
    shape = (n, 4, samples)
    valid = torch.ones(shape, dtype=torch.bool)
    ratio = torch.arange(n * n, dtype=torch.float64).view(n, n)
    rows = LearnerRows(spec, 0, 1 % n, fake_generated(n, 4, samples), torch.zeros(shape), valid, ratio)
    return spec, rows.mini_batches()


def test_self_block_comes_first_and_cross_rows_carry_omega_of_source_and_learner(tmp_path):
    _, batches = plan(tmp_path, 2)
    assert [len(rows) for rows in batches] == [8, 8, 8, 8]
    assert [{row.is_self for row in rows} for rows in batches] == [{True}, {True}, {False}, {False}]
    # Learner 1, source 0: ratio[0, 1] = 1 of [[0, 1], [2, 3]].
    assert {(row.source, row.omega) for row in batches[3]} == {(0, 1.0)}
    assert {(row.source, row.omega, row.response) for row in batches[0]} == {(1, 1.0, None)}
    assert sorted({row.prompt for row in batches[2]}) == [0, 1]


def test_more_than_two_agents_mix_the_cross_block(tmp_path):
    _, batches = plan(tmp_path, 3)
    assert [len(rows) for rows in batches] == [8] * 6
    assert {row.source for row in batches[2]} == {0, 2}
    cross = [(row.source, row.prompt, row.sample) for rows in batches[2:] for row in rows]
    assert len(set(cross)) == 32
    _, ordered = plan(tmp_path, 3, algorithm={"cross_order": "source_order"})
    assert [{row.source for row in rows} for rows in ordered[2:]] == [{0}, {0}, {2}, {2}]


def test_gspox2_doubles_rollouts_and_updates(tmp_path):
    spec, batches = plan(tmp_path, 2, algorithm={"name": "gspox2"})
    assert spec.num_generations == 8
    assert [len(rows) for rows in batches] == [8, 8, 8, 8]  # one prompt of 8 rollouts each
    assert all(row.is_self for rows in batches for row in rows)


def test_unscorable_rollout_leaves_its_mini_batch_and_nothing_moves_up(tmp_path):
    agents = [{"name": name, "model": "unused"} for name in "ab"]
    spec = make_spec(tmp_path, agents, training={"mini_batch_size": 2})
    valid = torch.ones(2, 4, 4).bool()
    valid[0, 0, 0] = False
    rows = LearnerRows(spec, 0, 0, fake_generated(2, 4, 4), torch.zeros(2, 4, 4), valid, torch.ones(2, 2))
    batches = rows.mini_batches()
    assert [len(rows) for rows in batches] == [7, 8, 8, 8]
    assert {row.prompt for row in batches[1]} == {2, 3}


def test_an_epoch_asks_each_question_once(tmp_path):
    spec = make_spec(tmp_path, [{"name": "a", "model": "unused"}])
    questions = [Question(str(index), str(index), "1") for index in range(9)]
    epochs = [[batch_of_step(spec, step, questions) for step in pair] for pair in ((0, 1), (2, 3))]
    for batches in epochs:
        assert len({question.id for batch in batches for question in batch}) == 8
    assert epochs[0] != epochs[1]
    assert batch_of_step(spec, 0, questions) != batch_of_step(spec.model_copy(update={"seed": 9}), 0, questions)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        # (1 + cos(pi x)) / 2 at x = 0, 1/4, 1/2, 3/4
        ("cosine", [0.5, 1.0, 1.0, 0.8535533905932737, 0.5, 0.14644660940672627]),
    ],
)
def test_learning_rate_warms_up_and_decays(tmp_path, schedule, expected):
    changes = {"steps": 6, "warmup_steps": 2, "lr_schedule": schedule, "learning_rate": 0.1}
    agents = [{"name": "a", "model": "unused"}, {"name": "b", "model": "unused", "learning_rate": 0.2}]
    spec = make_spec(tmp_path, agents, training=changes)
    assert [learning_rate(spec, 0, step) / 0.1 for step in range(6)] == pytest.approx(expected)
    assert learning_rate(spec, 1, 1) == 0.2


def test_too_few_questions_say_what_to_do(tmp_path, pair):
    spec = make_spec(tmp_path, pair, training={"train_batch_size": 40, "mini_batch_size": 40})
    with pytest.raises(ValueError, match="18 training questions cannot fill a batch of 40: lower train_batch_size"):
        train(spec, tmp_path / "run")
    spec = make_spec(tmp_path, pair, rollout={"max_prompt_length": 1})
    with pytest.raises(ValueError, match="no training question has at most 1 tokens for every agent: raise max_pr"):
        train(spec, tmp_path / "run")


def test_prompt_and_response_beyond_the_context_are_refused_before_the_first_step(tmp_path, pair):
    # Context 64. The longest prompt is "0+14=" or alike: 5 characters of Qwen; 5 + 60 = 65.
    spec = make_spec(tmp_path, pair, rollout={"max_completion_length": 60})
    with pytest.raises(ValueError) as caught:
        train(spec, tmp_path / "run")
    assert str(caught.value) == (
        "Qwen has a context of 64 tokens, but its longest prompt of 5 tokens and a response of 60 need 65: "
        "lower rollout.max_completion_length to 59 or lower rollout.max_prompt_length"
    )
    assert not records(tmp_path / "run", "evaluation")
    # What is allowed but does not occur is no reason: max_prompt_length 64 with prompts of 5.
    fits = {"max_completion_length": 59, "max_prompt_length": 64}
    train(make_spec(tmp_path, pair, rollout=fits, training={"steps": 1}), tmp_path / "fits")


def test_left_out_questions_are_logged(tmp_path, pair):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 1}, data={"eval_path": str(tmp_path / "eval.jsonl")})
    path = tmp_path / "questions.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "eval.jsonl").write_text("".join(lines[:3]))
    path.write_text("".join([*lines, lines[5]]))
    train(spec, tmp_path / "run")
    messages = [record["message"] for record in records(tmp_path / "run", "log")]
    assert "questions: left out 1 repeated questions, 3 training questions held out" in messages


def test_damaged_spool_is_cut_and_the_run_continues(tmp_path, pair):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 2}, checkpoint={"save_steps": 1})
    train(spec, tmp_path / "run")
    spool = tmp_path / "run" / "events.jsonl"
    spool.write_bytes(spool.read_bytes().replace(b'"type":"progress"', b'"type":"progrezz"', 1))
    train(spec, tmp_path / "run", attempt=2)
    assert records(tmp_path / "run", "started")[-1]["step"] == 2
    (message,) = [r["message"] for r in records(tmp_path / "run", "log") if r["message"].startswith("events lost")]
    assert "is damaged (checksum does not match" in message


def test_questions_too_long_for_any_agent_are_left_out_and_counted(tmp_path, pair):
    agents = [pair[0], {**pair[1], "prompt_template": "({question}"}]  # 6 tokens of Llama where it ends in "+14="
    spec = make_spec(tmp_path, agents, rollout={"max_prompt_length": 5}, training={"steps": 1})
    train(spec, tmp_path / "run")
    messages = [record["message"] for record in records(tmp_path / "run", "log")]
    counted = next(message for message in messages if "training questions" in message)
    kept, left_out = int(counted.split()[0]), int(counted.split(", ")[1].split()[0])
    assert kept + left_out == 18
    assert left_out > 0
    assert not [record for record in records(tmp_path / "run", "rollout") if record["prompt"].endswith("+14=")]


def test_messages_hold_no_token_ids():
    # Agents exchange text, how it ended, rewards and one mean log-probability per rollout, nothing else.
    numbers = {"num_tokens", "length", "mean_logp", "reward"}
    assert set(Response.__dataclass_fields__) == numbers | {
        *("text", "shared_text", "finish_reason", "has_eos", "turns", "opening", "difference")
    }
