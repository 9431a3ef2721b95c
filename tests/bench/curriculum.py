"""What the curriculum and dynamic sampling gain, and cost: `python -m tests.bench.curriculum OUT`.

The demo's pair and its HACPO on few training questions, so that they are asked in several passes; each of the four
cases on the same seeds. One JSON file a run; what is there is not run again. Then a table: the mean held-out accuracy
of both agents with 95 % intervals over the seeds (Student's t), paired differences to the run with neither option, and
rollouts. All runs begin with one warm start, so the intervals say nothing of others.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.bench.pairs import PAIRS, SMOKE, is_smoke, questions, run_spec, warm_start
from tests.bench.study import interval, shown, signed, time_of_process
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SPOOL_NAME, read_records

QUESTIONS, STEPS = 96, 20  # 24 prompts a step: five passes
REST, EXTRA = {"curriculum_rest": 3}, {"max_extra_prompts": 24}
# By case: changes of training, and of rollout.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "neither": ({}, {}),
    "curriculum_rest 3": (REST, {}),
    "max_extra_prompts 24": ({}, EXTRA),
    "both": (REST, EXTRA),
}


def spec_of(case: str, seed: int, out: Path) -> RunSpec:
    """The demo's settings with those of the case."""
    training, rollout = CASES[case]
    cache = out / "cache"
    agents = {name: warm_start(agent, 0, cache) for name, agent in PAIRS["complementary"].items()}
    spec = run_spec(
        agents,
        questions(0, cache),
        seed=seed,
        training={"steps": STEPS, **training},
        rollout=rollout,
        evaluation={"eval_interval": 0, "max_questions": 0},
        checkpoint={"save_steps": 0},
        telemetry={"rollout_interval": 0, "alignment_interval": 0},
    )
    few = cache / f"first-{QUESTIONS}-{os.getpid()}.jsonl"  # each process has its own
    lines = Path(spec.data.train_path).read_text(encoding="utf-8").splitlines()
    few.write_text("\n".join(lines[:QUESTIONS]), encoding="utf-8")
    return spec.model_copy(update={"data": spec.data.model_copy(update={"train_path": str(few)})})


def execute(case: str, seed: int, out: Path) -> None:
    """Run a case on a seed and write its result. Error: RuntimeError where the trainer did not complete."""
    from workers.__main__ import main as train

    path = result_path(out, case, seed)
    if path.exists():
        return
    spec, cpu_before = spec_of(case, seed, out), time_of_process()
    with tempfile.TemporaryDirectory() as workshop:
        spec_path, run_dir = Path(workshop) / "spec.json", Path(workshop) / "run"
        spec_path.write_text(spec.to_json(), encoding="utf-8")
        if train([str(spec_path), str(run_dir), "--attempt", "1"]):
            raise RuntimeError(f"{case}, seed {seed} failed")
        records = [record for _, record in read_records(run_dir / SPOOL_NAME)]
    result = summary(records) | {"cpu_s": time_of_process() - cpu_before}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(result), encoding="utf-8")
    os.replace(path.with_suffix(".part"), path)


def summary(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Accuracies at the start and the end, rollouts, and the share of trained prompts without a signal."""
    evaluations = [record for record in records if record["type"] == "evaluation"]
    last = max(record["step"] for record in evaluations)
    ends = {step: fmean(one["value"] for one in evaluations if one["step"] == step) for step in (0, last)}
    metrics = [record["ratios"] for record in records if record["type"] == "metrics" and not record["source"]]
    empty = [ratios["frac_reward_zero_std_joint"] for ratios in metrics]
    return {
        "start": ends[0],
        "final": ends[last],
        "rollouts": max(record["rollouts_generated"] for record in records if record["type"] == "progress"),
        "no_signal": sum(one[0] for one in empty) / sum(one[1] for one in empty),
    }


def result_path(out: Path, case: str, seed: int) -> Path:
    return out / "curriculum" / case / f"{seed}.json"


def table(out: Path, seeds: Sequence[int]) -> list[str]:
    """Markdown: one row for each case."""
    results = {case: [json.loads(result_path(out, case, seed).read_text()) for seed in seeds] for case in CASES}
    base = results["neither"]
    lines = [
        f"| seeds {', '.join(map(str, seeds))} | accuracy by seed | mean | minus neither | rollouts"
        " | gain per 1,000 rollouts | prompts trained without a signal | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, own in results.items():
        final = [one["final"] for one in own]
        differences = [one["final"] - other["final"] for one, other in zip(own, base, strict=True)]
        rollouts, gain = fmean(one["rollouts"] for one in own), fmean(one["final"] - one["start"] for one in own)
        cells = [
            " ".join(shown(value) for value in final),
            _with_interval(shown(fmean(final)), final),
            "" if case == "neither" else _with_interval(signed(fmean(differences)), differences),
            f"{rollouts:,.0f}",
            f"{1000 * gain / rollouts:.4f}".removeprefix("0"),
            f"{100 * fmean(one['no_signal'] for one in own):.1f} %",
            f"{fmean(one['cpu_s'] for one in own):.0f}",
        ]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return [*lines, f"Before training: {shown(fmean(one['start'] for one in base))}."]


def _with_interval(mean: str, values: Sequence[float]) -> str:
    width = interval(values)
    return mean if math.isnan(width) else f"{mean} +- {shown(width)}"


def main(arguments: list[str]) -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="one seed of hardly trained agents, two steps")
    options = parser.parse_args(arguments)
    if options.smoke:
        os.environ[SMOKE] = "1"
    assert is_smoke() == options.smoke
    seeds = range(1 if options.smoke else options.seeds)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for future in [pool.submit(execute, case, seed, options.out) for seed in seeds for case in CASES]:
            future.result()
    print("\n".join(table(options.out, seeds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
