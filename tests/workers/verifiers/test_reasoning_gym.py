"""Generated questions: what names a generator, what its answers earn, and that a pass of a run has new ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workers.tiny import make_pair, make_spec, records, train
from workers.contract.generators.generator import (
    EVALUATING,
    INSTALL,
    NAMES,
    REFUSED,
    VERSION,
    GeneratorError,
    read_generator,
)
from workers.contract.spec.data import TrainingBenchmark, question_key
from workers.questions.dataset import BenchmarkError, split_questions
from workers.questions.generated import FreshQuestions, ask_generator, write_generated
from workers.trainer.prompt_sampling import PromptSampler
from workers.verifiers.reasoning_gym import generated_questions, scores
from workers.verifiers.scoring.service import Verifier

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "workers" / "generators"


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    monkeypatch.syspath_prepend(STAND_IN)
    yield
    for name in ("reasoning_gym", "reasoning_gym.factory"):
        sys.modules.pop(name, None)


def entries(text: str, count: int, start: int = 0) -> list[dict[str, str]]:
    return list(generated_questions.questions(read_generator(text), start, count))


@pytest.mark.parametrize(
    ("text", "is_written"),
    [
        ("chain_sum", "chain_sum?seed=0&train=1000&held_out=200"),
        ("chain_sum?level=2&seed=7&train=20&held_out=5", "chain_sum?level=2&seed=7&train=20&held_out=5"),
        (" maze?min_grid_size=5&wall_char=%23 ", "maze?seed=0&train=1000&held_out=200&min_grid_size=5&wall_char=%23"),
        ("dice?sides=[2,3]&loud=true", "dice?seed=0&train=1000&held_out=200&sides=[2,3]&loud=true"),
    ],
)
def test_text_names_a_generator_and_is_written_back(text, is_written):
    generator = read_generator(text)
    assert str(generator) == is_written
    assert read_generator(is_written) == generator
    assert read_generator(is_written).settings == generator.settings


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is written as"),
        ("../etc/passwd", "is written as"),
        ("chain_summ", "chain_sum or"),
        ("countdown", "runs the text of a response"),
        ("acre", "depend on their number"),
        ("chain_sum?seed=-1", "seed must be a whole number from 0"),
        ("chain_sum?train=1e3", "train must be a whole number"),
        ("chain_sum?level=true", "level must be a whole number"),
        ("chain_sum?seed=1&seed=2", "seed is given twice"),
        ("chain_sum?train=99999999", "from 1 to 20000"),
    ],
)
def test_what_is_no_generator_is_refused_with_its_cause(text, reason):
    with pytest.raises(GeneratorError, match=re.escape(reason)):
        read_generator(text)


def test_settings_are_checked_by_the_package(stand_in):
    assert len(entries("chain_sum?level=3", 1)[0]["question"].split("+")) == 5
    assert entries("chain_sum?level=99", 1) != entries("chain_sum?level=0", 1)
    assert len(entries("chain_sum?level=3&min_terms=2&max_terms=2", 1)[0]["question"].split("+")) == 2
    for text, reason in (
        ("chain_sum?wrong=1", "has no setting wrong \\(it has: min_terms, max_terms\\)"),
        ("chain_sum?min_terms=9", "max_terms must be >= min_terms"),
        ("coin_flip?level=1", "has no levels"),
        ("lcm", "rewards any text"),
    ):
        with pytest.raises(GeneratorError, match=reason):
            entries(text, 1)


def test_answer_is_read_in_its_forms_and_scored_by_the_generator(stand_in):
    row = entries("chain_sum?level=2", 1)[0]
    right = json.loads(row["answer"])["answer"]
    texts = ["{}", "The answer is {}.", "So \\boxed{{{}}}", "<think>7</think><answer> {} </answer>", "It is {}"]
    with Verifier("reasoning_gym") as verifier:
        verdicts = verifier.score(
            [text.format(right) for text in texts] + ["", "<answer></answer>", "no"], 8 * [row["answer"]]
        )
        rewards = [verdict.reward for verdict in verdicts]
        assert rewards == [1, 1, 1, 1, pytest.approx(len(right) / len(f"It is {right}")), 0, 0, 0]
        assert verifier.doubts([row["answer"], "17"])[0] == ""
        assert "add the benchmark as a generator" in verifier.doubts([row["answer"], "17"])[1]


def test_scorer_that_runs_an_answer_does_it_in_the_sandbox_and_forgets_it(stand_in, tmp_path):
    row = entries("gcd", 1)[0]
    outside = tmp_path / "written"
    outside_first = f"open({str(outside)!r}, 'w').write('x')"
    patches = "[setattr(__import__('reasoning_gym.factory').factory.Sums, 'score_answer', lambda *a: 1.0), 1][1]"
    never = "[1 for _ in iter(int, 1)]"
    with Verifier("reasoning_gym") as verifier:
        written, _patched, wrong, late = verifier.score([outside_first, patches, "123456", never], 4 * [row["answer"]])
    assert written.reward == 0
    assert not outside.exists()
    assert wrong.reward == 0  # what the one before changed is gone with its process
    assert late.reward is None
    assert late.is_timeout


def test_without_the_package_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(generated_questions, "find_spec", lambda name: None)
    with pytest.raises(GeneratorError, match=re.escape(INSTALL)):
        entries("chain_sum", 1)
    monkeypatch.setattr(scores, "find_spec", lambda name: None)
    said = []
    monkeypatch.setattr(scores, "write_refusal", said.append)
    scores.main(2**30, 1)
    assert INSTALL in said[0]


def test_files_are_fixed_by_the_text_and_hold_out_their_own_questions(stand_in, tmp_path):
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made = write_generated("chain_sum?seed=5&train=30&held_out=10", tmp_path / name, lambda *report: None)
        texts.append([Path(made[side][0]["path"]).read_text() for side in ("train", "held_out")])
    assert texts[0] == texts[1]
    assert [text.count("\n") for text in texts[0]] == [30, 10]
    with pytest.raises(BenchmarkError, match="no setting wrong"):
        write_generated("chain_sum?wrong=1", tmp_path, lambda *report: None)


def spec_with(tmp_path, text: str, **changes):
    made = write_generated(text, tmp_path, lambda *report: None)
    paths = {"train_path": made["train"][0]["path"], "eval_path": made["held_out"][0]["path"]}
    return make_spec(
        tmp_path, changes.pop("agents", [{"name": "A", "model": "unused"}]), **changes, data=paths | {"generator": text}
    )


def test_pass_has_new_questions_that_are_not_held_out(stand_in, tmp_path):
    data = spec_with(tmp_path, "chain_sum?seed=5&train=40&held_out=30&max_terms=2").data
    split = split_questions(data)
    held_out = {question_key(one.question) for one in split.held_out}
    fresh = FreshQuestions(data, split.train, held_out)
    first, second, third = (fresh.of_pass(number) for number in range(3))
    assert first == split.train
    assert len(second) == len(third) == len(first)
    assert not {one.id for one in first} & {one.id for one in second}
    assert not held_out & {question_key(one.question) for one in [*second, *third]}
    assert len({question_key(one.question) for one in second}) > 0.5 * len(second)
    assert FreshQuestions(data, split.train, held_out).of_pass(2) == third


def test_generator_of_few_questions_repeats_them(stand_in, tmp_path):
    data = spec_with(tmp_path, "coin_flip?train=2&held_out=1").data
    first = split_questions(data).train
    second = FreshQuestions(
        data, first, {question_key(one.question) for one in split_questions(data).held_out}
    ).of_pass(1)
    assert len(second) == len(first) == 1
    assert second[0].question == first[0].question


def test_run_asks_new_questions_in_its_second_pass(stand_in, tmp_path):
    spec = spec_with(
        tmp_path,
        "chain_sum?seed=5&train=8&held_out=4",
        agents=make_pair(tmp_path),
        rollout={"max_prompt_length": 24},
        training={"steps": 4},
    )
    train(spec, tmp_path / "run")
    asked = [
        {row["prompt_id"] for row in records(tmp_path / "run", "rollout") if row["step"] == step}
        for step in range(1, 5)
    ]
    assert [len(ids) for ids in asked] == [4, 4, 4, 4]
    assert len(set.union(*asked)) == 16  # of 8 a pass
    log = [row["message"] for row in records(tmp_path / "run", "log")]
    assert any("8 new questions of questions, 0 left out" in line for line in log)


def test_sets_of_one_generator_resume_with_the_batches_that_were_drawn(stand_in, tmp_path):
    spec = spec_with(tmp_path, "chain_sum?seed=5&train=6&held_out=2", training={"steps": 9})
    further = spec.data.model_copy(update={"benchmark": "b", "generator": "chain_sum?seed=6&train=6&held_out=2"})
    spec = spec.model_copy(
        update={
            "training": spec.training.model_copy(update={"benchmarks": (TrainingBenchmark(**further.model_dump()),)})
        }
    )
    first = [replace(one, benchmark="questions") for one in split_questions(spec.data).train]
    second = [replace(one, id=f"b/{one.id}", benchmark="b") for one in first]

    def sampler() -> PromptSampler:
        return PromptSampler(
            spec, [FreshQuestions(data, own) for data, own in zip(spec.training_data, (first, second), strict=True)]
        )

    whole = sampler()
    batches = []
    for step in range(9):
        batches.append([(one.id, one.question) for one in whole.batch(step)])
        whole.end_step(step)
    assert len({name for batch in batches for name, _ in batch}) == 36  # three passes of each, none asked twice
    cut = sampler()
    for step in range(4):
        cut.batch(step)
        cut.end_step(step)
    cut.batch(4)  # drawn, and not trained
    resumed = sampler()
    resumed.load_state_dict(json.loads(json.dumps(cut.state_dict())))
    for step in range(4, 9):
        assert [(one.id, one.question) for one in resumed.batch(step)] == batches[step]
        resumed.end_step(step)


# The package itself


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the package, as its users install it."""
    folder = tmp_path_factory.mktemp("reasoning-gym")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), f"reasoning-gym=={VERSION}"]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.full
def test_every_generator_of_the_package_is_offered_or_refused(package, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(package))
    code = (
        "import inspect, json, re\n"
        "from reasoning_gym.factory import DATASETS\n"
        "runs = re.compile(r'(?<!literal_)\\b(eval|exec|sympify)\\(|parse_expr\\(answer')\n"
        "texts = {name: inspect.getsource(kind.score_answer) for name, (kind, _) in DATASETS.items()}\n"
        "print(json.dumps({name: [one.group(0) for one in runs.finditer(text)] for name, text in texts.items()}))\n"
    )
    found = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert set(found) == {*NAMES, *REFUSED}
    running = {name for name, calls in found.items() if calls} - {"number_sorting"}  # that runs its own answer
    assert running == {*EVALUATING}


@pytest.mark.full
@pytest.mark.timeout(600)
def test_questions_of_every_generator_are_scored(package, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(package))
    code = (
        "import json\n"
        "from workers.contract.generators.generator import NAMES, read_generator\n"
        "from workers.verifiers.reasoning_gym.generated_questions import questions\n"
        "print(json.dumps({name: list(questions(read_generator(name), 0, 2)) for name in NAMES}))\n"
    )
    made = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert set(made) == {*NAMES}
    terms = [len(ask_generator(read_generator(f"chain_sum?level={level}"), 0, 40)[-1]["question"]) for level in (0, 3)]
    assert terms[0] < terms[1]
    golds = [row["answer"] for rows in made.values() for row in rows]
    right = {gold: json.loads(gold)["answer"] for gold in golds}
    with Verifier("reasoning_gym") as verifier:
        for gold, verdict in zip(golds, verifier.score(["I do not know."] * len(golds), golds), strict=True):
            assert verdict.reward is not None, (gold[:300], verdict)
            assert verdict.reward < 1, (gold[:300], verdict)
        known = [gold for gold in golds if right[gold] is not None]
        quoted = verifier.score([f"So\n<answer>{right[gold]} </answer>" for gold in known], known)
        assert [gold[:300] for gold, verdict in zip(known, quoted, strict=True) if verdict.reward != 1] == []
