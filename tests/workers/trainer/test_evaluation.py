"""Evaluations: k samples, votes, what cannot be scored, further benchmarks, and runs that only evaluate."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.workers.tiny import HashVerifier, make_spec, records, train, write_questions
from workers.agents.messages import FinalAnswer
from workers.contract.sample_estimators import Vote
from workers.contract.spec.data import DataSpec
from workers.contract.verifier_kinds import kind_label
from workers.questions.canonical import MAX_SLICES
from workers.questions.dataset import Question, split_questions
from workers.trainer import evaluation as evaluation_module
from workers.trainer import rewards as rewards_module
from workers.trainer.checkpoints import newest_checkpoint
from workers.trainer.evaluation import EvaluationSet, Result, evaluation_event, questions_digest, results_of
from workers.trainer.progress import code_versions, git_commit
from workers.trainer.stop_signals import Paused, StopFlag, Stopped
from workers.verifiers.scoring.service import Verdict
from workers.verifiers.scoring.voting import vote

SAMPLED = {"temperature": 1.0, "num_samples": 3}


def further(root: Path, name: str = "further", count: int = 7, **more: Any) -> dict[str, Any]:
    """A benchmark of questions that are not the run's own."""
    path = root / f"{name}.jsonl"
    lines = [{"id": f"f{n}", "question": f"{n}+0=", "answer": str(n), "difficulty": str(n % 2)} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"benchmark": name, "train_path": str(path), "verifier": "exact", **more}


# Votes


def test_right_samples_are_one_answer_and_wrong_ones_go_together_where_they_are_the_same_number():
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", r"\boxed{4}", r"\boxed{4.0}", r"\boxed{x+1}", "no answer"]
    votes, majority = vote("math", texts, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    assert votes == [Vote(2, False), Vote(2, True), Vote(1, False)]
    assert majority == r"\frac{1}{2}"  # as frequent as 4, and the first


def test_unscorable_and_empty_answers_have_no_vote():
    assert vote("math", [r"\boxed{1}", "?"], [None, 0.0]) == ([], "")
    # Right without an answer that could be cut out: tests of code, for example.
    assert vote("math", ["def f(): ..."], [1.0]) == ([Vote(1, True)], "")


def test_whole_response_is_the_answer_where_the_verifier_takes_it_so():
    assert vote("exact", ["42 ", "42", "41"], [0.0, 0.0, 0.0]) == ([Vote(2, False), Vote(1, False)], "42")


def test_letters_of_multiple_choice_are_one_answer_however_they_are_written():
    texts = [r"\boxed{(B)}", "B.", r"\boxed{\text{B}}", "C"]
    assert vote("choice", texts, [0.0] * 4) == ([Vote(3, False), Vote(1, False)], "B")


# What is told


def result(question: Question, *rewards: float | None) -> Result:
    votes = [Vote(sum(r == 1 for r in rewards), True), Vote(sum(r == 0 for r in rewards), False)]
    return Result(question, rewards, [one for one in votes if one.count], "7", "text")


def test_estimates_and_slices_leave_out_what_cannot_be_scored():
    questions = [Question("1", "?", "1", "x", "easy"), Question("2", "?", "1", "x"), Question("3", "?", "1")]
    benchmark = EvaluationSet(DataSpec(benchmark="sums", train_path="-"), questions, 2)
    rewards = [(1.0, None), (0.0, 1.0), (None, None)]
    results = [result(question, *of) for question, of in zip(questions, rewards, strict=True)]
    found = evaluation_event(4, "A", benchmark, results)
    # 1: 1 of 1; 2: 1 of 2; 3 is in nothing. avg = (1 + 1/2) / 2; pass@2 of question 2 alone; maj: 1 and a tie.
    assert found.value == found.estimates["avg@2"] == pytest.approx(0.75)
    assert found.estimates == {"avg@2": 0.75, "pass@1": 0.75, "pass@2": 1.0, "maj@2": 0.75, "best@2": 1.0}
    assert (found.correct, found.asked, found.unscorable, found.num_samples) == (2, 3, 3, 2)
    assert found.slices == {"x": (2, 3), "difficulty: easy": (1, 1)}
    assert [one.marks for one in results] == ["1-", "01", "--"]
    assert found.questions == questions_digest(questions)
    assert found.verifier == kind_label("math")


def test_partial_credit_counts_in_the_mean_and_in_slices_but_solves_nothing():
    questions = [Question("1", "?", "1", "x"), Question("2", "?", "1", "x")]
    results = [result(questions[0], 0.5, 0.25), result(questions[1], 1.0, 0.0)]
    found = evaluation_event(4, "A", EvaluationSet(DataSpec(train_path="-"), questions, 2), results)
    # avg: ((0.5 + 0.25) / 2 + (1 + 0) / 2) / 2; only the second question has a correct sample.
    assert found.value == found.estimates["avg@2"] == 0.4375
    assert (found.estimates["pass@1"], found.estimates["best@2"]) == (0.25, 0.5)
    assert (found.correct, found.asked) == (1, 4)
    assert found.slices == {"x": (1.75, 4)}
    assert [one.marks for one in results] == ["~~", "10"]


def test_subject_for_each_question_makes_no_slice_for_each():
    asked = [Question(f"q{n}", "?", "1", subject=f"S{n}") for n in range(MAX_SLICES + 3)]
    results = [Result(question, [1.0], [], "", "") for question in asked]
    found = evaluation_event(0, "A", EvaluationSet(DataSpec(train_path="-"), asked, 1), results).slices
    assert len(found) == MAX_SLICES + 1
    assert (found["S0"], found["others"]) == ((1, 1), (3, 3))


def test_accuracy_of_nothing_that_could_be_scored_is_no_number():
    question = Question("1", "?", "1")
    found = evaluation_event(0, "A", EvaluationSet(DataSpec(train_path="-"), [question], 1), [result(question, None)])
    assert math.isnan(found.value)
    assert (found.correct, found.asked, found.unscorable, found.estimates) == (0, 0, 1, {})


def test_digest_is_of_ids_questions_and_answers_in_their_order():
    base = [Question("1", "a", "x"), Question("2", "b", "y")]
    others = [
        [Question("3", "a", "x"), base[1]],
        [Question("1", "c", "x"), base[1]],
        [Question("1", "a", "z"), base[1]],
        base[::-1],
        base[:1],
    ]
    assert len({questions_digest(found) for found in [base, *others]}) == 6
    assert questions_digest(base) == questions_digest([Question("1", "a", "x", "subject", "hard"), base[1]])


def test_results_pair_each_sample_with_its_question():
    class Scores:
        def score(self, pairs):
            return [Verdict(float(text == question.answer), "") for text, question in pairs]

        def paid(self, answer):
            return None

    benchmark = EvaluationSet(
        DataSpec(train_path="-", verifier="exact"), [Question("1", "?", "a"), Question("2", "?", "b")], 2
    )
    answers = [FinalAnswer(text) for text in ("a", "b", "b", "b")]
    found = results_of(benchmark, benchmark.questions, answers, Scores())  # type: ignore[arg-type]
    assert [one.marks for one in found] == ["10", "11"]
    assert [one.response for one in found] == ["a", "b"]
    assert [one.majority for one in found] == ["a", "b"]


# The trainer


def event_bodies(run_dir: Path, *kinds: str) -> list[dict[str, Any]]:
    """Events of these types, without what differs between two runs of the same."""
    found = [record for kind in kinds for record in records(run_dir, kind)]
    return [{k: v for k, v in record.items() if k not in ("seq", "time", "attempt")} for record in found]


def test_samples_of_each_question_are_recorded_and_repeat_themselves(tmp_path, pair):
    spec = make_spec(tmp_path, pair, evaluation=SAMPLED, training={"steps": 1, "max_unscorable": 1.0})
    for name in ("first", "second"):
        train(spec, tmp_path / name, verifier=HashVerifier(unscorable="1"))
    assert event_bodies(tmp_path / "first", "answers", "evaluation") == event_bodies(
        tmp_path / "second", "answers", "evaluation"
    )
    (asked,) = event_bodies(tmp_path / "first", "questions")
    events = records(tmp_path / "first", "evaluation")
    assert [(e["step"], e["agent"]) for e in events] == [(0, "Qwen"), (0, "Llama"), (1, "Qwen"), (1, "Llama")]
    for event, answers in zip(events, records(tmp_path / "first", "answers"), strict=True):
        marks = "".join(answers["marks"])
        assert {len(one) for one in answers["marks"]} == {3}
        assert len(answers["marks"]) == len(asked["ids"]) == len(answers["responses"])
        assert (event["correct"], event["unscorable"]) == (marks.count("1"), marks.count("-"))
        assert event["asked"] == len(marks) - marks.count("-")
        # pass@j only where j samples of some question could be scored.
        names = {"avg@3", "pass@1", "pass@2", "pass@3", "maj@3", "best@3"}
        assert {"avg@3", "pass@1", "maj@3", "best@3"} <= set(event["estimates"]) <= names
        assert event["estimates"]["avg@3"] == event["value"]
        assert event["verifier"] == kind_label("exact")
    assert sum(event["unscorable"] for event in events)
    lost = [r["message"] for r in records(tmp_path / "first", "log") if "are left out" in r["message"]]
    assert len(lost) == sum(event["unscorable"] > 0 for event in events)


def test_memory_is_bounded_by_the_block_whatever_k(tmp_path, pair, monkeypatch):
    asked: list[int] = []
    original = evaluation_module.results_of

    def counted(benchmark, block, texts, scorer):
        asked.append(len(texts))
        return original(benchmark, block, texts, scorer)

    monkeypatch.setattr(evaluation_module, "results_of", counted)
    evaluation = {"temperature": 1.0, "num_samples": 5}
    train(
        make_spec(tmp_path, pair[:1], evaluation=evaluation, rollout={"rollout_batch_size": 11}, training={"steps": 0}),
        tmp_path / "run",
    )
    assert max(asked) == 10
    assert sum(asked) == 5 * 6  # six held-out questions


class AsksAt(HashVerifier):
    """Sets a flag while call number `call` is verified."""

    def __init__(self, stop: StopFlag, name: str, call: int) -> None:
        super().__init__()
        self.stop, self.name, self.left = stop, name, call

    def score(self, completions, answers):
        self.left -= 1
        if not self.left:
            setattr(self.stop, self.name, True)
        return super().score(completions, answers)


# Blocks of two questions: three for each of two agents. Call 5 is Llama's second block.
@pytest.mark.parametrize(("flag", "error"), [("is_pause_requested", Paused), ("is_set", Stopped)])
def test_pause_and_stop_act_during_an_evaluation_which_then_repeats_itself(tmp_path, pair, flag, error):
    spec = make_spec(tmp_path, pair, rollout={"rollout_batch_size": 2}, training={"steps": 0})
    train(spec, tmp_path / "whole")
    stop = StopFlag()
    with pytest.raises(error):
        train(spec, tmp_path / "run", verifier=AsksAt(stop, flag, 5), stop=stop)
    assert [r["agent"] for r in records(tmp_path / "run", "evaluation")] == ["Qwen"]  # no half evaluation is told
    train(spec, tmp_path / "run", attempt=2)
    again = [r for kind in ("evaluation", "answers") for r in event_bodies(tmp_path / "run", kind)[1:]]
    assert again == [r for kind in ("evaluation", "answers") for r in event_bodies(tmp_path / "whole", kind)]


def test_further_benchmarks_are_evaluated_before_the_first_step_and_after_the_last(tmp_path, pair):
    spec = make_spec(tmp_path, pair, evaluation={"eval_interval": 1, "benchmarks": [further(tmp_path)]})
    train(spec, tmp_path / "run")
    places = [(r["benchmark"], r["step"]) for r in records(tmp_path / "run", "evaluation") if r["agent"] == "Qwen"]
    own = [("questions", step) for step in range(4)]
    assert sorted(places) == sorted([*own, ("further", 0), ("further", 3)])
    first = next(r for r in records(tmp_path / "run", "evaluation") if r["benchmark"] == "further")
    assert set(first["slices"]) == {"difficulty: 0", "difficulty: 1"}
    asked = {r["benchmark"]: r["ids"] for r in records(tmp_path / "run", "questions")}
    assert asked["further"] == [f"f{n}" for n in range(7)]


def test_best_checkpoint_is_that_of_the_run_s_own_benchmark(tmp_path, pair):
    spec = make_spec(tmp_path, pair, training={"steps": 1}, evaluation={"benchmarks": [further(tmp_path)]})
    trainer = train(spec, tmp_path / "run")
    own = [
        r["value"] for r in records(tmp_path / "run", "evaluation") if (r["step"], r["benchmark"]) == (1, "questions")
    ]
    assert trainer.evaluations.score == (1, pytest.approx(sum(own) / 2))


def test_further_benchmark_is_scored_by_its_own_verifier(tmp_path, pair, monkeypatch):
    made: list[tuple[str, str]] = []

    class Other(HashVerifier):
        def __init__(self, kind: str, processes: int, tolerance: Any, extraction: str) -> None:
            super().__init__()
            made.append((kind, extraction))

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None: ...

        def score(self, completions, answers):
            return [Verdict(1.0, "") for _ in completions]

    monkeypatch.setattr(rewards_module, "Verifier", Other)
    asked = [further(tmp_path, verifier="math", extraction="flexible"), further(tmp_path, "same")]
    train(make_spec(tmp_path, pair[:1], training={"steps": 0}, evaluation={"benchmarks": asked}), tmp_path / "run")
    assert made == [("math", "flexible")]
    found = {r["benchmark"]: (r["value"], r["verifier"]) for r in records(tmp_path / "run", "evaluation")}
    assert found["further"] == (1.0, kind_label("math", "flexible"))
    assert found["same"][1] == kind_label("exact")


def test_held_out_questions_are_evaluated_or_all_where_none_are_held_out(tmp_path, pair):
    write_questions(tmp_path / "eval.jsonl", 5)
    asked = [further(tmp_path, "part", 20, held_out_fraction=0.5), further(tmp_path, "file", eval_path="eval.jsonl")]
    asked[1]["eval_path"] = str(tmp_path / "eval.jsonl")
    train(make_spec(tmp_path, pair[:1], training={"steps": 0}, evaluation={"benchmarks": asked}), tmp_path / "run")
    ids = {r["benchmark"]: r["ids"] for r in records(tmp_path / "run", "questions")}
    assert ids["file"] == [f"q{number}" for number in range(5)]
    assert ids["part"] == [question.id for question in split_questions(DataSpec(**asked[0])).held_out]


# Runs that only evaluate


def test_run_of_no_step_evaluates_and_keeps_nothing_for_training(tmp_path, pair):
    spec = make_spec(tmp_path, pair, training={"steps": 0}, algorithm={"name": "gspo", "beta": 0.1})
    trainer = train(spec, tmp_path / "run")
    assert [r["agent"] for r in records(tmp_path / "run", "evaluation")] == ["Qwen", "Llama"]
    assert not records(tmp_path / "run", "checkpoint")
    assert not (tmp_path / "run" / "checkpoints").exists()
    for place in (0, 1):
        policy = trainer.agents[place].policy  # type: ignore[attr-defined]
        assert policy.optimizer.num_trained == 0
        assert policy.reference is None
        assert policy.optimizer.state_tensors() == {}
        assert not any(parameter.requires_grad for parameter in policy.model.parameters())
    messages = [record["message"] for record in records(tmp_path / "run", "log")]
    assert "6 questions of questions, 0 left out as too long" in messages
    progress = records(tmp_path / "run", "progress")
    assert progress[-1]["eta_s"] == 0
    assert (progress[-1]["step"], progress[-1]["total_steps"], progress[-1]["rollouts_generated"]) == (0, 0, 0)


def test_exported_checkpoint_evaluated_alone_gives_the_numbers_of_the_end_of_its_training(tmp_path, pair):
    changes = {"evaluation": {"benchmarks": [further(tmp_path)]}}
    spec = make_spec(tmp_path, pair, **changes)
    train(spec, tmp_path / "run")
    newest, _ = newest_checkpoint(tmp_path / "run")
    assert newest is not None
    for name in ("Qwen", "Llama"):
        folder = newest.folders[name]
        alone = make_spec(tmp_path, [{"name": f"{name} alone", "model": str(folder)}], training={"steps": 0}, **changes)
        train(alone, tmp_path / name)
        for kind in ("evaluation", "answers"):
            ends = [r for r in event_bodies(tmp_path / "run", kind) if (r["step"], r["agent"]) == (3, name)]
            found = [r | {"step": 3, "agent": name} for r in event_bodies(tmp_path / name, kind)]
            assert found == ends


def test_run_of_no_step_needs_no_batch_of_training_questions(tmp_path, pair):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 0, "train_batch_size": 1000, "mini_batch_size": 1000})
    train(spec, tmp_path / "run")
    assert len(records(tmp_path / "run", "evaluation")) == 1


def test_question_too_long_for_every_agent_names_what_to_raise(tmp_path, pair):
    spec = make_spec(tmp_path, pair[:1], training={"steps": 0}, rollout={"max_prompt_length": 1})
    with pytest.raises(ValueError, match="no question of questions fits into every agent: raise rollout"):
        train(spec, tmp_path / "run")


# What is refused


@pytest.mark.parametrize(
    ("evaluation", "told"),
    [
        ({"num_samples": 2}, "2 samples at temperature 0 would all be the same"),
        ({"benchmarks": [{"benchmark": "b", "train_path": "-", "num_samples": 2}]}, "'b': 2 samples at temperature 0"),
        ({"benchmarks": [{"benchmark": "b", "train_path": "-"}] * 2}, "'b' is listed twice"),
        ({"benchmarks": [{"benchmark": "questions", "train_path": "-"}]}, "is the run's own benchmark"),
        ({"temperature": 1.0, "num_samples": 1025}, "less than or equal to 1024"),
    ],
)
def test_evaluation_that_makes_no_sense_is_refused(tmp_path, evaluation, told):
    with pytest.raises(ValidationError, match=told):
        make_spec(tmp_path, [{"name": "A", "model": "-"}], evaluation=evaluation)


# Versions


def test_versions_name_our_own_code_and_the_verifier_s():
    found = code_versions()
    assert set(found) >= {"python", "hacrl", "torch", "transformers", "safetensors", "math_verify"}
    assert found["hacrl"].startswith("0.")


def test_git_commit_is_read_from_a_branch_a_packed_branch_or_a_detached_head(tmp_path):
    assert git_commit(tmp_path) == ""
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert git_commit(tmp_path) == ""  # no commit yet
    (git / "packed-refs").write_text("# pack-refs\n" + "b" * 40 + " refs/heads/main\n")
    assert git_commit(tmp_path) == "b" * 40
    (git / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    assert git_commit(tmp_path) == "a" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert git_commit(tmp_path) == "c" * 40


def test_started_tells_the_versions(tmp_path, pair):
    train(make_spec(tmp_path, pair[:1], training={"steps": 0}), tmp_path / "run")
    (started,) = records(tmp_path / "run", "started")
    assert started["versions"]["verifier"] == kind_label("exact")
    assert "hacrl" in started["versions"]
    assert "sandbox" not in started["versions"]  # it runs no code of others
