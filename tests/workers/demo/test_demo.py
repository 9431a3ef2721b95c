"""The demo's recipe: its task, its tokenizers and models, its settings, and its cache."""

import json
import multiprocessing
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from workers.contract.demo_recipe import (
    AGENTS,
    ALGORITHMS,
    BENCHMARK_NAME,
    CONFIRM,
    HELD_OUT_FILE,
    RECIPE_FILE,
    RECIPE_VERSION,
    SEED,
    SKILLS,
    TRAIN_FILE,
    demo_settings,
)
from workers.contract.spec import teaching
from workers.contract.spec.algorithm import RECOMMENDED
from workers.contract.spec.run import RunSpec
from workers.demo.cache import is_valid
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import DIGIT_PAIRS
from workers.questions.dataset import split_questions
from workers.verifiers.scoring.service import Verifier

NEEDS_TORCH = "torch and transformers are missing: pip install -c constraints.txt -e '.[train]'"


def spec_of(folder: Path, algorithm: str, **sections: dict) -> RunSpec:
    settings = demo_settings(algorithm)
    for name, changes in sections.items():
        settings[name] = {**settings.get(name, {}), **changes}
    return RunSpec.model_validate(
        {
            "agents": [{"name": name, "model": str(folder / agent)} for agent, name in AGENTS.items()],
            "data": {
                "benchmark": BENCHMARK_NAME,
                "train_path": str(folder / TRAIN_FILE),
                "eval_path": str(folder / HELD_OUT_FILE),
            },
            **settings,
        }
    )


def test_every_problem_is_worked_right_and_its_misconception_wrong():
    train, held_out = make_problems(seed=0)
    for problem in train + held_out:
        assert eval(problem.text[:-1]) == problem.answer
        for working, is_right in ((problem.correct, True), (problem.mistaken, False)):
            found = re.fullmatch(r"(\S+)=(-?\d+);(\S+)=\\boxed\{(-?\d+)\}", working)
            assert found, working
            assert eval(found[1]) == int(found[2])
            assert eval(found[3]) == int(found[4])
            assert (int(found[4]) == problem.answer) is is_right


def test_each_skill_has_500_problems_to_learn_from_and_100_held_out_apart():
    train, held_out = make_problems(seed=0)
    assert Counter(problem.skill for problem in held_out) == dict.fromkeys(SKILLS, 100)
    assert min(Counter(problem.skill for problem in train).values()) >= 500
    assert not {problem.text for problem in train} & {problem.text for problem in held_out}
    assert {tuple(re.findall(r"[^\d=]", problem.text)) for problem in train} == {
        tuple(re.findall(r"[^abc]", form)) for form in SKILLS.values()
    }


def test_problems_depend_on_the_seed_alone():
    assert make_problems(seed=3) == make_problems(seed=3)
    assert make_problems(seed=3) != make_problems(seed=4)


def test_verifier_agrees_with_the_workings():
    train, _ = make_problems(seed=0)
    with Verifier("math") as verifier:
        answers = [str(problem.answer) for problem in train]
        right = verifier.score([problem.correct for problem in train], answers)
        mistaken = verifier.score([problem.mistaken for problem in train], answers)
    assert {verdict.reward for verdict in right} == {1.0}
    assert {verdict.reward for verdict in mistaken} == {0.0}


def test_settings_are_valid_and_differ_by_the_rule_only(tmp_path):
    specs = {algorithm: spec_of(tmp_path, algorithm) for algorithm in ALGORITHMS}
    assert [spec.algorithm.name for spec in specs.values()] == list(ALGORITHMS)
    assert len({spec.training for spec in specs.values()}) == 1
    # Updates of a step: GSPO 1, GSPOx2 2, with sharing 1 own and 1 cross. Rollouts of a prompt: 8, GSPOx2 16.
    assert {name: spec.updates_per_block for name, spec in specs.items() if name != "gspox2"} == dict.fromkeys(
        ("hacpo", RECOMMENDED, "naive_source", "gspo"), 1
    )
    assert (specs["gspox2"].updates_per_block, specs["gspox2"].num_generations) == (2, 16)
    assert {spec.num_generations for name, spec in specs.items() if name != "gspox2"} == {8}


def test_request_confirms_exactly_the_cautions_that_the_demo_raises(tmp_path):
    cautions = {caution.code for name in ALGORITHMS for caution in teaching.cautions_of(spec_of(tmp_path, name))}
    assert cautions == set(CONFIRM)


def test_unknown_algorithm_has_no_settings():
    with pytest.raises(ValueError, match="the demo runs hacpo, signed, naive_source, gspo, gspox2, not 'ppo'"):
        demo_settings("ppo")


def test_recipe_imports_no_ml_library():
    program = "import sys, workers.contract.demo_recipe; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("pieces", [(), DIGIT_PAIRS])
def test_tokenizers_give_back_every_working(pieces):
    pytest.importorskip("transformers", reason=NEEDS_TORCH)
    from workers.demo.warm_start import make_tokenizer

    tokenizer = make_tokenizer(pieces)
    for problem in make_problems(seed=0)[0]:
        for text in (problem.text, problem.correct, problem.mistaken):
            ids = tokenizer(text, split_special_tokens=True).input_ids
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert tokenizer.unk_token_id not in ids
            limit = 16 if text == problem.text else 26 - 1  # the end takes one
            assert len(ids) <= limit


def test_tokenizers_cut_numbers_differently():
    pytest.importorskip("transformers", reason=NEEDS_TORCH)
    from workers.demo.warm_start import make_tokenizer

    assert make_tokenizer().tokenize("17+103=\\boxed{9}") == [*"17+103=", "\\boxed{", "9", "}"]
    assert make_tokenizer(DIGIT_PAIRS).tokenize("17+103=\\boxed{9}") == [
        "17",
        "+",
        "10",
        "3",
        "=",
        "\\boxed{",
        "9",
        "}",
    ]


def test_models_have_the_announced_families_and_sizes():
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from workers.demo.warm_start import make_model, make_tokenizer

    small = make_model("qwen3", make_tokenizer())
    large = make_model("llama", make_tokenizer(DIGIT_PAIRS))
    assert (small.config.model_type, small.num_parameters()) == ("qwen3", 100_224)
    assert (large.config.model_type, large.num_parameters()) == ("llama", 250_944)
    assert small.config.head_dim == large.config.head_dim == 32


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo after a few steps: whole, though not clever."""
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from workers.demo import make

    folder, forking = tmp_path_factory.mktemp("demo") / "cache", multiprocessing.get_context("fork")
    with pytest.MonkeyPatch.context() as patch:  # the processes need not load torch
        patch.setattr(make.multiprocessing, "get_context", lambda method: forking)
        assert make.make_demo(folder, seed=5, steps=3) is True
    return folder


def test_made_folder_is_used_again_and_nothing_is_left_beside_it(made):
    from workers.demo.make import make_demo

    before = (made / RECIPE_FILE).stat().st_mtime_ns
    assert make_demo(made, seed=5, steps=3) is False
    assert (made / RECIPE_FILE).stat().st_mtime_ns == before
    assert [path.name for path in made.parent.iterdir()] == ["cache"]


def test_pair_of_the_package_is_whole_and_what_its_recipe_makes(made, tmp_path):
    from workers.demo.make import STEPS, TINY_PAIR, demo_identity

    assert is_valid(TINY_PAIR, demo_identity(SEED, STEPS))
    write_questions(tmp_path, *make_problems(SEED))
    for name in (TRAIN_FILE, HELD_OUT_FILE):
        assert (TINY_PAIR / name).read_bytes() == (tmp_path / name).read_bytes()
    for path in made.glob("*/*.json"):  # settings and tokenizers; the weights are made anew by tests/test_end_to_end.py
        assert (TINY_PAIR / path.relative_to(made)).read_bytes() == path.read_bytes()


def test_pair_of_the_package_is_copied_and_not_trained(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from workers.demo import make

    monkeypatch.setattr(make, "_train_both", None)
    assert make.make_demo(tmp_path / "demo") is True
    assert is_valid(tmp_path / "demo", make.demo_identity(SEED, make.STEPS))
    with pytest.raises(TypeError, match="not callable"):
        make.make_demo(tmp_path / "anew", is_anew=True)


def test_differently_made_folder_is_not_valid(made, tmp_path):
    identity = {"recipe_version": RECIPE_VERSION, "seed": 5, "steps": 3}
    assert is_valid(made, identity)
    assert not is_valid(made, identity | {"seed": 6})
    assert not is_valid(made, identity | {"steps": 4})
    assert not is_valid(tmp_path / "absent", identity)


@pytest.mark.slow
def test_damaged_folder_is_made_again_the_same_wherever_it_lies_and_whichever_process_makes_it(
    made, tmp_path, monkeypatch
):
    from workers.demo import make
    from workers.demo.warm_start import train_agent

    def train_both(folder, seed, steps, report):
        for agent, start in make.WARM_STARTS.items():
            train_agent(start, folder / agent, seed, steps)

    monkeypatch.setattr(make, "_train_both", train_both)  # loading torch takes two processes longer than that
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made, elsewhere)
    (elsewhere / RECIPE_FILE).write_text("{}")
    assert not is_valid(elsewhere, {"seed": 5})
    shutil.copy(made / RECIPE_FILE, elsewhere)
    weights = elsewhere / "llama" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not is_valid(elsewhere, {"seed": 5})
    assert make.make_demo(elsewhere, seed=5, steps=3) is True
    for file in (RECIPE_FILE, "llama/model.safetensors", "qwen3/model.safetensors"):
        assert (elsewhere / file).read_bytes() == (made / file).read_bytes()


@pytest.mark.slow
def test_failed_training_leaves_nothing(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from workers.demo import make

    monkeypatch.setattr(make, "AGENTS", {"qwen3": "a", "no such agent": "b"})
    with pytest.raises(RuntimeError, match="no such agent failed"):
        make.make_demo(tmp_path / "cache", seed=5, steps=2)
    assert list(tmp_path.iterdir()) == []


def test_models_load_with_plain_transformers_and_pass_inspection(made, capsys):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from workers.inspection import inspect_model

    for agent in AGENTS:
        model = AutoModelForCausalLM.from_pretrained(made / agent)
        tokenizer = AutoTokenizer.from_pretrained(made / agent)
        inputs = tokenizer("3+4*5=", return_tensors="pt")
        assert model.generate(**inputs, max_new_tokens=4, do_sample=False).shape[0] == 1
        assert tokenizer.eos_token_id == model.generation_config.eos_token_id
        assert inspect_model.main(["model", str(made / agent)]) == 0
    capsys.readouterr()


def test_question_files_are_read_whole(made):
    split = split_questions(spec_of(made, "gspo").data)
    problems, held_out_problems = make_problems(seed=5)
    assert [question.question for question in split.train] == [problem.text for problem in problems]
    assert [question.answer for question in split.held_out] == [str(problem.answer) for problem in held_out_problems]
    assert {question.subject for question in split.held_out} == set(SKILLS)


def test_command_line_says_where_everything_is(made):
    command = [sys.executable, "-m", "workers.demo.make", str(made), "--seed", "5", "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    report = json.loads(done.stdout)
    assert (report["made"], report["train"]) == (False, str(made / TRAIN_FILE))
    assert set(report["models"]) == set(AGENTS.values())
