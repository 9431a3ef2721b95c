"""Seconds per HACPO step by phase for n = 1 to 8 tiny agents, with all peers or with one or two sources a learner.

`python tests/bench/scaling.py [--agents 1,2,4,8] [--sources 0,1,2] [--repeats 5] [--json FILE]`

One CPU thread, fp32, models of one size, rewards by which no row is skipped; the counts of rows and tokens are printed
beside the seconds. Medians of processor seconds; n and the number of sources take turns within each repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from tests.bench.models import TINY, dense_reward, make_model, make_spec, write_questions
from tests.bench.timing import Steps, Timed

PHASES = ("generate", "verify", "update", "telemetry")
Case = tuple[int, int]  # agents, sources a learner (0: all)


def cases(agents: Sequence[int], sources: Sequence[int]) -> list[Case]:
    """Each pair that differs: a limit only where there are more peers than that."""
    return [(n, limit) for n in agents for limit in sources if not limit or limit < n - 1]


def measure(wanted: Sequence[Case], repeats: int, root: Path) -> dict[Case, list[Timed]]:
    folders = [root / str(index) for index in range(max(n for n, _ in wanted))]
    for seed, folder in enumerate(folders):
        make_model(folder, TINY, seed)
    questions = write_questions(root / "questions.jsonl", TINY)
    steps = {}
    for n, limit in wanted:
        spec = make_spec(folders[:n], questions, TINY, 1, name="hacpo", max_sources_per_learner=limit)
        steps[n, limit] = Steps(spec, root / f"run-{n}-{limit}")
    found: dict[Case, list[Timed]] = {case: [] for case in wanted}
    for repetition in range(repeats + 1):
        for case in wanted:
            timed = steps[case].step(dense_reward)
            if repetition:  # the first warms up
                found[case].append(timed)
    for each in steps.values():
        each.close()
    return found


def row(case: Case, found: Sequence[Timed]) -> dict[str, Any]:
    """Medians of one case."""
    phases = {name: median(step.phases.get(name, 0.0) for step in found) for name in PHASES}
    step = found[0]
    return {
        "agents": case[0],
        "sources": case[1] or case[0] - 1,
        "tokens": step.tokens,
        "rows": step.rows,
        "updates": step.updates,
        "shared_characters": step.shared_characters,
        "cpu_s": median(step.cpu_s for step in found),
        **{f"{name}_s": value for name, value in phases.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--sources", default="0,1,2", help="max_sources_per_learner; 0: all peers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--smoke", action="store_true", help="two agents, one repetition")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.agents, options.sources, options.repeats = "1,2", "0", 1
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wanted = cases([int(n) for n in options.agents.split(",")], [int(n) for n in options.sources.split(",")])
    with tempfile.TemporaryDirectory() as root:
        found = measure(wanted, options.repeats, Path(root))
    rows = [row(case, found[case]) for case in wanted]
    alone = rows[0]["cpu_s"] / rows[0]["agents"]
    batch = f"{TINY.prompts} prompts x {TINY.group} rollouts x {TINY.tokens} tokens for each agent"
    print(f"{batch}; processor seconds, medians of {options.repeats} steps")
    print("agents sources  tokens   rows updates  generate  verify  update  telemetry    step  per agent, n = 1 is 1")
    for each in rows:
        phases = "  ".join(f"{each[f'{name}_s']:7.3f}" for name in PHASES)
        counts = f"{each['agents']:>6}{each['sources']:>8}{each['tokens']:>8}{each['rows']:>7}{each['updates']:>8}"
        print(f"{counts}  {phases}  {each['cpu_s']:7.3f}  {each['cpu_s'] / each['agents'] / alone:6.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
