"""The study tool: its intervals, its paired differences, and what its pairs are."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.bench import study
from tests.bench.pairs import COARSE_PIECES, PAIRS
from workers.contract.demo_recipe import SKILLS
from workers.demo.task import make_problems


def test_interval_is_students_t_over_the_standard_error():
    # t at 2 degrees of freedom: 4.3027. Values 1, 2, 3: s = 1, so 4.3027 / sqrt(3) = 2.4842.
    assert study.interval([1.0, 2.0, 3.0]) == pytest.approx(2.48414, abs=1e-4)
    assert math.isnan(study.interval([1.0]))


def result(accuracies: dict[str, float], below: float) -> dict[str, Any]:
    shares = {f"clip_lower_frac/positive {when}": below for when in ("early", "late")}
    return {"start": dict.fromkeys(accuracies, 0.2), "final": accuracies, "shares": {"A <- B": shares}}


def test_table_pairs_by_seed(tmp_path: Path):
    """Differences .1, .2, .3 of seeds 0, 1, 2: .2 +- 4.3027 * .1 / sqrt(3) = .248. Seed 3 has no partner."""
    for option, finals in (("base", (0.5, 0.3, 0.4)), ("other", (0.6, 0.5, 0.7, 0.9))):
        for seed, final in enumerate(finals):
            path = study.Run("pair", option, seed).path(tmp_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result({"A": final - 0.1, "B": final + 0.1}, 0.25)))
    lines = study.table(tmp_path, "pair", ["base", "other", "absent"], "base")
    assert lines[2:] == [
        "| base | 3 | .400 +- .248 | .300, .500 |  | A .250 to .250 |",
        "| other | 4 | .675 +- .272 | .575, .775 | +.200 +- .248 | A .250 to .250 |",
        "| start | | .200 | | | |",
    ]


def test_finished_runs_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = [study.Run("pair", "option", seed) for seed in range(2)]
    for run in runs:
        run.path(tmp_path).parent.mkdir(parents=True, exist_ok=True)
        run.path(tmp_path).write_text("{}")
    monkeypatch.setattr(study, "execute", None)  # calling it, or sending it away, fails
    assert study.run_all(tmp_path, runs, processes=1) == 0


def test_tokenizers_of_the_coarse_pair_cut_the_same_text_very_differently():
    pytest.importorskip("transformers", reason="transformers is missing: pip install -c constraints.txt -e '.[train]'")
    from workers.demo.warm_start import make_tokenizer

    fine, coarse = make_tokenizer(), make_tokenizer(COARSE_PIECES)
    assert coarse.tokenize("3+4=7;2*7=\\boxed{14}") == ["3+4=", "7", ";", "2*7=", "\\boxed{", "14", "}"]
    texts = [problem.correct for problem in make_problems(seed=0)[0]]
    assert all(coarse.decode(coarse(text).input_ids) == text for text in texts)
    counts = [sum(len(each.tokenize(text)) for text in texts) for each in (fine, coarse)]
    assert counts[0] > 1.6 * counts[1]


def test_every_pair_says_how_well_each_agent_knows_each_skill():
    for agents in PAIRS.values():
        assert all(agent.correct_share.keys() == SKILLS.keys() for agent in agents.values())
        assert len({agent.architecture for agent in agents.values()}) == len(agents)


def row_of(option: str, passes: int, seed: int, final: float, pair: str = "a") -> dict[str, str]:
    values = {"pair": pair, "option": option, "passes": passes, "mini_batches": 1, "prompts": 24, "starts": 4}
    values |= {"seed": seed, "final": final, "by_agent": "A; B", "cpu_s": 10 * passes}
    return {name: str(value) for name, value in values.items()}


def test_report_compares_each_rule_at_its_own_best_number_of_passes():
    rows = [
        *(row_of("ours", 1, seed, 0.5) for seed in range(3)),
        *(row_of("ours", 4, seed, 0.8 + seed / 10) for seed in range(3)),
        *(row_of("theirs", 1, seed, 0.7) for seed in range(3)),
        *(row_of("theirs", 4, seed, 0.6) for seed in range(3)),
        row_of("theirs", 1, 7, 0.9, pair="b"),  # it has no partner
    ]
    lines = study.report(rows, "ours")
    assert "| ours | 4 | 3 | .900 |  | .900 | 40 |" in lines
    assert "| theirs | 1 | 4 | .700 | .900 | .750 | 10 |" in lines
    # .1, .2, .3: .2 +- .248, as above.
    assert lines[-3:] == [
        "| ours, 4 passes, minus | passes | runs | a | b | all |",
        "|---|---|---|---|---|---|",
        "| theirs | 1 | 3 | +.200 +- .248 |  | +.200 +- .248 |",
    ]
