"""What a peer that lies, or emits noise, does to an honest agent: `python -m tests.bench.bad_peers OUT`.

On the pairs of the study; the bad peer is the second agent. The verdicts on a liar's rollouts are turned around; noise
is random text. One JSON file a run, what is there is not run again; then a table: the honest agent's held-out
accuracy, and its difference to learning alone, with 95 % intervals over the seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.bench.pairs import SMOKE
from tests.bench.study import OPTIONS, Run, interval, shown, signed, spec_of
from tests.support.workers.peers import emit_noise, train_with_liar
from tests.support.workers.tiny import records
from workers.contract.spec.run import RunSpec
from workers.verifiers.service import Verifier

KINDS = ("complementary", "mirrored", "strong and weak")
QUARANTINE, AUDIT = {"peer_quarantine": True}, {"audit_share": 0.1}
# The peer, and what differs from the option of the study.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "alone": ("honest", {"sharing": False}),
    "liar, quarantine": ("liar", QUARANTINE),
    "liar, audit": ("liar", AUDIT),
    "liar": ("liar", {}),
    "noise, quarantine": ("noise", QUARANTINE),
    "noise": ("noise", {}),
}
NOISE = ("0123456789+-*()=;}", 24)  # letters, most of them


def folder_of(out: Path, option: str, kind: str, case: str) -> Path:
    return out / "bad peers" / option / kind / case


def execute(kind: str, case: str, seed: int, starts: int, prompts: int, option: str, out: Path) -> None:
    """Run one case and write its result."""
    path = folder_of(out, option, kind, case) / f"{seed}.json"
    if path.exists():
        return
    peer, algorithm = CASES[case]
    base = spec_of(Run(kind, option, seed, starts, prompts), out / "cache").model_dump(mode="json")
    spec = RunSpec.model_validate({**base, "algorithm": {**base["algorithm"], **algorithm}})
    honest, bad = (agent.name for agent in spec.agents)
    with tempfile.TemporaryDirectory() as workshop, pytest.MonkeyPatch.context() as patch, Verifier("math") as verifier:
        if peer == "noise":
            emit_noise(patch, bad, *NOISE)
        run_dir = Path(workshop) / "run"
        train_with_liar(spec, run_dir, 1 if peer == "liar" else None, verifier)
        ends = [r["value"] for r in records(run_dir, "evaluation") if r["agent"] == honest]
        pairs = [r for r in records(run_dir, "metrics") if (r["agent"], r["source"]) == (honest, bad)]
    shut_out = sum(r["values"].get("quarantined") or 0 for r in pairs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps({"start": ends[0], "final": ends[-1], "quarantined": shut_out}))
    os.replace(path.with_suffix(".part"), path)


def table(out: Path, option: str, kind: str) -> list[str]:
    """Markdown: one row for each case that has results."""
    found = {case: _load(folder_of(out, option, kind, case)) for case in CASES}
    lines = [f"| {kind} | runs | honest agent | minus alone | steps in quarantine |", "|---|---|---|---|---|"]
    for case, results in found.items():
        if not results:
            continue
        common = sorted(results.keys() & found["alone"].keys())
        gains = [results[seed]["final"] - found["alone"][seed]["final"] for seed in common]
        gain = f"{signed(statistics.fmean(gains))} +- {shown(interval(gains))}" if case != "alone" and gains else ""
        values = [result["final"] for result in results.values()]
        steps = statistics.fmean(result["quarantined"] for result in results.values())
        mean = f"{shown(statistics.fmean(values))} +- {shown(interval(values))}"
        lines.append(f"| {case} | {len(values)} | {mean} | {gain} | {steps:.1f} |")
    return lines


def _load(folder: Path) -> dict[int, dict[str, float]]:
    return {int(path.stem): json.loads(path.read_text()) for path in folder.glob("*.json")}


def main(arguments: list[str]) -> int:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=1, help="warm starts per pair: run seed modulo this")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--option", choices=OPTIONS, default="zero .8", help="of the study (default: the demo's HACPO)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--smoke", action="store_true", help="one seed of hardly trained agents, two steps")
    options = parser.parse_args(arguments)
    if options.smoke:
        os.environ[SMOKE] = "1"
        options.seeds = 1
    kinds, cases = (list(KINDS)[:1], list(CASES)[:1]) if options.smoke else (list(KINDS), list(CASES))
    todo = [(kind, case, seed) for seed, kind, case in product(range(options.seeds), kinds, cases)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        rest = (options.starts, options.prompts, options.option, options.out)
        for future in [pool.submit(execute, *one, *rest) for one in todo]:
            future.result()
    print("\n".join(line for kind in KINDS for line in table(options.out, options.option, kind)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
