"""Dynamic sampling: which prompts have no signal and what replaces them, by hand; and runs with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from tests.support.workers.endings import assert_same_end
from tests.support.workers.ranks_in_threads import put_ranks_into_threads
from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train
from workers.agents.local import LocalAgent
from workers.agents.messages import GeneratedRollouts, Response, RolloutsMissing
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question, split_questions
from workers.trainer.prompt_sampling import (
    DynamicSampling,
    SampledStep,
    extra_questions,
    has_no_signal,
    joined_scores,
)
from workers.trainer.scoring import JudgeTally, Scores
from workers.trainer.step import batch_of_step
from workers.trainer.stop_signals import StopFlag, Stopped
from workers.trainer.trust import Trust
from workers.verifiers.scoring.verdicts import Verdict

NONE, SOME, ALL = [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]
GSPO = {"name": "gspo"}


def spec_of(root, algorithm=None, **rollout) -> RunSpec:
    agents = [{"name": name, "model": "unused"} for name in "AB"]
    sections = {"num_generations": 2, "max_extra_prompts": 5, **rollout}
    return make_spec(root, agents, algorithm=algorithm or {}, rollout=sections)


def trust_of(spec: RunSpec) -> Trust:
    return Trust([agent.name for agent in spec.agents], spec.sharing)


def rollouts(names: Sequence[str], num_tokens: int = 2) -> list[GeneratedRollouts]:
    """Of two agents, two responses to each prompt."""
    group = [Response("1", "1", "stop", num_tokens, num_tokens, -1.0)] * 2
    return [GeneratedRollouts([group for _ in names], (1.0, 2.0)) for _ in range(2)]


def scores_of(*by_prompt: tuple[list[float], list[float]], valid: torch.Tensor | None = None) -> Scores:
    """by_prompt: the rewards of A and of B."""
    rewards = torch.tensor(by_prompt).transpose(0, 1)  # (n, B, G)
    return Scores(rewards, torch.ones_like(rewards).bool() if valid is None else valid, [0, 0])


def questions_of(names: str) -> list[Question]:
    return [Question(name, f"{name}?", "1") for name in names]


# Which prompts have no signal


MIXED = scores_of((NONE, NONE), (ALL, ALL), (NONE, ALL), (SOME, NONE), (NONE, SOME))


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        # Agents that share learn from each other's failures and successes: only what all of them agree on is lost.
        ({"name": "hacpo"}, [True, True, False, False, False]),
        ({"name": "naive_source"}, [True, True, False, False, False]),
        # Alone, none learns from a prompt on which its own rewards are equal; one that learns is enough.
        (GSPO, [True, True, True, False, False]),
        ({"name": "hacpo", "sharing": False}, [True, True, True, False, False]),
    ],
)
def test_prompt_without_a_signal_is_one_from_which_no_learner_learns(tmp_path, algorithm, expected):
    spec = spec_of(tmp_path, algorithm)
    assert has_no_signal(spec, rollouts("abcde"), MIXED, trust_of(spec)) == expected


def test_source_that_is_not_trusted_gives_no_signal(tmp_path):
    spec = spec_of(tmp_path, {"name": "hacpo", "peer_quarantine": True})
    trust = trust_of(spec)
    trust.alignment[0][1].is_out = True  # A does not learn from B, but B from A
    assert has_no_signal(spec, rollouts("abcde"), MIXED, trust) == [True, True, False, False, False]
    trust.alignment[1][0].is_out = True
    assert has_no_signal(spec, rollouts("abcde"), MIXED, trust) == [True, True, True, False, False]


def test_unscorable_rollouts_give_no_signal(tmp_path):
    spec, valid = spec_of(tmp_path), torch.ones(2, 2, 2).bool()
    valid[0, 0, 0] = False  # the only success of prompt 0
    valid[:, 1] = False
    scores = scores_of((SOME, NONE), (SOME, NONE), valid=valid)
    assert has_no_signal(spec, rollouts("ab"), scores, trust_of(spec)) == [True, True]


def test_overlong_penalty_is_a_signal(tmp_path):
    spec = spec_of(tmp_path, {"name": "hacpo", "overlong_cache": 4})  # of 6 tokens
    generated = rollouts("a")
    generated[0].responses[0] = [Response("1", "1", "stop", count, count, -1.0) for count in (2, 4)]
    assert has_no_signal(spec, generated, scores_of((ALL, ALL)), trust_of(spec)) == [False]


# What replaces them


class Source:
    """Further prompts whose rewards are known."""

    def __init__(self, rewards: dict[str, tuple[list[float], list[float]]], fails_in: int = 0) -> None:
        self.rewards, self.fails_in = rewards, fails_in
        self.rounds: list[str] = []

    def __call__(self, questions):
        self.rounds.append("".join(question.id for question in questions))
        if len(self.rounds) == self.fails_in:
            return None
        return rollouts(self.rounds[-1]), scores_of(*(self.rewards[question.id] for question in questions))


def filled(root, source: Source, extra: str, *drawn: tuple[list[float], list[float]]) -> SampledStep:
    spec, names = spec_of(root), "abcd"[: len(drawn)]
    start = SampledStep(questions_of(names), rollouts(names), scores_of(*drawn), range(len(drawn)))
    return DynamicSampling(spec, trust_of(spec), source).fill(start, questions_of(extra))


def trained(step: SampledStep) -> str:
    return "".join(question.id for question in step.trained().questions)


def test_prompts_with_a_signal_take_the_places_of_those_without_in_their_order(tmp_path):
    source = Source({"u": (ALL, ALL), "v": (SOME, NONE), "w": (NONE, NONE), "x": (NONE, ALL), "y": (SOME, SOME)})
    step = filled(tmp_path, source, "uvwxy", (NONE, NONE), (SOME, NONE), (ALL, ALL), (NONE, NONE))
    # Three places: u, v, w, of which v fits; two are left: x and y, which both fit.
    assert source.rounds == ["uvw", "xy"]
    assert trained(step) == "vbxy"
    assert (step.num_extra, step.num_replaced, step.num_uninformative) == (5, 3, 3)
    assert step.trained().scores.rewards.tolist() == [[SOME, SOME, NONE, SOME], [NONE, NONE, ALL, SOME]]
    assert [len(own.responses) for own in step.generated] == [9, 9]
    assert step.generated[0].entropy == (3.0, 6.0)  # of the batch and two rounds


def test_prompt_without_a_replacement_stays(tmp_path):
    source = Source({"u": (ALL, ALL), "v": (SOME, NONE)})
    step = filled(tmp_path, source, "uv", (NONE, NONE), (ALL, ALL), (NONE, NONE))
    assert source.rounds == ["uv"]
    assert trained(step) == "vbc"
    assert (step.num_extra, step.num_replaced, step.num_uninformative) == (2, 1, 3)


def test_batch_with_signals_samples_nothing_further(tmp_path):
    source = Source({})
    step = filled(tmp_path, source, "uv", (SOME, NONE), (NONE, ALL))
    assert (source.rounds, trained(step), step.num_extra) == ([], "ab", 0)
    assert step.trained() == step


def test_round_that_an_agent_cannot_deliver_is_the_last(tmp_path):
    source = Source({"u": (SOME, NONE), "v": (ALL, ALL), "w": (SOME, NONE)}, fails_in=2)
    step = filled(tmp_path, source, "uvwx", (NONE, NONE), (ALL, ALL))
    assert source.rounds == ["uv", "w"]
    assert trained(step) == "ub"


def test_step_without_the_rollouts_of_an_agent_samples_nothing_further(tmp_path):
    spec, source = spec_of(tmp_path), Source({})
    generated = [rollouts("a")[0], GeneratedRollouts([[]], (0.0, 0.0), is_missing=True)]
    valid = torch.tensor([[[True, True]], [[False, False]]])
    start = SampledStep(questions_of("a"), generated, scores_of((NONE, NONE), valid=valid), range(1))
    assert DynamicSampling(spec, trust_of(spec), source).fill(start, questions_of("u")).num_extra == 0
    assert source.rounds == []


def test_parts_and_judges_of_all_rounds_are_added_up():
    first, then = scores_of((SOME, NONE)), scores_of((ALL, NONE))
    first = replace(first, judges={"verifier": [JudgeTally(1, 2, 3, 4.0, 5.0), JudgeTally()]})
    parts = {"verifier": torch.full((2, 1, 2), 0.5), "f.x": torch.full((2, 1, 2), 7.0)}
    judges = {"verifier": [JudgeTally(10, 20, 30, 40.0, 50.0), JudgeTally(1)]}
    both = joined_scores(first, Scores(then.rewards, then.valid, [1, 2], parts, judges, {"verifier": 9.0}))
    assert both.judges == {"verifier": [JudgeTally(11, 22, 33, 44.0, 55.0), JudgeTally(1)]}
    assert both.parts["verifier"][0].tolist() == [[1.0, 0.0], [0.5, 0.5]]  # alone, the verifier's is the total
    assert both.parts["f.x"][0, 0].isnan().all()
    assert both.parts["f.x"][0, 1].tolist() == [7.0, 7.0]
    assert (both.timeouts, both.spent) == ([1, 2], {"verifier": 9.0})


# Which prompts are drawn


def test_extra_prompts_are_others_than_the_batch_and_the_same_in_each_attempt(tmp_path):
    spec = spec_of(tmp_path)
    train_questions = split_questions(spec.data).train
    drawn = []
    for step in (0, 1):
        batch = batch_of_step(spec, step, train_questions)
        extra = extra_questions(spec, step, batch, train_questions)
        assert len(extra) == 5
        assert not {question.id for question in batch} & {question.id for question in extra}
        assert len({question.id for question in extra}) == 5
        assert extra == extra_questions(spec, step, batch, train_questions)
        drawn.append([question.id for question in extra])
    assert drawn[0] != drawn[1]
    everything = spec_of(tmp_path, max_extra_prompts=100)
    batch = batch_of_step(spec, 0, train_questions)
    assert len(extra_questions(everything, 0, batch, train_questions)) == len(train_questions) - 4
    assert extra_questions(spec_of(tmp_path, max_extra_prompts=0), 0, batch, train_questions) == []


def test_extra_prompts_are_refused_with_rollouts_that_are_sampled_ahead(tmp_path):
    with pytest.raises(ValidationError, match=r"set max_staleness to 0, or this to 0"):
        spec_of(tmp_path, max_staleness=1)


# Runs


class RareVerifier(HashVerifier):
    """About one answer in sixteen is correct, so many prompts have no signal."""

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        scored = super().score([f"rare|{text}" for text in completions], answers)
        return [
            Verdict(float(verdict.reward == 1 and len(text) % 5 == 0), "rare")
            for verdict, text in zip(scored, completions, strict=True)
        ]


def run_spec(root, **changes) -> RunSpec:
    rollout = {"max_extra_prompts": 6, **changes.pop("rollout", {})}
    settings = {"checkpoint": {"save_steps": 2}, "training": {"steps": 4}, **changes}
    return make_spec(root, make_pair(root), rollout=rollout, **settings)


def test_run_counts_every_sampled_rollout_and_trains_whole_batches(tmp_path):
    spec = run_spec(tmp_path)
    train(spec, tmp_path / "run", verifier=RareVerifier())
    metrics = [record for record in records(tmp_path / "run", "metrics") if not record["source"]]
    of_agent = [record for record in metrics if record["agent"] == "Qwen"]
    extra = [record["values"]["resampling/extra_prompts"] for record in of_agent]
    replaced = [record["values"]["resampling/replaced_prompts"] for record in of_agent]
    assert 0 < sum(replaced) <= sum(extra)
    assert all(0 <= number <= 6 for number in extra)
    for record, number in zip(of_agent, extra, strict=True):
        assert record["ratios"]["reward/mean"][1] == (4 + number) * 4  # (B + extra) x G
        lost, of_batch = record["ratios"]["resampling/no_signal_frac"]
        still_lost, _ = record["ratios"]["frac_reward_zero_std_joint"]
        assert of_batch == 4
        assert lost - still_lost == record["values"]["resampling/replaced_prompts"]
    progress = records(tmp_path / "run", "progress")
    assert progress[-1]["rollouts_generated"] == 2 * 4 * (4 * 4 + sum(extra))  # n G (steps B + extra)
    stored = records(tmp_path / "run", "rollout")
    assert len(stored) == 4 * 2 * 4 * 4
    # What is stored of a step is what its learners trained on.
    for step in range(1, 5):
        shown = {record["prompt_id"] for record in stored if record["step"] == step}
        used = {record["prompt_id"] for record in records(tmp_path / "run", "contribution") if record["step"] == step}
        assert len(shown) == 4
        assert shown == used
    # The agent's own tokens are those of the prompt that is trained, not of the one in whose place it is.
    own = [one for one in records(tmp_path / "run", "contribution") if one["source"] == one["agent"]]
    lengths = [(one["num_tokens"], one["source_num_tokens"]) for one in own if one["num_tokens"]]
    assert len(lengths) > 20
    assert all(trained == sampled for trained, sampled in lengths)


@pytest.mark.parametrize("algorithm", [{"name": "grpo"}, {"name": "gspox2"}])
def test_other_rules_train_with_replaced_prompts(tmp_path, algorithm):
    spec = run_spec(tmp_path, algorithm=algorithm, training={"steps": 2}, evaluation={"eval_interval": 0})
    trainer = train(spec, tmp_path / "run", verifier=RareVerifier())
    values = [record["values"] for record in records(tmp_path / "run", "metrics") if not record["source"]]
    assert sum(one["resampling/replaced_prompts"] for one in values) > 0
    assert trainer.step == 2


def test_without_extra_prompts_nothing_is_recorded_of_them(tmp_path):
    train(run_spec(tmp_path, rollout={"max_extra_prompts": 0}, training={"steps": 1}), tmp_path / "run")
    assert not any("resampling" in json.dumps(record) for record in records(tmp_path / "run", "metrics"))


def test_stopped_between_two_rounds_a_run_resumes_bit_for_bit(tmp_path, monkeypatch):
    spec = run_spec(tmp_path)
    train(spec, tmp_path / "whole", verifier=RareVerifier())
    stop, original, calls = StopFlag(), LocalAgent.generate_extra, []

    def stopping(self, step, questions):
        calls.append(step)
        if step == 3:  # in the last step, after the checkpoint of step 2
            stop.is_set = True
        return original(self, step, questions)

    monkeypatch.setattr(LocalAgent, "generate_extra", stopping)
    with pytest.raises(Stopped):
        train(spec, tmp_path / "cut", verifier=RareVerifier(), stop=stop)
    monkeypatch.setattr(LocalAgent, "generate_extra", original)
    assert 3 in calls
    train(spec, tmp_path / "cut", attempt=2, verifier=RareVerifier())
    assert_same_end(tmp_path / "whole", tmp_path / "cut")
    totals = [records(tmp_path / name, "progress")[-1]["rollouts_generated"] for name in ("whole", "cut")]
    assert totals[0] == totals[1]


def test_agents_in_processes_of_their_own_end_at_the_same_weights(tmp_path, monkeypatch):
    spec = run_spec(tmp_path, training={"steps": 2})
    train(spec, tmp_path / "local", verifier=RareVerifier())
    put_ranks_into_threads(monkeypatch)
    apart = spec.model_copy(update={"compute": spec.compute.model_copy(update={"placement": "processes"})})
    train(apart, tmp_path / "apart", verifier=RareVerifier()).close()
    assert_same_end(tmp_path / "local", tmp_path / "apart")


def test_memory_that_runs_out_in_further_prompts_costs_no_step(tmp_path, monkeypatch):
    def failing(self, step, questions):
        raise RolloutsMissing("no memory")

    monkeypatch.setattr(LocalAgent, "generate_extra", failing)
    trainer = train(run_spec(tmp_path, training={"steps": 2}), tmp_path / "run", verifier=RareVerifier())
    assert trainer.step == 2
    warnings = [record["message"] for record in records(tmp_path / "run", "log") if record["level"] == "warning"]
    assert any("samples no further prompts: Qwen: no memory" in text for text in warnings)
