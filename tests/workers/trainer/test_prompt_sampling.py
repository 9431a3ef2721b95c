"""Which questions a step asks: shares of several training sets, and runs that resume bit for bit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.workers.endings import assert_same_end
from tests.support.workers.tiny import HashVerifier, make_pair, make_spec, records, train, write_questions
from workers.agents.local import LocalAgent
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.questions.dataset import BenchmarkError, Question, split_sets
from workers.questions.generated import FreshQuestions
from workers.trainer.prompt_sampling import PromptSampler
from workers.trainer.rewards import Judges, open_set_verifiers, open_verifier
from workers.trainer.step import batch_of_step
from workers.trainer.stop_signals import StopFlag, Stopped
from workers.trainer.trainer import Trainer
from workers.verifiers.scoring.service import Verifier


def spec_of(root: Path, agents=None, **training) -> RunSpec:
    weights = training.pop("weights", {})
    sets = [{"benchmark": name, "train_path": "unused", "weight": weight} for name, weight in weights.items()]
    agents = agents or [{"name": name, "model": "unused"} for name in "AB"]
    return make_spec(root, agents, training={"benchmarks": sets, "steps": 4, **training})


def questions_of(name: str, count: int) -> list[Question]:
    return [Question(f"{name}{number}", f"{name}{number}?", "1", benchmark=name) for number in range(count)]


def sampler_of(spec, sets) -> PromptSampler:
    return PromptSampler(spec, [FreshQuestions(*pair) for pair in zip(spec.training_data, sets, strict=True)])


def ids(batch) -> list[str]:
    return [question.id for question in batch]


# Several sets


def test_one_set_is_drawn_as_ever(tmp_path):
    spec, own = spec_of(tmp_path), questions_of("a", 10)
    draw = sampler_of(spec, [own])
    assert not draw.has_state
    assert [draw.batch(step) for step in range(6)] == [batch_of_step(spec, step, own) for step in range(6)]


def test_every_batch_has_the_shares_of_the_weights(tmp_path):
    spec = spec_of(tmp_path, weights={"b": 1.0}, benchmark_weight=3.0)  # 3 of 4 prompts of the run's own
    draw = sampler_of(spec, [questions_of("a", 9), questions_of("b", 5)])
    for step in range(10):
        batch = draw.batch(step)
        assert Counter(question.benchmark for question in batch) == {"a": 3, "b": 1}
        assert len(set(ids(batch))) == 4
        draw.end_step(step)


def test_shares_that_no_batch_can_have_hold_over_the_run(tmp_path):
    spec = spec_of(tmp_path, weights={"b": 0.25, "c": 0.05}, benchmark_weight=0.7)
    draw = sampler_of(spec, [questions_of(name, 9) for name in "abc"])
    counts = Counter(question.benchmark for step in range(100) for question in draw.batch(step))
    # 400 prompts: 280, 100 and 20, each to within one.
    assert all(abs(counts[name] - expected) <= 1 for name, expected in {"a": 280, "b": 100, "c": 20}.items())


def test_each_set_is_asked_in_epochs_and_no_batch_asks_a_question_twice(tmp_path):
    spec = spec_of(tmp_path, weights={"b": 1.0})  # 2 of 4 prompts each
    draw = sampler_of(spec, [questions_of("a", 3), questions_of("b", 2)])
    orders = []
    counts: Counter[str] = Counter()
    for step in range(30):
        batch = draw.batch(step)
        assert len(set(ids(batch))) == 4
        counts.update(ids(batch))
        orders.append([one for one in ids(batch) if one[0] == "a"])
    assert {counts[f"a{number}"] for number in range(3)} == {20}  # 60 prompts of three questions
    assert {counts[f"b{number}"] for number in range(2)} == {30}
    assert len({tuple(sorted(pair)) for pair in orders}) == 3  # the order changes with the epoch


def test_draw_depends_on_the_seed_and_continues_from_its_state(tmp_path):
    spec = spec_of(tmp_path, weights={"b": 2.0})
    sets = [questions_of("a", 5), questions_of("b", 6)]

    def drawn(draw: PromptSampler, steps: range) -> list[list[str]]:
        batches = []
        for step in steps:
            batches.append(ids(draw.batch(step)))
            draw.end_step(step)
        return batches

    whole = drawn(sampler_of(spec, sets), range(12))
    other = spec.model_copy(update={"seed": 4})
    assert drawn(sampler_of(other, sets), range(12)) != whole
    for cut in (1, 5, 8):
        first = sampler_of(spec, sets)
        drawn(first, range(cut))
        first.batch(cut)  # a run that stops after drawing a batch asks it again
        second = sampler_of(spec, sets)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert drawn(second, range(cut, 12)) == whole[cut:]


def test_set_that_is_named_twice_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="'questions' is the run's own benchmark, which is trained on anyway"):
        spec_of(tmp_path, weights={"questions": 1.0})
    one = {"benchmark": "b", "train_path": "unused"}
    with pytest.raises(ValidationError, match="'b' is listed twice: remove one of the two"):
        make_spec(tmp_path, [{"name": "A", "model": "unused"}], training={"benchmarks": [one, one]})
    with pytest.raises(ValidationError, match="greater than 0"):
        spec_of(tmp_path, weights={"b": 0.0})


# Their questions


def lines(path: Path, *questions: tuple[str, str, str]) -> str:
    rows = [{"id": id_, "question": question, "answer": answer} for id_, question, answer in questions]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def data_of(root: Path, name: str, *questions, held_out=(), **settings):
    return {
        "benchmark": name,
        "train_path": lines(root / f"{name}.jsonl", *questions),
        "eval_path": lines(root / f"{name}-held-out.jsonl", *held_out) if held_out else None,
        "held_out_fraction": 0.0,
        **settings,
    }


def test_sets_share_no_question_no_id_and_no_held_out_question(tmp_path):
    own = data_of(tmp_path, "one", ("q1", "a", "1"), ("q2", "b", "2"), ("q3", "h", "0"), held_out=[("h", "z", "9")])
    further = data_of(
        tmp_path, "two", ("q1", "c", "3"), ("x", "b", "2"), ("y", "z", "9"), held_out=[("k", "h", "0")],
        prompt_template="Say {question}", system_prompt="Be brief.",
    )  # fmt: skip
    agents = [{"name": "A", "model": "unused"}]
    spec = make_spec(tmp_path, agents, data=own, training={"benchmarks": [further]})
    first, second = split_sets(*spec.training_data)
    assert [(one.id, one.question, one.benchmark) for one in first.train] == [("q1", "a", "one"), ("q2", "b", "one")]
    # b is the first set's, z is held out there, and the id q1 is taken.
    assert [(one.id, one.prompt, one.system) for one in second.train] == [("two/q1", "Say c", "Be brief.")]
    assert (first.num_overlapping, second.num_overlapping, second.num_repeated) == (1, 1, 1)
    assert [one.benchmark for one in first.held_out] == [""]
    with pytest.raises(
        BenchmarkError, match="three: every training question is held out, evaluated or in an earlier training set"
    ):
        split_sets(spec.data, spec.data.model_copy(update={"benchmark": "three"}))


def test_questions_of_evaluation_benchmarks_are_trained_on_in_no_set(tmp_path):
    own = data_of(tmp_path, "one", ("a1", "a", "1"), ("b1", "b", "2"))
    further = data_of(tmp_path, "two", ("c1", "c", "3"), ("d1", "d", "4"), ("e1", "e", "5"))
    whole = data_of(tmp_path, "whole", ("x", "b", "2"), ("y", "c", "3"))  # all of them are evaluated
    part = data_of(tmp_path, "part", ("z", "a", "1"), held_out=[("w", "d", "4")])  # only those of its file
    spec = make_spec(
        tmp_path, [{"name": "A", "model": "unused"}], data=own, training={"benchmarks": [further]},
        evaluation={"benchmarks": [whole, part]},
    )  # fmt: skip
    splits = split_sets(*spec.training_data, evaluated=spec.evaluation.benchmarks)
    assert [ids(split.train) for split in splits] == [["a1"], ["e1"]]
    assert [split.num_overlapping for split in splits] == [1, 2]


def test_training_set_without_held_out_questions_is_not_evaluated(tmp_path):
    agents, questions = [{"name": "A", "model": "unused"}], [("a", "a?", "1"), ("b", "b?", "2")]
    further = data_of(tmp_path, "two", *questions)
    with pytest.raises(ValidationError, match="'two' is a training set and would be evaluated on all of its questions"):
        make_spec(tmp_path, agents, training={"benchmarks": [further]}, evaluation={"benchmarks": [further]})
    for cure in ({"held_out_fraction": 0.5}, {"eval_path": "held-out.jsonl"}):
        cured = further | cure
        make_spec(tmp_path, agents, training={"benchmarks": [cured]}, evaluation={"benchmarks": [cured]})
    only_evaluated = {"benchmarks": [further], "steps": 0}
    make_spec(tmp_path, agents, training=only_evaluated, evaluation={"benchmarks": [further]})


# Runs


def two_sets(root: Path, **changes) -> RunSpec:
    """Questions with the verifier exact, and others in their own words with the verifier numeric."""
    more = root / "more.jsonl"
    rows = [{"id": f"q{n}", "question": f"{n}-3=", "answer": f"{n - 3}.0"} for n in range(12)]
    more.write_text("\n".join(json.dumps(row) for row in rows))
    further = {"benchmark": "more", "train_path": str(more), "held_out_fraction": 0.0, "verifier": "numeric"}
    further |= {"prompt_template": "({question})", "weight": 1.0}
    training = {"benchmarks": [further], "benchmark_weight": 3.0, "steps": 4, **changes.pop("training", {})}
    return make_spec(root, make_pair(root), training=training, checkpoint={"save_steps": 2}, **changes)


def stopped_and_resumed(spec: RunSpec, root: Path, monkeypatch, make_verifier) -> None:
    """Stop a run in its last step, after a checkpoint; it ends as the uninterrupted one."""
    train(spec, root / "whole", verifier=make_verifier())
    stop, original = StopFlag(), LocalAgent.generate

    def stopping(self, step, questions):
        stop.is_set = step == spec.training.steps - 1
        return original(self, step, questions)

    monkeypatch.setattr(LocalAgent, "generate", stopping)
    with pytest.raises(Stopped):
        train(spec, root / "cut", verifier=make_verifier(), stop=stop)
    monkeypatch.setattr(LocalAgent, "generate", original)
    train(spec, root / "cut", attempt=2, verifier=make_verifier())
    assert_same_end(root / "whole", root / "cut")


def test_run_on_two_sets_verifies_each_by_its_own_rules_and_resumes_bit_for_bit(tmp_path, monkeypatch):
    spec = two_sets(tmp_path)
    stopped_and_resumed(spec, tmp_path, monkeypatch, lambda: open_verifier(spec.data, spec.rewards))
    rollouts = records(tmp_path / "whole", "rollout")
    assert Counter(one["benchmark"] for one in rollouts) == {"questions": 4 * 3 * 8, "more": 4 * 8}  # steps x n G
    assert all(one["prompt"].endswith("-3=") for one in rollouts if one["benchmark"] == "more")
    # An answer "4" to 4.0 is correct for numeric, and would not be for exact.
    plain = [one for one in rollouts if one["benchmark"] == "more" and one["completion"].isdigit()]
    assert all(one["reward"] == (float(one["completion"]) == float(one["answer"])) for one in plain)
    verdicts = {(one["completion"] == one["answer"], one["reward"]) for one in rollouts if one["benchmark"] != "more"}
    assert verdicts <= {(True, 1.0), (False, 0.0)}
    metrics = [record["ratios"] for record in records(tmp_path / "whole", "metrics") if not record["source"]]
    assert all(record["sets/more/prompts"] == [1.0, 4.0] for record in metrics)
    assert all(record["sets/questions/reward/mean"][1] == 3 * 4 for record in metrics)  # 3 prompts, G answers
    log = [record["message"] for record in records(tmp_path / "whole", "log")]
    assert any(
        text.startswith("training set more: 12 questions, 25.0% of the prompts, verifier numeric/") for text in log
    )


def test_sets_with_equal_settings_share_a_verifier_that_is_closed_once(tmp_path, monkeypatch):
    sets = [
        {"benchmark": name, "train_path": "unused", "verifier": verifier}
        for name, verifier in {"b": "numeric", "c": "numeric", "d": "choice", "e": "exact"}.items()
    ]
    spec = make_spec(tmp_path, make_pair(tmp_path), training={"benchmarks": sets})
    verifiers = open_set_verifiers(spec, Judges())
    assert verifiers.keys() == {"b", "c", "d"}  # e has the run's own
    assert verifiers["b"] is verifiers["c"] is not verifiers["d"]
    for one in verifiers.values():
        one.close()

    closed: Counter[int] = Counter()
    monkeypatch.setattr(Verifier, "close", lambda self: closed.update([id(self)]))
    spool = SpoolWriter(tmp_path, 1)
    trainer = Trainer(spec, tmp_path, spool, HashVerifier(), StopFlag())
    trainer.close()
    spool.close()
    assert set(closed.values()) == {1}
    assert len(closed) == 2  # of the further sets: numeric and choice


def test_without_further_sets_nothing_is_recorded_of_them(tmp_path):
    train(make_spec(tmp_path, make_pair(tmp_path), training={"steps": 1}), tmp_path / "run")
    stored = records(tmp_path / "run", "metrics")
    assert "sets/" not in json.dumps(stored)
    assert {one["benchmark"] for one in records(tmp_path / "run", "rollout")} == {""}


def test_set_without_enough_questions_ends_a_run_with_a_sentence(tmp_path):
    spec = two_sets(tmp_path, training={"train_batch_size": 20, "mini_batch_size": 20, "benchmark_weight": 0.25})
    write_questions(tmp_path / "questions.jsonl")
    with pytest.raises(
        ValueError, match="12 training questions of more cannot fill a batch of 20, of which 16 are of m"
    ):
        train(spec, tmp_path / "run")
