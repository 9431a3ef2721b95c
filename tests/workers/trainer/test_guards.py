"""What a run survives: no finite loss, nothing to learn, a verifier that fails, memory and disks that are full."""

from __future__ import annotations

import errno
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.marks import in_full
from tests.support.workers.processes import PROCESSES
from tests.support.workers.tiny import HashVerifier, make_spec, records, same_weights, train, weights
from workers.agents.local import LocalAgent
from workers.agents.messages import LearnerRow, RowResult
from workers.agents.updates import Inputs, run_updates
from workers.model.memory import OutOfMemory
from workers.model.policy import Policy
from workers.trainer import scoring
from workers.trainer.agent_team import Diverged
from workers.trainer.scoring import VerifierFails
from workers.trainer.stop_signals import StopFlag, Stopped
from workers.verifiers.children.child_client import VerifierError
from workers.verifiers.scoring.service import Verifier
from workers.verifiers.scoring.verdicts import Verdict


def warnings(run_dir) -> list[str]:
    found = [record["message"] for record in records(run_dir, "log") if record["level"] == "warning"]
    return [message for message in found if not message.startswith("The lower bound")]


def policy_of(tmp_path, pair, **changes) -> tuple[Policy, object]:
    spec = make_spec(tmp_path, pair[:1], algorithm={"name": "gspo"}, **changes)
    return Policy(spec.agents[0], spec, torch.device("cpu")), spec


def some_rows(policy: Policy) -> tuple[list[LearnerRow], Inputs]:
    with torch.no_grad():
        logps, _ = policy.token_logps([[2, 3]], [[4, 5, 1]])
    return [LearnerRow(0, 0, 0, True, 1.0, 1.0)], Inputs([2, 3], [4, 5, 1], logps.mean().item(), 3)


# Not finite


class PoisonedForward:
    """Makes the forward passes that train return NaN, while `counts` says so."""

    def __init__(self, monkeypatch, poisoned) -> None:
        self.calls = 0
        token_logps = Policy.token_logps

        def poisoned_logps(policy, prompts, responses, **options):
            logps, mask = token_logps(policy, prompts, responses, **options)
            if not torch.is_grad_enabled():
                return logps, mask
            self.calls += 1
            return (logps * math.nan if poisoned(self.calls) else logps), mask

        monkeypatch.setattr(Policy, "token_logps", poisoned_logps)


def test_one_bad_update_is_skipped_and_changes_nothing(tmp_path, pair, monkeypatch):
    policy, spec = policy_of(tmp_path, pair)
    rows, given = some_rows(policy)
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    PoisonedForward(monkeypatch, lambda call: call == 1)
    report = run_updates(policy, spec, [rows, rows], lambda row: given, 1e-3, 0)  # type: ignore[arg-type]
    assert (report.skipped_updates, report.failures_in_a_row, report.rolled_back) == (1, 0, False)
    assert math.isnan(report.losses[0])
    assert math.isfinite(report.losses[1])
    moved = [name for name, value in policy.model.state_dict().items() if not torch.equal(value, before[name])]
    assert moved  # by the second update
    (first,), (second,) = report.results
    # Nobody is told that a rollout taught what was never learnt.
    assert first == RowResult(num_tokens=second.num_tokens, drop_reason="update skipped")
    assert (second.drop_reason, second.gradient_flows, second.weight != 0) == (None, True, True)


def test_three_bad_updates_roll_back_to_the_last_good_weights(tmp_path, pair, monkeypatch):
    policy, spec = policy_of(tmp_path, pair)
    rows, given = some_rows(policy)

    def update(batches: int):
        return run_updates(policy, spec, [rows] * batches, lambda row: given, 1e-3, 0)  # type: ignore[arg-type]

    update(1)
    good = {name: value.clone() for name, value in policy.optimizer.state_tensors().items()}
    start = {name: value.clone() for name, value in policy.model.state_dict().items()}
    # Update 2 is finite and moves; 3, 4, 5 are not, 6 is not made: back to before update 2, optimizer included.
    PoisonedForward(monkeypatch, lambda call: call > 1)
    report = update(5)
    assert (report.rolled_back, report.failures_in_a_row, report.skipped_updates) == (True, 0, 4)
    assert all(torch.equal(value, start[name]) for name, value in policy.model.state_dict().items())
    state = policy.optimizer.state_tensors()
    assert state.keys() == good.keys()
    assert all(torch.equal(state[name], good[name]) for name in good)
    skipped = ["update skipped"] * 3
    assert [outcome.drop_reason for (outcome,) in report.results] == [None, *skipped, "rolled back"]
    assert not policy.optimizer.has_fresh_snapshot  # a second time there is nothing to gain from the same weights


def test_run_rolls_back_once_and_then_stops_with_step_and_reason(tmp_path, pair, monkeypatch):
    PoisonedForward(monkeypatch, lambda call: call > 2)
    spec = make_spec(tmp_path, pair[:1], algorithm={"name": "gspo"}, training={"steps": 20})
    with pytest.raises(Diverged, match="diverged at step 8: Qwen had 3 updates in a row without a finite"):
        train(spec, tmp_path / "run")
    told = warnings(tmp_path / "run")
    assert sum("skipped 1 updates" in message for message in told) == 6  # steps 3, 4, 5, then 6, 7, 8
    assert told[3] == "Qwen: 3 updates in a row without one: back at the last weights whose gradient was finite"


def test_streak_of_failures_resumes_with_its_snapshot(tmp_path, pair, monkeypatch):
    PoisonedForward(monkeypatch, lambda call: call > 2)
    spec = make_spec(
        tmp_path, pair[:1], algorithm={"name": "gspo"}, training={"steps": 5}, checkpoint={"save_steps": 1}
    )
    whole = train(spec, tmp_path / "whole")  # steps 3 to 5 fail: rolled back at the end
    run_dir = tmp_path / "whole" / "checkpoints"
    for path in run_dir.glob("step-000005*"):
        path.rename(run_dir / "gone")
    monkeypatch.undo()
    PoisonedForward(monkeypatch, lambda call: True)
    resumed = train(spec, tmp_path / "whole", attempt=2)
    assert same_weights(resumed, whole)
    assert any("back at the last weights" in message for message in warnings(tmp_path / "whole")[-2:])


def test_rollout_whose_source_has_no_number_for_it_costs_no_other_agent_an_update(tmp_path, pair, monkeypatch):
    generate = LocalAgent.generate

    def broken(agent, step, questions):
        found = generate(agent, step, questions)
        if agent.name == pair[0]["name"]:
            for group in found.responses:
                group[0] = replace(group[0], mean_logp=math.nan)
        return found

    monkeypatch.setattr(LocalAgent, "generate", broken)
    train(make_spec(tmp_path, pair, training={"steps": 1}), tmp_path / "run")
    skipped = [line["values"]["skipped_updates"] for line in records(tmp_path / "run", "metrics") if not line["source"]]
    assert skipped == [0, 0]
    rows = [row for row in records(tmp_path / "run", "contribution") if row["source"] == pair[0]["name"]]
    dropped = {(row["agent"], row["sample"]) for row in rows if row["drop_reason"] == "not finite"}
    assert dropped == {(pair[1]["name"], 0)}


# Nothing to learn


@pytest.mark.parametrize("case", ["empty", "all clipped", "no advantage"])
def test_mini_batch_without_anything_to_learn_has_zero_gradient(tmp_path, pair, case):
    policy, spec = policy_of(tmp_path, pair, training={"weight_decay": 0.0})
    rows, given = some_rows(policy)
    if case == "all clipped":  # s = e > 1 + epsilon and A > 0
        given = Inputs(given.prompt, given.response, given.mean_logp - 1.0, 3)
    elif case == "no advantage":
        rows = [LearnerRow(0, 0, 0, True, 0.0, 1.0)]
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    report = run_updates(policy, spec, [[] if case == "empty" else rows], lambda row: given, 1e-3, 0)  # type: ignore[arg-type]
    assert report.grad_norms == [0.0]
    assert math.isfinite(report.losses[0])
    assert report.skipped_updates == 0
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


# The verifier


class LameVerifier(HashVerifier):
    """Fails in calls `first` to `last` (1, 2, ...): every answer unscorable, or an error."""

    def __init__(self, first: int, last: int, *, raises: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.raises = first, last, raises
        self.calls = self.forgotten = 0

    def score(self, completions, answers):
        self.calls += 1
        if not self.first <= self.calls <= self.last:
            return super().score(completions, answers)
        if self.raises:
            raise VerifierError("The verifier process did not start")
        return [Verdict(None, "unscorable: no verdict in 3 s", True)] * len(completions)

    def forget_unscorable(self) -> None:
        self.forgotten += 1


@pytest.fixture
def _impatient(monkeypatch) -> None:
    monkeypatch.setattr(scoring, "WAITS_S", (0.0, 0.0))


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("raises", [True, *in_full(False)])
def test_failing_verifier_pauses_the_run_which_then_resumes_as_if_never_paused(tmp_path, pair, raises):
    spec = make_spec(tmp_path, pair)
    whole = train(spec, tmp_path / "whole")
    verifier = LameVerifier(3, 4, raises=raises)  # calls 1, 2: the evaluations; 3, 4: step 1 and its second try
    paused = train(spec, tmp_path / "paused", verifier=verifier)
    assert same_weights(paused, whole)
    told = warnings(tmp_path / "paused")
    assert len(told) == 2
    assert told[0].startswith("waiting: the verifier fails: ")
    assert told[0].endswith("try 2 of 3 in 0 s")
    assert ("did not start" if raises else "32 of 32 answers could not be scored") in told[0]
    assert verifier.forgotten == 2
    incidents = [(r["incident"], r["step"]) for r in records(tmp_path / "paused", "log") if r["incident"]]
    assert incidents == [("verifier", 1)] * 2


@pytest.mark.usefixtures("_impatient")
def test_verifier_that_stays_broken_ends_the_attempt_before_omega_is_touched(tmp_path, pair):
    with pytest.raises(VerifierFails, match=r"32 of 32 answers could not be scored \(unscorable: no verdict"):
        train(make_spec(tmp_path, pair), tmp_path / "run", verifier=LameVerifier(4, 99))
    told = [record for record in records(tmp_path / "run", "metrics") if record["source"]]
    assert {record["step"] for record in told} == {1}


@pytest.mark.usefixtures("_impatient")
def test_share_of_unscorable_answers_is_a_setting(tmp_path, pair):
    spec = make_spec(tmp_path, pair, training={"max_unscorable": 1.0, "steps": 1})
    train(spec, tmp_path / "run", verifier=LameVerifier(3, 3))
    told = [record for record in records(tmp_path / "run", "metrics") if not record["source"]]
    assert [record["values"]["verifier/timeout"] for record in told] == [16, 16]
    assert all("no rollout had weight" in told for told in warnings(tmp_path / "run"))


@pytest.mark.parametrize("num_proofs", [1, 24])
def test_answers_that_cannot_be_verified_are_logged_before_the_first_step(tmp_path, pair, num_proofs):
    spec = make_spec(tmp_path, pair[:1], data={"verifier": "math"}, training={"steps": 1})
    path = tmp_path / "questions.jsonl"
    questions = [json.loads(line) for line in path.read_text().splitlines()]
    for question in questions[:num_proofs]:
        question["answer"] = "As every step of the proof above is valid, the claim holds."
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    with Verifier("math") as verifier:
        if num_proofs == 24:
            told = (
                "all 24 reference answers cannot be verified; the first is that of question q\\d+ \\(prose of 12 words"
            )
            with pytest.raises(ValueError, match=told):
                train(spec, tmp_path / "run", verifier=verifier)
            assert not records(tmp_path / "run", "evaluation")
            return
        train(spec, tmp_path / "run", verifier=verifier)
    told = warnings(tmp_path / "run")[0]
    assert told.startswith("1 of 24 reference answers cannot be verified; the first is that of question q0 (prose of")


def test_stop_acts_while_waiting_for_the_verifier(tmp_path, pair):
    stop = StopFlag()

    class StopsAndFails(LameVerifier):
        def score(self, completions, answers):
            stop.is_set = self.calls == 2
            return super().score(completions, answers)

    with pytest.raises(Stopped):
        train(make_spec(tmp_path, pair), tmp_path / "run", verifier=StopsAndFails(3, 99), stop=stop)


# Memory


def test_full_memory_halves_single_micro_batches_and_changes_nothing_else(tmp_path, pair, monkeypatch):
    settings = {"algorithm": {"name": "hacpo", "beta": 0.01}, "training": {"micro_batch_size": 16}}
    expected = train(make_spec(tmp_path, pair, **settings), tmp_path / "expected")
    backward = torch.Tensor.backward

    def limited(loss, *arguments, **more):
        backward(loss, *arguments, **more)  # gradients are half there when memory runs out
        if sizes[-1] > 4 and len(sizes) < 8:  # for a while
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    sizes: list[int] = []
    token_logps = Policy.token_logps

    def counted(policy, prompts, responses, **options):
        if torch.is_grad_enabled():
            sizes.append(len(prompts))
        return token_logps(policy, prompts, responses, **options)

    monkeypatch.setattr(torch.Tensor, "backward", limited)
    monkeypatch.setattr(Policy, "token_logps", counted)
    trainer = train(make_spec(tmp_path, pair, **settings), tmp_path / "run")
    reason = "(CUDA out of memory. Tried to allocate 2.00 GiB.)"
    halved = [line for line in warnings(tmp_path / "run") if line.endswith(reason)]
    assert halved[0] == f"Qwen: out of memory: a micro-batch of {sizes[0]} sequences was halved {reason}"
    assert max(sizes[8:]) > 4  # later ones are as large as before
    for agent in range(2):
        ours, theirs = weights(trainer, agent), weights(expected, agent)
        assert max((ours[name] - theirs[name]).abs().max().item() for name in ours) < 1e-4
    rows = [len(records(tmp_path / name, "contribution")) for name in ("run", "expected")]
    assert rows[0] == rows[1]


def test_memory_that_holds_no_single_row_names_what_to_lower(tmp_path, pair, monkeypatch):
    def never(loss, *arguments, **more):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.Tensor, "backward", never)
    with pytest.raises(OutOfMemory, match="one sequence at a time: lower max_completion_length"):
        train(make_spec(tmp_path, pair), tmp_path / "run")


def test_full_memory_while_sampling_halves_the_rollout_batch(tmp_path, pair, monkeypatch):
    from workers.rollouts import engine

    expected = train(make_spec(tmp_path, pair), tmp_path / "expected")
    sample = engine.sample

    def limited(model, request, *rest):
        if request.batch_size > 100:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")
        return sample(model, request, *rest)

    monkeypatch.setattr(engine, "sample", limited)
    trainer = train(make_spec(tmp_path, pair), tmp_path / "run")
    assert sum("rollout_batch_size is now 64" in message for message in warnings(tmp_path / "run")) == 2
    assert same_weights(trainer, expected)


# The disk


class FullDisk:
    """Saving an agent fails in saves `first` to `last` (1, 2, ...), half written."""

    def __init__(self, monkeypatch, first: int, last: int) -> None:
        self.saves = 0
        save = LocalAgent.save

        def full(agent, folder):
            self.saves += 1
            save(agent, folder)
            if first <= self.saves <= last:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(LocalAgent, "save", full)


def test_full_disk_in_a_checkpoint_keeps_the_old_one_and_training_continues(tmp_path, pair, monkeypatch):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 5}, checkpoint={"save_steps": 1, "keep": 9})
    expected = train(spec, tmp_path / "expected")
    FullDisk(monkeypatch, 2, 3)
    trainer = train(spec, tmp_path / "run")
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1, 4, 5]
    told = warnings(tmp_path / "run")
    assert [message.partition(":")[0] for message in told] == [
        f"checkpoint of step {step} not written, the earlier ones are kept" for step in (2, 3)
    ]
    assert same_weights(trainer, expected)


def train_on_full_disk(path: Path, run_dir: Path) -> None:
    from workers.__main__ import main

    FullDisk(pytest.MonkeyPatch(), 3, 99)
    sys.exit(main([str(path), str(run_dir)]))


def test_run_pauses_at_the_third_checkpoint_in_a_row_that_fails(tmp_path, pair):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 9}, checkpoint={"save_steps": 1})
    path = tmp_path / "given.json"
    path.write_text(spec.to_json())
    process = PROCESSES.Process(target=train_on_full_disk, args=(path, tmp_path / "run"))
    process.start()
    process.join(120)
    process.kill()
    assert process.exitcode == 0
    [end] = records(tmp_path / "run", "finished")
    assert (end["outcome"], end["step"]) == ("paused", 5)
    assert end["reason"].startswith("disk: 3 checkpoints in a row not written: ")
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


def test_last_checkpoint_is_tried_again(tmp_path, pair, monkeypatch):
    FullDisk(monkeypatch, 1, 2)
    train(make_spec(tmp_path, pair[:1], training={"steps": 1}), tmp_path / "run")
    assert [record["step"] for record in records(tmp_path / "run", "checkpoint")] == [1]
