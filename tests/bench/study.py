"""Compares options on pairs of agents over seeds: `python -m tests.bench.study run|table|collect|report OUT ...`.

Each run is one of `python -m workers`, in a process that imports torch once, and leaves one JSON file: what is there,
or in the CSV of results, is not run again. The table gives means, 95 % intervals over the seeds (Student's t) and
paired differences to a baseline; `collect` adds the results of OUT to the CSV; `report` is the tables of
docs/science.md, from the CSV alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.bench.pairs import PAIRS, SMOKE, questions, run_spec, warm_start
from workers.algorithms.base.gates import GATES
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SPOOL_NAME, read_records

PAPER = {"delta": 0.2}
SIDED = {"cross_clip_gradient": "sided"}
SOURCE = {"ratio_length": "source"}
NO_OMEGA = {"modulate_gradient": False}
PLAIN = {"advantage": "plain"}
# What differs from the demo's HACPO, which has delta .8.
OPTIONS: dict[str, dict[str, Any]] = {
    "zero .2": PAPER,
    "zero .8": {},
    "sided .2": PAPER | SIDED,
    "sided .8": SIDED,
    "keep .2": PAPER | {"cross_clip_gradient": "keep"},
    "gspo": {"name": "gspo"},
    "naive_source": {"name": "naive_source"},
    "quarantine, zero .8": {"peer_quarantine": True},
    "source, zero .2": PAPER | SOURCE,
    "source, zero .8": SOURCE,
    "source, sided .2": PAPER | SIDED | SOURCE,
    "source, sided .8": SIDED | SOURCE,
    # What each part of HACPO costs, at delta .8.
    "zero .8, -omega": NO_OMEGA,
    "zero .8, -adv": PLAIN,
    "zero .8, alpha 0": {"alpha": 0.0},
    "zero .8, alpha 0, -omega": {"alpha": 0.0} | NO_OMEGA,
    "zero .8, alpha 0, -omega, -adv": {"alpha": 0.0} | NO_OMEGA | PLAIN,
    "sided .8, alpha 0": SIDED | {"alpha": 0.0},
    "sided .8, alpha 0, -omega": SIDED | {"alpha": 0.0} | NO_OMEGA,
    "sided 0, alpha 0": SIDED | {"alpha": 0.0, "delta": 0.0, "delta_step": 0.0},
    "no clip, alpha 0, -omega, -adv": {"clip_cross": False, "alpha": 0.0} | NO_OMEGA | PLAIN,
    "shared baseline alone": {"cross_weight": 0.0},
    # Gates: with plain means and without omega, and the signed one with HACPO's omega and baseline.
    "signed": {"name": "signed"},
    "signed, omega": {"cross_gate": "signed"},
    **{gate: {"cross_gate": gate} | NO_OMEGA | PLAIN for gate in GATES if gate != "signed"},
    # Beyond gates.
    "signed, own": {"name": "signed", "anchor": "own"},
    "signed, own .05": {"name": "signed", "anchor": "own", "anchor_clip": 0.05},
    "signed, replay 4": {"name": "signed", "replay_steps": 4},
    "zero .8, omega by prompt": {"omega_scope": "prompt"},
    "transfer": {"name": "transfer"},
    "naive_learner": {"name": "naive_learner"},
    "gspox2": {"name": "gspox2"},
}
BASELINE = "zero .2"
KEY = ("pair", "option", "passes", "mini_batches", "prompts", "starts", "seed")  # of a run, in the CSV
CSV = Path(__file__).with_name("study.csv")
EARLY, LATE = range(1, 11), range(31, 41)  # steps


@dataclass(frozen=True)
class Run:
    """One run of the study. Its seed decides prompts and sampling; its warm start is that number modulo `starts`."""

    pair: str
    option: str
    seed: int
    starts: int = 1
    prompts: int = 24  # of a step
    passes: int = 1  # over the rollouts of a step
    mini_batches: int = 1  # of a block

    @property
    def row(self) -> str:
        """The option with the passes and mini-batches in which it differs from the demo's."""
        passes = f", {self.passes} passes" if self.passes > 1 else ""
        return self.option + passes + (f", {self.mini_batches} mini-batches" if self.mini_batches > 1 else "")

    @property
    def key(self) -> dict[str, str]:
        """Its columns in the CSV."""
        return {name: str(getattr(self, name)) for name in KEY}

    def path(self, out: Path) -> Path:
        return out / self.pair / self.row / f"{self.seed}.json"


def spec_of(run: Run, cache: Path) -> RunSpec:
    """The run's specification: the demo's settings, the option, and nothing recorded that costs time."""
    start = run.seed % run.starts
    return run_spec(
        {name: warm_start(agent, start, cache) for name, agent in PAIRS[run.pair].items()},
        questions(start, cache),
        name=f"{run.pair}, {run.option}, seed {run.seed}",
        seed=run.seed,
        algorithm=OPTIONS[run.option],
        training={
            "train_batch_size": run.prompts,
            "mini_batch_size": run.prompts // run.mini_batches,
            "num_iterations": run.passes,
        },
        evaluation={"eval_interval": 0},
        checkpoint={"save_steps": 0},
        telemetry={"rollout_interval": 0, "alignment_interval": 0},
    )


def execute(run: Run, out: Path) -> Run:
    """Run it and write its result. Error: RuntimeError where the trainer did not complete."""
    from workers.__main__ import main as train

    if run.path(out).exists():  # another process was first
        return run
    with tempfile.TemporaryDirectory() as workshop:
        spec, folder = spec_of(run, out / "cache"), Path(workshop) / "run"
        cpu_before = time_of_process()
        spec_path = Path(workshop) / "spec.json"
        spec_path.write_text(spec.to_json(), encoding="utf-8")
        if train([str(spec_path), str(folder), "--attempt", "1"]):
            raise RuntimeError(f"{run} failed")
        records = [record for _, record in read_records(folder / SPOOL_NAME)]
    if records[-1]["type"] != "finished" or records[-1]["outcome"] != "completed":
        raise RuntimeError(f"{run} did not complete")
    result = {**run.key, "algorithm": spec.algorithm.model_dump(mode="json"), **summary(records, spec.training.steps)}
    result["cpu_s"] = round(time_of_process() - cpu_before, 1)
    path = run.path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    os.replace(path.with_suffix(".part"), path)
    return run


def time_of_process() -> float:
    """CPU seconds of this process so far."""
    times = os.times()
    return times.user + times.system


def summary(records: Sequence[dict[str, Any]], steps: int) -> dict[str, Any]:
    """What the table needs: accuracies by agent, and shares by learner <- source in early and late steps."""
    result: dict[str, Any] = {"start": {}, "final": {}, "skills": {}, "shares": {}}
    for record in records:
        if record["type"] == "evaluation":
            result["start" if record["step"] == 0 else "final"][record["agent"]] = record["value"]
            if record["step"] == steps:
                result["skills"][record["agent"]] = record["slices"]
    metrics = [record for record in records if record["type"] == "metrics" and record["source"]]
    for agent, source in sorted({(record["agent"], record["source"]) for record in metrics}):
        own = [record for record in metrics if (record["agent"], record["source"]) == (agent, source)]
        shares: dict[str, float | None] = {}
        for name in ("clip_lower_frac/positive", "clip_upper_frac/positive", "clip_upper_frac", "used_frac"):
            for when, span in (("early", EARLY), ("late", LATE)):
                pairs = [record["ratios"][name] for record in own if record["step"] in span]
                total, count = map(sum, zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
                shares[f"{name} {when}"] = total / count if count else None
        lengths = [record["values"]["retok_len_ratio"] for record in own if record["values"]["retok_len_ratio"]]
        shares["retok_len_ratio"] = statistics.fmean(lengths) if lengths else None
        first = [record["values"]["sequence_ratio/mean"] for record in own if record["step"] == 1]
        shares["first sequence_ratio/mean"] = first[0] if first else None
        result["shares"][f"{agent} <- {source}"] = shares
    return result


def interval(values: Sequence[float]) -> float:
    """Half the width of the mean's 95 % interval; nan for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def t_quantile(degrees: int, level: float = 0.975) -> float:
    """Student's t: the value below which it lies with probability `level`."""
    from mpmath import betainc, findroot

    def excess(t: float) -> Any:
        return 1 - betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True) / 2 - level

    return float(findroot(excess, (1.9, 13.0), solver="anderson"))


def load(out: Path, pair: str, option: str) -> dict[int, dict[str, Any]]:
    """Results by seed."""
    return {int(path.stem): json.loads(path.read_text()) for path in (out / pair / option).glob("*.json")}


def accuracies(results: dict[int, dict[str, Any]], moment: str = "final") -> dict[int, float]:
    """By seed: the mean of the agents."""
    return {seed: statistics.fmean(result[moment].values()) for seed, result in sorted(results.items())}


def table(out: Path, pair: str, options: Sequence[str], baseline: str) -> list[str]:
    """Markdown: one row for each option that has results.

    The last column: the share of the peers' correct rollouts whose ratio lies below the band, early and late.
    """
    base = accuracies(load(out, pair, baseline))
    lines = [
        f"| {pair} | runs | accuracy | by agent | minus {baseline} | below the band, by learner |",
        "|---|---|---|---|---|---|",
    ]
    for option in options:
        results = load(out, pair, option)
        if not results:
            continue
        final = accuracies(results)
        names = list(next(iter(results.values()))["final"])
        agents = ", ".join(shown(statistics.fmean(r["final"][name] for r in results.values())) for name in names)
        common = sorted(final.keys() & base.keys())
        differences = [final[seed] - base[seed] for seed in common] if option != baseline else []
        gain = f"{signed(statistics.fmean(differences))} +- {shown(interval(differences))}" if differences else ""
        values = list(final.values())
        mean = f"{shown(statistics.fmean(values))} +- {shown(interval(values))}"
        lines.append(f"| {option} | {len(final)} | {mean} | {agents} | {gain} | {trap(results)} |")
    starts = accuracies(load(out, pair, baseline), "start").values()
    if starts:
        lines.append(f"| start | | {shown(statistics.fmean(starts))} | | | |")
    return lines


def trap(results: dict[int, dict[str, Any]]) -> str:
    """Share of each source's correct rollouts that lie below the band: early to late steps, mean over seeds."""
    first = next(iter(results.values()))["shares"]
    parts = []
    for pair in first:
        values = [
            [r["shares"][pair][f"clip_lower_frac/positive {when}"] for r in results.values()]
            for when in ("early", "late")
        ]
        means = [statistics.fmean(v for v in each if v is not None) if any(each) else 0.0 for each in values]
        parts.append(f"{pair.split(' ')[0]} {shown(means[0])} to {shown(means[1])}")
    return ", ".join(parts)


def shown(value: float) -> str:
    """.705: three decimals without the zero in front."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}")


def signed(value: float) -> str:
    return ("+" if value >= 0 else "-") + shown(abs(value))


def run_all(out: Path, runs: Sequence[Run], processes: int, done: Sequence[dict[str, str]] = ()) -> int:
    """Run what has no result yet; the exit status. done: keys of runs that the CSV has."""
    missing = [run for run in runs if not run.path(out).exists() and run.key not in done]
    failed = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(execute, run, out) for run in missing]
        for number, future in enumerate(as_completed(futures), start=1):
            try:
                print(f"{number}/{len(missing)} {future.result()}", flush=True)
            except RuntimeError as error:
                failed += 1
                print(error, file=sys.stderr, flush=True)
    return 1 if failed else 0


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of the CSV; none where there is no such file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def collect(out: Path, path: Path) -> int:
    """Add the results of OUT to the CSV, sorted; the number of its rows."""
    rows = {tuple(row[name] for name in KEY): row for row in read_csv(path)}
    for result_path in out.glob("*/*/*.json"):
        if result_path.parents[1].name == "cache":  # of warm starts
            continue
        result = json.loads(result_path.read_text())
        numbers = {name: fmean(result[name].values()) for name in ("start", "final")}
        by_agent = "; ".join(f"{name} {value:.4f}" for name, value in result["final"].items())
        row = {name: result[name] for name in KEY} | {name: f"{value:.5f}" for name, value in numbers.items()}
        rows[tuple(result[name] for name in KEY)] = row | {"by_agent": by_agent, "cpu_s": str(result["cpu_s"])}
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*KEY, "start", "final", "by_agent", "cpu_s"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))
    return len(rows)


# Accuracies by (pair, warm starts, seed)
Scores = dict[tuple[str, str, str], float]


def report(rows: Sequence[dict[str, str]], baseline: str) -> list[str]:
    """Markdown, from rows of the CSV: every option at every number of passes; then each at its own best number.

    Differences are paired: the same pair, warm start and seed.
    """
    scores: dict[str, dict[int, Scores]] = {}
    seconds: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        option = row["option"] + (f", {row['mini_batches']} mini-batches" if row["mini_batches"] != "1" else "")
        place = (row["pair"], row["starts"], row["seed"])
        scores.setdefault(option, {}).setdefault(int(row["passes"]), {})[place] = float(row["final"])
        if row["cpu_s"] and row["by_agent"].count(";") < 2:  # three agents cost more
            seconds.setdefault((option, int(row["passes"])), []).append(float(row["cpu_s"]))
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    lines = [f"| rule | passes | runs | {' | '.join(pairs)} | all | CPU s |", "|---" * (len(pairs) + 5) + "|"]
    for option, by_passes in scores.items():
        for passes, own in sorted(by_passes.items()):
            cells = [_mean_of([value for (one, *_), value in own.items() if one == pair]) for pair in pairs]
            cost = statistics.median(seconds.get((option, passes), [math.nan]))
            cells += [_mean_of(list(own.values())), f"{cost:.0f}"]
            lines.append(f"| {option} | {passes} | {len(own)} | {' | '.join(cells)} |")
    lines += ["", *_at_their_best(scores, pairs, baseline)]
    return lines


def _at_their_best(scores: dict[str, dict[int, Scores]], pairs: Sequence[str], baseline: str) -> list[str]:
    """Each option at its own best number of passes: `baseline` at its best, minus it.

    The best is that of the highest mean over the runs that all numbers of passes have.
    """
    best: dict[str, tuple[int, Scores]] = {}
    for option, by_passes in scores.items():
        common = set.intersection(*(set(own) for own in by_passes.values()))
        passes = max(by_passes, key=lambda one: fmean(by_passes[one][place] for place in common) if common else 0.0)
        best[option] = (passes, by_passes[passes])
    if baseline not in best:
        return []
    passes, own = best.pop(baseline)
    lines = [
        f"| {baseline}, {passes} passes, minus | passes | runs | {' | '.join(pairs)} | all |",
        "|---" * (len(pairs) + 4) + "|",
    ]
    for option, (number, theirs) in best.items():
        gaps = {place: own[place] - theirs[place] for place in sorted(own.keys() & theirs.keys())}
        cells = [_gap_of([gap for (one, *_), gap in gaps.items() if one == pair]) for pair in pairs]
        lines.append(f"| {option} | {number} | {len(gaps)} | {' | '.join(cells)} | {_gap_of(list(gaps.values()))} |")
    return lines


def _mean_of(values: Sequence[float]) -> str:
    return shown(fmean(values)) if values else ""


def _gap_of(values: Sequence[float]) -> str:
    if not values:
        return ""
    width = f" +- {shown(interval(values))}" if len(values) > 1 else ""
    return f"{signed(fmean(values))}{width}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.study", description=__doc__)
    parser.add_argument("action", choices=("run", "table", "collect", "report"))
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of warm starts and results")
    parser.add_argument("--pairs", default="complementary;mirrored;strong and weak", help="separated by ;")
    parser.add_argument("--options", default=";".join(OPTIONS), help="separated by ;")
    parser.add_argument("--seeds", type=int, default=5, help="run seeds 0 to N - 1")
    parser.add_argument("--starts", type=int, default=1, help="warm starts per pair: run seed modulo this")
    parser.add_argument("--prompts", type=int, default=24, help="prompts of a step (default: the demo's 24)")
    parser.add_argument("--passes", default="1", help="passes over the rollouts of a step, such as 1,2,4,8")
    parser.add_argument("--mini-batches", type=int, default=1, help="of a block (default: 1)")
    parser.add_argument("--csv", type=Path, default=CSV, help="results that are not run again (default: study.csv)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--baseline", default=BASELINE)
    parser.add_argument(
        "--smoke", action="store_true", help="one seed of hardly trained agents, two steps; then the table"
    )
    given = parser.parse_args(arguments)
    if given.smoke:
        os.environ[SMOKE] = "1"
        given.pairs, given.options, given.seeds = "complementary", BASELINE, 1
    pairs, options = given.pairs.split(";"), given.options.split(";")
    if given.action == "collect":
        print(f"{collect(given.out, given.csv)} rows in {given.csv}")
        return 0
    if given.action == "report":
        print("\n".join(report(read_csv(given.csv), given.baseline)))
        return 0
    runs = [
        Run(pair, option, seed, given.starts, given.prompts, passes, given.mini_batches)
        for passes in map(int, given.passes.split(","))
        for option in options
        for pair in pairs
        for seed in range(given.seeds)
    ]  # options before pairs and seeds: all seeds of one before the next begins
    if given.action == "table":
        rows = list(dict.fromkeys(run.row for run in runs))
        for pair in pairs:
            print("\n".join(table(given.out, pair, rows, given.baseline)), end="\n\n")
        return 0
    done = [{name: row[name] for name in KEY} for row in read_csv(given.csv)]
    return run_all(given.out, runs, given.processes, done)


if __name__ == "__main__":
    sys.exit(main())
