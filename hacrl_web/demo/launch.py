"""The demo: two tiny agents with complementary skills, trained with and without sharing on the product's own path.

Creates (once) and registers the agents, their group and the questions, and launches the comparison as one sweep.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Q, QuerySet

from hacrl_web.accounts.models import User
from hacrl_web.registry.benchmarks import benchmarks
from hacrl_web.registry.language_models import groups, models
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import Sweep
from hacrl_web.runs.sweeps.plan import plan_sweep
from hacrl_web.runs.sweeps.sweeps import add_seeds, launch_sweep, retry_all
from hacrl_web.web.errors import FieldErrors
from workers.algorithms.registry import own_settings
from workers.contract.demo_recipe import (
    AGENTS,
    ALGORITHM_SETTINGS,
    ALGORITHMS,
    ANSWER_FIELD,
    BENCHMARK_NAME,
    CONFIRM,
    HELD_OUT_FILE,
    QUESTION_FIELD,
    TRAIN_FILE,
    demo_settings,
)
from workers.contract.spec.algorithm import DEFAULT

GROUP_NAME = " + ".join(AGENTS.values())
SWEEP_NAME = "Demo"


def folder() -> Path:
    """The folder of the demo's models and questions."""
    return Path(settings.MODELS_DIR) / "demo"


def make_agents(report: Callable[[int], None]) -> Path:
    """Create the demo's models and questions if they do not exist; returns their folder. Error: CalledProcessError.

    report: is called with the percentage done.
    """
    folder().parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "workers.demo.make", str(folder()), "--progress"]
    with subprocess.Popen(command, cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            percent = json.loads(line).get("percent")
            if percent is not None:
                report(percent)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return folder()


def register(user: User, folder: Path) -> tuple[AgentGroup, Benchmark]:
    """The group and the benchmark of the demo, registered as a user would unless they already are.

    If the models have changed since (another recipe, a damaged file), a new set is registered beside the old one.
    """
    for number in count(1):
        suffix = "" if number == 1 else f" ({number})"
        group = AgentGroup.objects.filter(owner=user, name=GROUP_NAME + suffix).first()
        if group is None or _is_unchanged(group):
            break
    if group is None:
        agents = [
            {"model": _model(user, folder / place, name + suffix).pk, "name": name} for place, name in AGENTS.items()
        ]
        group = groups.create_group(user, name=GROUP_NAME + suffix, agents=agents)
    benchmark = Benchmark.objects.filter(owner=user, name=BENCHMARK_NAME + suffix).first()
    return group, benchmark or _benchmark(user, folder, BENCHMARK_NAME + suffix)


def _is_unchanged(group: AgentGroup) -> bool:
    try:
        for agent in group.agents.select_related("model"):
            models.check_unchanged(agent.model)
    except FieldErrors:
        return False
    return True


def _model(user: User, folder: Path, name: str) -> LanguageModel:
    model = LanguageModel.objects.filter(owner=user, name=name).first()
    return model or models.register_model(user, location=str(folder), name=name)


def _benchmark(user: User, folder: Path, name: str) -> Benchmark:
    with open(folder / TRAIN_FILE, "rb") as train, open(folder / HELD_OUT_FILE, "rb") as held_out:
        return benchmarks.create_benchmark(
            user,
            name=name,
            file=_upload(train),
            held_out_file=_upload(held_out),
            question_field=QUESTION_FIELD,
            answer_field=ANSWER_FIELD,
        )


def _upload(file: Any) -> UploadedFile:
    content = File(file)
    return UploadedFile(content, name=Path(file.name).name, content_type="application/jsonl", size=content.size)


def demo_sweeps(user: User) -> QuerySet[Sweep]:
    """The user's demos, the newest first."""
    return Sweep.objects.filter(Q(name=SWEEP_NAME) | Q(name__startswith=f"{SWEEP_NAME} ("), owner=user)


def launch_demo(
    user: User,
    group: AgentGroup,
    benchmark: Benchmark,
    seeds: Sequence[int],
    algorithms: Sequence[str],
    engine: str,
    *,
    is_new: bool,
) -> Sweep:
    """Queue every algorithm on every seed as one sweep with a new name.

    Unless is_new, an existing demo of these settings gets the further seeds, and its failed runs again.
    Error: LaunchError.
    """
    request = _request(group, benchmark, seeds, algorithms, engine)
    if not is_new:
        common = _common_settings(plan_sweep(user, request).request)
        sweep = next((one for one in demo_sweeps(user) if _common_settings(one.request) == common), None)
        if sweep is not None:
            add_seeds(user, sweep, list(seeds))
            retry_all(user, sweep)
            return sweep
    names_in_use = set(demo_sweeps(user).values_list("name", flat=True))
    names = (SWEEP_NAME if number == 1 else f"{SWEEP_NAME} ({number})" for number in count(1))
    return launch_sweep(user, request | {"name": next(name for name in names if name not in names_in_use)})


def _common_settings(request: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in request.items() if key not in ("name", "seeds")}


def _request(
    group: AgentGroup, benchmark: Benchmark, seeds: Sequence[int], algorithms: Sequence[str], engine: str
) -> dict[str, Any]:
    common_settings: dict[str, Any] = demo_settings(ALGORITHMS[0], engine)
    used = {key for name in algorithms for key in own_settings(name, ALGORITHM_SETTINGS)}
    common_settings["algorithm"] = {key: value for key, value in ALGORITHM_SETTINGS.items() if key in used}
    return {
        "name": SWEEP_NAME,
        "group": group.pk,
        "benchmark": benchmark.pk,
        # HACPO first: its page is worth watching while the others wait.
        "algorithms": sorted(algorithms, key=DEFAULT.__ne__),
        "seeds": list(seeds),
        "confirm": list(CONFIRM),
        **common_settings,
    }
