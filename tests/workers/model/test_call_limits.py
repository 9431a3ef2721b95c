"""A model's files that run away: in the trainer, in an agent's own process, and at the memory that a template takes."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, normalizers
from transformers import AutoTokenizer

from tests.support.workers.processes import PROCESSES
from tests.support.workers.processes import forked as forked
from tests.support.workers.tiny import make_agent, make_spec, records
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec
from workers.model import call_limits
from workers.model.prompts import encode_question

FOREVER = (
    "{% if '7' in messages[0]['content'] %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    "{% endfor %}{% endif %}{{ messages[0]['content'] }}"
)
BACKTRACKING = Regex("(?:7|77)*[2-3]$")


def put_normalizers(model: Path, *replacements: tuple[Regex, str]) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(*one) for one in replacements])
    tokenizer.save(str(model / "tokenizer.json"))


def train(path: Path, run_dir: Path) -> None:
    os.dup2(os.open(run_dir.parent / "errors.txt", os.O_WRONLY | os.O_CREAT), 2)
    call_limits.LIMIT_S = 3.0
    from workers.__main__ import main

    sys.exit(main([str(path), str(run_dir)]))


def ending(spec: RunSpec, run_dir: Path) -> str:
    """The reason of the run's failure."""
    path = run_dir.parent / "given.json"
    path.write_text(spec.to_json())
    process = PROCESSES.Process(target=train, args=(path, run_dir))
    process.start()
    process.join(600)
    is_late = process.is_alive()
    process.kill()
    process.join()
    assert not is_late, "the trainer hangs"
    [finished] = records(run_dir, "finished")
    assert finished["outcome"] == "failed"
    return str(finished["reason"])


def test_chat_template_that_never_ends_at_some_questions_fails_the_run(tmp_path: Path) -> None:
    model = make_agent(tmp_path / "model", "qwen3")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": FOREVER}))
    spec = make_spec(tmp_path, [{"name": "Ann", "model": str(model)}], algorithm={"name": "grpo"})
    reason = ending(spec, tmp_path / "run")
    assert reason.startswith("the chat template of agent 'Ann' at ")
    assert reason.endswith("takes longer than 3 s: use a model whose tokenizer files are sound")


@pytest.mark.parametrize("placement", ["local", "processes"])
@pytest.mark.usefixtures("forked")  # so that the limit holds in an agent's process too
def test_normalizer_that_never_ends_fails_the_run(tmp_path: Path, placement: str) -> None:
    model = make_agent(tmp_path / "model", "qwen3")
    put_normalizers(model, (Regex("7"), ("2" + "7" * 24 + "=") * 4000), (BACKTRACKING, ""))
    spec = make_spec(
        tmp_path,
        [{"name": "Ann", "model": str(model)}],
        algorithm={"name": "grpo"},
        compute={"placement": placement},
    )
    reason = ending(spec, tmp_path / "run")
    assert "the tokenizer of agent 'Ann' at " in reason
    assert "takes longer than 3 s" in reason
    assert ("the process of Ann failed" in reason) == (placement == "processes")


def test_regular_expression_that_gives_up_is_an_error_of_the_tokenizer(tmp_path: Path) -> None:
    model = make_agent(tmp_path / "model", "qwen3")
    put_normalizers(model, (BACKTRACKING, ""))
    tokenizer = AutoTokenizer.from_pretrained(model)
    agent = AgentSpec(name="Ann", model="-")
    with pytest.raises(ValueError, match=r"the tokenizer of agent 'Ann' at '2[+]777.* fails: Onig: .*retry-limit"):
        encode_question(tokenizer, agent, "2+" + "7" * 60 + "=", [1])


def test_chat_template_that_takes_all_memory_is_an_error_and_the_limit_ends_with_it(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_agent(tmp_path / "model", "qwen3"))
    agent = AgentSpec(name="Ann", model="-")
    before = resource.getrlimit(resource.RLIMIT_AS)
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ messages[0]['content'] * 3000000000 }}"
    with pytest.raises(ValueError, match=r"chat template of agent 'Ann' fails \(MemoryError"):
        encode_question(tokenizer, agent, "1+1=", [1])
    tokenizer.chat_template = "{{ messages[0]['content'] * 6000000 }}"
    with pytest.raises(ValueError, match=r"it writes 24,000,000 characters, and 20,000,000 are possible"):
        encode_question(tokenizer, agent, "1+1=", [1])
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert tokenizer.convert_ids_to_tokens(encode_question(tokenizer, agent, "1+1=", [1])) == list("1+1=")
    assert resource.getrlimit(resource.RLIMIT_AS) == before
