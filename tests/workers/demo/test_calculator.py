"""The demo's pair with a calculator: its warm start trains what the model wrote, and training raises accuracy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.workers.tiny import records
from workers.contract.demo_recipe import AGENTS
from workers.demo import warm_start
from workers.demo.calculator import calculator_spec, make_calculator_pair
from workers.demo.task import make_problems
from workers.demo.warm_start import CALL_PIECES, DIGIT_PAIRS, make_tokenizer


@pytest.mark.parametrize("pieces", [(), DIGIT_PAIRS])
def test_warm_start_trains_calls_and_not_their_answers(pieces):
    tokenizer = make_tokenizer((*CALL_PIECES, *pieces))
    problem = make_problems(seed=0)[0][0]
    working = warm_start._working(problem.correct, tokenizer, uses_calculator=True)
    first, rest = problem.correct.split(";")
    expression, value = first.split("=")
    own = [token for token, trains in zip(working.ids, working.trains, strict=True) if trains]
    others = [token for token, trains in zip(working.ids, working.trains, strict=True) if not trains]
    assert tokenizer.decode(own) == f"<calculator>{expression}</calculator>{rest}<eos>"
    assert tokenizer.decode(others) == f"\n<tool>{value}</tool>\n"


def test_warm_start_without_a_calculator_trains_all_of_a_working():
    tokenizer = make_tokenizer()
    working = warm_start._working("1+2=3;3*4=12", tokenizer, uses_calculator=False)
    assert working.ids == [*tokenizer("1+2=3;3*4=12").input_ids, tokenizer.eos_token_id]
    assert all(working.trains)


def accuracies(run_dir) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in AGENTS.values()}
    for one in records(run_dir, "evaluation"):
        found[one["agent"]].append(one["value"])
    return found


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_pair_learns_in_two_turns_and_from_transcripts_of_the_other_tokenizer(tmp_path):
    make_calculator_pair(tmp_path / "pair", steps=1000)
    spec = calculator_spec(tmp_path / "pair", training={"steps": 20}, telemetry={"rollout_interval": 5})
    (tmp_path / "spec.json").write_text(spec.to_json())
    command = [sys.executable, "-m", "workers", str(tmp_path / "spec.json"), str(tmp_path / "run")]
    subprocess.run(command, check=True, capture_output=True, timeout=1500)
    for name, values in accuracies(tmp_path / "run").items():
        assert values[-1] > values[0] + 0.1, (name, values)
    rollouts = records(tmp_path / "run", "rollout")
    assert sum(len(one["turns"]) >= 3 for one in rollouts) > 0.9 * len(rollouts)
    # The same transcripts teach the other agent, in its own tokens: digit pairs are one token of Llama 250k.
    crossing = [one for one in records(tmp_path / "run", "contribution") if one["agent"] != one["source"]]
    assert sum(one["weight"] != 0 for one in crossing) > 100
    assert any(one["num_tokens"] != one["source_num_tokens"] for one in crossing if one["num_tokens"])
    assert json.loads((tmp_path / "spec.json").read_text())["rollout"]["environment"] == "calculator"
