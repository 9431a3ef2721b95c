"""Replay of rescues: which rows replay and for how long, by hand; and runs with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from tests.support.workers.tiny import make_agent, make_pair, make_spec, records, train, weights
from workers.agents.local import LocalAgent
from workers.agents.messages import GeneratedRollouts, LearnerRow, Response, RowResult, UpdateReport
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.trainer.checkpoints import newest_checkpoint
from workers.trainer.replay import Replay
from workers.trainer.scoring import Scores
from workers.trainer.step import StepPlan, plan_step
from workers.trainer.trust import Trust

ALGORITHM = ("max_sources_per_learner", "replay_steps", "cross_order")
QUESTIONS = [Question(name, f"{name}?", "1") for name in "abcdefgh"]
# By agent and prompt, of four samples each. Learner 0 solves prompt 1 alone, and the others what it does not.
NONE, ONE, ALL = [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]
REWARDS = torch.tensor([[NONE, ONE, NONE, NONE], [ALL, ALL, NONE, ONE], [NONE, NONE, ALL, ONE]])  # (n, B, G)


class Steps:
    """The steps of a trainer that generates and learns nothing: plans and the replay."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec, self.replay = spec, Replay(spec)
        self.trust = Trust([agent.name for agent in spec.agents], spec.sharing)
        self.step = 0

    def make(
        self, questions: Sequence[Question], rewards: torch.Tensor, valid: torch.Tensor | None = None, dropped: str = ""
    ) -> StepPlan:
        """dropped: the text of responses that do not fit."""
        n, _, num_samples = rewards.shape
        generated = [
            GeneratedRollouts(
                [[Response(f"{agent}{question.id}{sample}", "1", "stop", 2, 2, -1.0) for sample in range(num_samples)]
                 for question in questions],
                (0.0, 1.0),
            )
            for agent in range(n)
        ]  # fmt: skip
        scores = Scores(rewards, torch.ones_like(rewards).bool() if valid is None else valid, [0] * n)
        self.replay.begin_step(self.step, questions)
        ratio = torch.ones(n, n, dtype=torch.float64)
        plan = plan_step(self.spec, self.step, generated, scores, ratio, self.trust, self.replay)

        def result(row: LearnerRow) -> RowResult:
            does_not_fit = bool(row.response and dropped and row.response.text.startswith(dropped))
            return RowResult(drop_reason="overflow") if does_not_fit else RowResult(num_tokens=2)

        reports = [
            UpdateReport(results=[[result(row) for row in rows] for rows in batches]) for batches in plan.mini_batches
        ]
        self.replay.end_step(self.step, questions, scores, plan.trusted_sources, plan.mini_batches, reports)
        self.step += 1
        return plan

    def idle(self, name: str) -> StepPlan:
        """A step of four new prompts that nobody solves."""
        return self.make([Question(f"{name}{place}", "?", "1") for place in range(4)], torch.zeros_like(REWARDS))


def trio_spec(root, **settings) -> RunSpec:
    algorithm = {key: settings.pop(key) for key in list(settings) if key in ALGORITHM}
    agents = [{"name": name, "model": "unused"} for name in settings.pop("names", "ABC")]
    return make_spec(root, agents, algorithm={"name": "hacpo", "replay_steps": 2, **algorithm}, **settings)


def replayed(plan: StepPlan, learner: int = 0) -> list[tuple[int, str]]:
    """(source, question id) of a learner's replayed rows, once for each pass."""
    rows = (row for batch in plan.mini_batches[learner] for row in batch)
    return sorted((row.source, row.question.id) for row in rows if row.question is not None)


# Which rows replay, and for how long


def test_one_success_of_a_peer_replays_on_each_unsolved_prompt(tmp_path):
    steps = Steps(trio_spec(tmp_path))
    first = steps.make(QUESTIONS[:4], REWARDS)
    assert replayed(first) == []
    second = steps.idle("x")
    # Learner 0 has no answer to a, c and d; B alone solves a, C alone solves c, both solve d.
    (of_a, of_c, of_d) = sorted(replayed(second), key=lambda row: row[1])
    assert (of_a, of_c) == ((1, "a"), (2, "c"))
    assert of_d in ((1, "d"), (2, "d"))
    assert replayed(second, 1) == [(2, "c")]  # B solves all but c
    assert replayed(second, 2) in ([(0, "b"), (1, "a")], [(1, "a"), (1, "b")])
    # The row is that of its step, with a prompt number after the step's four.
    rows = [row for batch in second.mini_batches[0] for row in batch if row.question]
    taught = {(row.source, row.response): row for batch in first.mini_batches[0] for row in batch if row.response}
    for row in rows:
        same = taught[row.source, row.response]
        assert (row.advantage, row.omega, row.sample) == (same.advantage, same.omega, same.sample)
        assert row.advantage > 0
        assert not row.is_self
        assert row.response.text == f"{row.source}{row.question.id}{row.sample}"
    assert sorted(row.prompt for row in rows) == [4, 5, 6]


def test_rescues_replay_for_the_given_number_of_steps(tmp_path):
    steps = Steps(trio_spec(tmp_path, replay_steps=2))
    steps.make(QUESTIONS[:4], REWARDS)
    assert [len(replayed(steps.idle(name))) for name in "xyz"] == [3, 3, 0]
    assert not any(steps.replay.rescues)


def test_prompt_that_is_sampled_again_does_not_replay(tmp_path):
    steps = Steps(trio_spec(tmp_path))
    steps.make(QUESTIONS[:4], REWARDS)
    again = steps.make([QUESTIONS[0], *QUESTIONS[4:7]], torch.zeros_like(REWARDS))
    assert {name for _, name in replayed(again)} == {"c", "d"}
    assert {name for _, name in replayed(steps.idle("x"))} == {"c", "d"}  # nobody solved it the second time


@pytest.mark.parametrize("group", ["unscored", "partly scored"])
def test_own_group_without_a_score_makes_no_rescue(tmp_path, group):
    valid = torch.ones_like(REWARDS).bool()
    valid[0, 0, 0 if group == "partly scored" else slice(None)] = False
    steps = Steps(trio_spec(tmp_path))
    steps.make(QUESTIONS[:4], REWARDS, valid)
    assert ("a" in {name for _, name in replayed(steps.idle("x"))}) == (group == "partly scored")


def test_dropped_success_does_not_replay(tmp_path):
    steps = Steps(trio_spec(tmp_path))
    steps.make(QUESTIONS[:4], REWARDS, dropped="2")  # those of C are too long for everybody
    assert replayed(steps.idle("x")) == [(1, "a"), (1, "d")]


def test_draw_depends_neither_on_the_order_of_samples_nor_of_agents(tmp_path):
    everything = torch.stack([torch.zeros(4, 4), torch.ones(4, 4), torch.ones(4, 4)])
    order = {"cross_order": "source_order"}
    forward, backward = (Steps(trio_spec(tmp_path, names=names, **order)) for names in ("ABC", "CBA"))
    drawn = []
    for step in range(12):
        questions = [Question(f"{step}{place}", "?", "1") for place in range(4)]
        forward.make(questions, everything)
        backward.make(questions, everything.flip(0))
        ours, theirs = ([*steps.replay.rescues[place].values()] for steps, place in ((forward, 0), (backward, 2)))
        mine = [(one.question.id, one.source, one.sample) for one in ours if one.step == step]
        assert mine == [(one.question.id, 2 - one.source, one.sample) for one in theirs if one.step == step]
        drawn += mine
    sources = Counter(source for _, source, _ in drawn)
    samples = Counter(sample for *_, sample in drawn)
    assert min(sources.values()) > 12  # 24 expected of each
    assert min(samples[sample] for sample in range(4)) > 4  # 12 expected of each


# Trust


def test_rescues_of_an_untrusted_source_are_left_out_and_forgotten(tmp_path):
    steps = Steps(trio_spec(tmp_path, replay_steps=5))
    steps.make(QUESTIONS[:4], REWARDS)
    steps.trust.alignment[0][1].is_out = True
    assert {source for source, _ in replayed(steps.idle("x"))} == {2}
    steps.trust.alignment[0][1].is_out = False
    assert {source for source, _ in replayed(steps.idle("y"))} == {2}
    assert {source for source, _ in replayed(steps.idle("z"), 2)} <= {0, 1}  # another learner trusts it


def test_learner_without_trusted_sources_replays_nothing(tmp_path):
    steps = Steps(trio_spec(tmp_path))
    steps.make(QUESTIONS[:4], REWARDS)
    steps.trust.alignment[0][1].is_out = steps.trust.alignment[0][2].is_out = True
    plan = steps.idle("x")
    assert replayed(plan) == []
    assert len(plan.mini_batches[0]) == 1  # the self block


def test_only_successes_that_the_learner_trained_on_replay(tmp_path):
    steps = Steps(trio_spec(tmp_path, max_sources_per_learner=1))
    everything = torch.stack([torch.zeros(4, 4), torch.ones(4, 4), torch.ones(4, 4)])
    plan = steps.make(QUESTIONS[:4], everything)
    (source,) = {row.source for batch in plan.mini_batches[0] for row in batch if not row.is_self}
    assert replayed(steps.idle("x")) == [(source, name) for name in "abcd"]


# The mini-batches


@pytest.mark.parametrize(("passes", "sources"), [(1, 0), (2, 0), (3, 1)])
def test_replayed_rows_are_spread_evenly_over_the_cross_mini_batches_of_each_pass(tmp_path, passes, sources):
    training = {"num_iterations": passes, "mini_batch_size": 2}
    steps = Steps(trio_spec(tmp_path, max_sources_per_learner=sources, training=training))
    steps.make(QUESTIONS[:4], torch.stack([torch.zeros(4, 4), torch.ones(4, 4), torch.ones(4, 4)]))
    rewards = torch.stack([torch.zeros(4, 4), torch.zeros(4, 4), torch.zeros(4, 4)])
    before = Steps(trio_spec(tmp_path, max_sources_per_learner=sources, training=training, replay_steps=0))
    before.step = 1
    plan, plain = (one.make(QUESTIONS[4:], rewards) for one in (steps, before))
    fresh = [[row for row in batch if row.question is None] for batch in plan.mini_batches[0]]
    assert fresh == plain.mini_batches[0]
    counts = [len(batch) - len(own) for batch, own in zip(plan.mini_batches[0], fresh, strict=True)]
    num_own, per_pass = 2 * passes, 2 * (sources or 2)  # two mini-batches of each agent's four prompts
    assert len(counts) == num_own + per_pass * passes
    assert counts[:num_own] == [0] * num_own
    for iteration in range(passes):
        of_pass = plan.mini_batches[0][num_own + iteration * per_pass :][:per_pass]
        assert sorted(row.question.id for batch in of_pass for row in batch if row.question) == list("abcd")
        assert {sum(row.question is not None for row in batch) for batch in of_pass} == {4 // per_pass}


def test_off_by_default(tmp_path):
    agents = [{"name": name, "model": "unused"} for name in "ABC"]
    steps = Steps(make_spec(tmp_path, agents))
    steps.make(QUESTIONS[:4], REWARDS)
    assert replayed(steps.idle("x")) == []
    assert not any(steps.replay.rescues)


def test_state_is_json_and_restores_every_rescue(tmp_path):
    steps = Steps(trio_spec(tmp_path))
    steps.make(QUESTIONS[:4], REWARDS)
    resumed = Replay(steps.spec)
    resumed.load_state_dict(json.loads(json.dumps(steps.replay.state_dict())))
    assert resumed.rescues == steps.replay.rescues
    assert len(resumed.rescues[0]) == 3


# The agent


@pytest.mark.parametrize("name", ["hacpo", "naive_learner"])  # the latter scores shared rows itself
def test_replayed_row_is_evaluated_after_its_own_prompt(tmp_path, trio, name):
    spec = make_spec(tmp_path, trio[:2], algorithm={"name": name})
    agent = LocalAgent(spec.agents[0], spec, torch.device("cpu"), None)
    old, *present = [Question(str(place), f"{place}+{place}=", "1") for place in range(3)]
    response = Response("12", "12", "stop", 3, 3, -1.0)
    row = LearnerRow(0, 1, 0, False, 1.0, 1.0, response)
    agent.generate(0, [old])
    expected = agent._inputs_by_row([[row]])(row)
    agent.generate(1, present)
    replayed = LearnerRow(2, 1, 0, False, 1.0, 1.0, response, old)
    inputs_of = agent._inputs_by_row([[row, replayed]])
    assert inputs_of(replayed) == expected
    assert inputs_of(row) != expected  # the same response to another prompt


# Runs


@pytest.fixture(scope="module")
def trio(tmp_path_factory) -> list[dict]:
    root = tmp_path_factory.mktemp("trio")
    return [*make_pair(root), {"name": "Third", "model": str(make_agent(root / "third", "llama", seed=9))}]


def settings(**changes):
    algorithm = {"name": "hacpo", "delta": 0.8, "replay_steps": 2, **changes.pop("algorithm", {})}
    return {
        "rollout": {"num_generations": 2},  # few, so that rescues are frequent
        "training": {"steps": 4, "train_batch_size": 4, "mini_batch_size": 4, **changes.pop("training", {})},
        "evaluation": {"eval_interval": 0},
        "checkpoint": {"save_steps": 2, "keep": 2},
        "algorithm": algorithm,
        **changes,
    }


def bodies(found: list[dict]) -> list[dict]:
    return [{key: value for key, value in r.items() if key not in ("attempt", "seq", "time", "at")} for r in found]


@pytest.mark.parametrize("name", ["hacpo", "signed", "naive_learner", "transfer"])
def test_contributions_of_a_run_tell_age_prompt_and_sample(tmp_path, trio, name):
    algorithm = {"name": name} | ({"delta": 0.8} if name == "hacpo" else {})
    spec = make_spec(tmp_path, trio, **{**settings(), "algorithm": {**algorithm, "replay_steps": 2}})
    train(spec, tmp_path / "run")
    rows = records(tmp_path / "run", "contribution")
    rollouts = {(r["step"], r["agent"], r["prompt_id"], r["sample"]): r for r in records(tmp_path / "run", "rollout")}
    old = [row for row in rows if row["age"] is not None]
    assert {row["age"] for row in old} == {1, 2}
    assert any(row["weight"] for row in old)
    for row in old:
        sampled = rollouts[row["step"] - row["age"], row["source"], row["prompt_id"], row["sample"]]
        assert row["reward"] == sampled["reward"] > 0
        (first,) = (
            other for other in rows
            if (other["step"], other["agent"], other["source"]) == (sampled["step"], row["agent"], row["source"])
            and (other["prompt_id"], other["sample"], other["age"]) == (row["prompt_id"], row["sample"], None)
        )  # fmt: skip
        assert (row["advantage"], row["omega"]) == (first["advantage"], first["omega"])
        assert (row["num_tokens"], row["source_num_tokens"]) == (first["num_tokens"], first["source_num_tokens"])
        own = [
            r["reward"] for key, r in rollouts.items() if key[:3] == (sampled["step"], row["agent"], row["prompt_id"])
        ]
        assert own == [0.0, 0.0]
    counts = Counter((row["step"], row["agent"], row["source"]) for row in old)
    told = [r for r in records(tmp_path / "run", "metrics") if r["source"]]
    for record in told:
        assert record["values"]["replayed"] == counts[record["step"], record["agent"], record["source"]]
        assert record["ratios"]["used_frac"][1] == 8.0  # four prompts of two rollouts: none is replayed


@pytest.mark.parametrize("passes", [1, 2])
def test_resumed_run_repeats_the_uninterrupted_one_with_its_replayed_rows(tmp_path, trio, passes):
    spec = make_spec(tmp_path, trio, **settings(training={"num_iterations": passes}))
    whole = train(spec, tmp_path / "run")
    told = [r for r in records(tmp_path / "run", "contribution") if r["step"] > 2]
    folder = tmp_path / "run" / "checkpoints"
    (folder / "step-000004").rename(folder / "gone")
    found, _ = newest_checkpoint(tmp_path / "run")
    assert found is not None
    assert any(found.trainer["replay"])
    resumed = train(spec, tmp_path / "run", attempt=2)
    again = [r for r in records(tmp_path / "run", "contribution") if r["attempt"] == 2]
    assert bodies(again) == bodies(told)
    assert any(r["age"] == 2 and r["weight"] for r in again)  # sampled before the checkpoint
    for agent in range(3):
        ours, theirs = weights(resumed, agent), weights(whole, agent)
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert resumed.state_dict()["replay"] == whole.state_dict()["replay"]


def test_run_without_replay_has_neither_metric_nor_state(tmp_path, trio):
    spec = make_spec(tmp_path, trio[:2], **settings(algorithm={"replay_steps": 0}, training={"steps": 2}))
    trained = train(spec, tmp_path / "run")
    assert "replay" not in trained.state_dict()
    assert not [r for r in records(tmp_path / "run", "metrics") if "replayed" in r["values"]]
    assert {r["age"] for r in records(tmp_path / "run", "contribution")} == {None}


def test_alignment_is_that_of_the_steps_own_rollouts(tmp_path, trio):
    """The first step with replayed rows starts from the same weights with and without them."""
    measured = []
    for replay_steps in (0, 1):
        spec = make_spec(
            tmp_path,
            trio[:2],
            **settings(algorithm={"replay_steps": replay_steps}, training={"steps": 2}),
            telemetry={"alignment_interval": 2},
        )
        train(spec, tmp_path / f"run {replay_steps}")
        measured.append(
            [r["values"].get("gradient_alignment") for r in records(tmp_path / f"run {replay_steps}", "metrics")]
        )
    assert measured[0] == measured[1]
    assert any(value is not None for value in measured[0])
