"""Agents for tests of learning: small models whose warm starts leave them something to learn from each other."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workers.algorithms.registry import own_settings
from workers.contract.demo_recipe import AGENTS, BENCHMARK_NAME, HELD_OUT_FILE, SKILLS, TRAIN_FILE, demo_settings
from workers.contract.spec.run import RunSpec
from workers.demo import task
from workers.demo import warm_start as recipe
from workers.demo.make import WARM_STARTS
from workers.demo.task import make_problems, write_questions
from workers.demo.warm_start import BOX, DIGIT_PAIRS, STEPS, WarmStart, train_agent

QWEN3, LLAMA, OLMO2 = AGENTS["qwen3"], AGENTS["llama"], "OLMo2 200k"
_QWEN3, _LLAMA = WARM_STARTS["qwen3"], WARM_STARTS["llama"]
PAIRS: dict[str, dict[str, WarmStart]] = {
    "complementary": {QWEN3: _QWEN3, LLAMA: _LLAMA},  # the demo's
    # The demo's, and one that knows a little of everything.
    "three": {
        QWEN3: _QWEN3,
        LLAMA: _LLAMA,
        OLMO2: WarmStart("olmo2", dict.fromkeys(SKILLS, 0.3), (*DIGIT_PAIRS, f"={BOX}")),
    },
}


def warm_start(agent: WarmStart, seed: int, cache: Path, steps: int = STEPS) -> Path:
    """The folder of a warm-started agent, made where the cache has none. Safe beside other processes."""
    code = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in (recipe, task))
    identity = json.dumps([asdict(agent), seed, steps, code], sort_keys=True)
    folder = cache / f"{agent.architecture}-{seed}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            workshop = Path(tempfile.mkdtemp(dir=cache))
            try:
                train_agent(agent, workshop / "made", seed, steps)
                os.rename(workshop / "made", folder)
            finally:
                shutil.rmtree(workshop)
    return folder


def questions(seed: int, cache: Path) -> Path:
    """The folder of the question files that belong to a warm start's seed."""
    folder = cache / f"questions-{seed}"
    if not folder.exists():
        workshop = Path(tempfile.mkdtemp(dir=cache))
        try:
            write_questions(workshop, *make_problems(seed))
            os.rename(workshop, folder)
        except OSError:  # another process was first
            shutil.rmtree(workshop)
            if not folder.exists():
                raise
    return folder


def run_spec(agents: Mapping[str, Path], data: Path, **sections: Any) -> RunSpec:
    """The demo's HACPO for these agents and question files. `sections` are merged section by section."""
    settings: dict[str, Any] = {
        **demo_settings("hacpo"),
        "agents": [{"name": name, "model": str(folder)} for name, folder in agents.items()],
        "data": {
            "benchmark": BENCHMARK_NAME,
            "train_path": str(data / TRAIN_FILE),
            "eval_path": str(data / HELD_OUT_FILE),
            "verifier": "exact",
        },
    }
    for name, changes in sections.items():
        settings[name] = {**settings.get(name, {}), **changes} if isinstance(changes, dict) else changes
    settings["algorithm"] = own_settings(settings["algorithm"]["name"], settings["algorithm"])
    return RunSpec.model_validate(settings)
