"""Seconds per training step: our GSPO beside TRL's GRPOTrainer, and HACPO beside two GSPO steps, in one run.

`python tests/bench/trainer.py [--sizes 0.1M,5M,30M] [--compare trl,hacpo] [--repeats 9] [--threads 1] [--json FILE]`

Equal on both sides: the model (random weights of one folder), the questions, prompts and rollouts per step, the tokens
generated (no response can end early; the counts are printed), one optimizer step on all rows, fp32 on a CPU with the
same number of threads, AdamW (fused) with the same numbers, gradient norm 1, no KL penalty, temperature 1, a reward
that is one CRC. TRL: no logging, no saving, no progress bar, no gradient checkpointing, and all rows in one batch, so
that it takes its old log-probabilities from the forward pass.
Not equal, to our cost: our step writes its telemetry (metrics, every rollout, every contribution), keeps a copy of the
weights to roll back to, and carries the stopwatches. Not equal, to TRL's: it takes the entropies of all tokens in the
training pass (ours while sampling), and gathers metrics although none is logged. Ours trains in micro-batches of 64.
Gradient alignment, every tenth step by default, is off. Both sample from the same distribution with random numbers of
their own.

Contestants take turns step by step, so that other work on the machine meets all alike. Printed: median [quartiles]
over the repetitions, of wall time and of the process's processor time; ratios are medians of pairwise ratios.
"dense": rewards by which no row has advantage 0, so no row is skipped; "sparse": half of the questions give no signal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from tests.bench.models import SIZES, Size, dense_reward, make_model, make_spec, sparse_reward, write_questions
from tests.bench.timing import MODEL_PARTS, Steps, Timed, ratio, spread, tell
from tests.bench.trl_steps import run_trl

# What the project promises: (measure, size) -> at most
AIMS = {
    ("GSPO / TRL", "0.1M"): 0.6,
    ("GSPO / TRL", "30M"): 0.85,
    **{("HACPO / 2 GSPO", size): 1.7 for size in SIZES},
    **{("outside the model", size): 0.08 for size in ("5M", "30M")},
}
Found = dict[str, list[Timed]]


def measure(size: Size, compare: Sequence[str], repeats: int, threads: int, root: Path) -> tuple[int, Found]:
    """The timed steps of every contestant, and the number of parameters of each model."""
    folders = [root / "a", root / "b"]
    parameters, _ = (make_model(folder, size, seed) for seed, folder in enumerate(folders))
    questions = write_questions(root / "questions.jsonl", size)

    def contestant(name: str, number: int) -> Steps:
        spec = make_spec(folders[:number], questions, size, threads, name=name)
        return Steps(spec, root / f"{name}{number}")

    found: Found = {}

    def turn(label: str, steps: Steps) -> None:
        for kind, reward in (("dense", dense_reward), ("sparse", sparse_reward)):
            timed = steps.step(reward)
            found.setdefault(f"{label}, {kind}", []).append(timed)
            tell(f"{label}, {kind}", timed)

    if "trl" in compare:
        gspo = contestant("gspo", 1)
        found["TRL"] = run_trl(folders[0], questions, root / "trl", size, repeats, lambda: turn("GSPO", gspo))
        gspo.close()
    if "hacpo" in compare:
        pair = {"2 GSPO": contestant("gspo", 2), "HACPO": contestant("hacpo", 2)}
        for _ in range(repeats + 1):
            for label, steps in pair.items():
                turn(label, steps)
        for steps in pair.values():
            steps.close()
    return parameters, {label: steps[-repeats:] for label, steps in found.items()}


def summary(size: str, found: Found) -> dict[str, Any]:
    """All figures of one size: [median, quartile, quartile] each."""
    wall = {label: [step.wall_s for step in steps] for label, steps in found.items()}
    cpu = {label: [step.cpu_s for step in steps] for label, steps in found.items()}
    figures: dict[str, Any] = {
        "wall_s": {label: spread(values) for label, values in wall.items()},
        "cpu_s": {label: spread(values) for label, values in cpu.items()},
        "ratios": {},
        "parts": {},
        "counts": {label: [fmean(counted) for counted in _counts(steps)] for label, steps in found.items()},
    }
    for kind in ("dense", "sparse"):
        pairs = {"GSPO / TRL": (f"GSPO, {kind}", "TRL"), "HACPO / 2 GSPO": (f"HACPO, {kind}", f"2 GSPO, {kind}")}
        for measured, (ours, other) in pairs.items():
            if ours not in wall:
                continue
            figures["ratios"][f"{measured}, {kind}"] = {
                "wall": ratio(wall[ours], wall[other]),
                "cpu": ratio(cpu[ours], cpu[other]),
                "aim": AIMS.get((measured, size)) if kind == "dense" else None,
            }
    for label, steps in found.items():
        if label != "TRL":
            names = sorted({name for step in steps for name in step.parts})
            figures["parts"][label] = {
                "outside": spread([step.outside for step in steps]),
                **{name: spread([step.parts.get(name, 0.0) / step.wall_s for step in steps])[0] for name in names},
            }
    return figures


def _counts(steps: Sequence[Timed]) -> list[list[int]]:
    """Tokens generated, rows planned for training and rows trained on, of each step."""
    return [[step.tokens for step in steps], [step.rows for step in steps], [step.active for step in steps]]


def show(size: str, parameters: int, shape: Size, figures: dict[str, Any]) -> None:
    batch = f"{shape.prompts} prompts x {shape.group} rollouts x {shape.tokens} tokens"
    print(f"\n{size}: {parameters:,} parameters, {batch}")
    print(f"{'step':<18}{'wall s':>26}{'processor s':>26}{'tokens':>9}{'rows':>7}{'trained':>9}")
    for label, wall in figures["wall_s"].items():
        tokens, rows, active = figures["counts"][label]
        counts = f"{tokens:>9.0f}" + (f"{rows:>7.0f}{active:>9.0f}" if rows else "")
        print(f"{label:<18}{_range(wall):>26}{_range(figures['cpu_s'][label]):>26}{counts}")
    print(f"{'ratio':<24}{'wall':>26}{'processor':>26}{'aim':>7}")
    for label, values in figures["ratios"].items():
        aim = "" if values["aim"] is None else f"{values['aim']:>7}"
        print(f"{label:<24}{_range(values['wall']):>26}{_range(values['cpu']):>26}{aim}")
    print("share of the step's wall time")
    for label, parts in figures["parts"].items():
        others = ", ".join(f"{name} {value:.1%}" for name, value in parts.items() if name != "outside")
        print(f"{label:<18}outside {' + '.join(MODEL_PARTS)}: {parts['outside'][0]:.1%} ({others})")


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--compare", default="trl,hacpo")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="the smallest size, one repetition")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.sizes, options.repeats = "0.1M", 1
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    everything = {}
    for name in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as root:
            parameters, found = measure(
                SIZES[name], options.compare.split(","), options.repeats, options.threads, Path(root)
            )
        everything[name] = {"parameters": parameters, **summary(name, found)}
        show(name, parameters, SIZES[name], everything[name])
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
