"""The demos: two agents with complementary skills, trained with and without sharing on the product's own path.

Creates (once) and registers the agents of a recipe, their group and the questions, and launches them as one sweep.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Q, QuerySet

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups import service as groups
from hacrl_web.registry.benchmarks import service as benchmarks
from hacrl_web.registry.language_models import service as models
from hacrl_web.registry.models import AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.launch.launch import launch_sweep
from hacrl_web.runs.launch.plan import plan_of
from hacrl_web.runs.models import Sweep
from hacrl_web.runs.sweeps.sweeps import add_seeds, retry_all
from hacrl_web.runs.workspace.demo_state import preparing
from hacrl_web.web.errors import FieldErrors
from workers.algorithms.registry import own_settings
from workers.contract.demo_recipe import (
    ALGORITHM_SETTINGS,
    ANSWER_FIELD,
    CONFIRM,
    HELD_OUT_FILE,
    QUESTION_FIELD,
    TRAIN_FILE,
    DemoRecipe,
)
from workers.contract.spec.algorithm import BASELINE, DEFAULT


def folder(recipe: DemoRecipe) -> Path:
    """The folder of a demo's models and questions."""
    return Path(settings.MODELS_DIR) / recipe.folder


def make_agents(recipe: DemoRecipe, report: Callable[[int], None], source: str = "") -> Path:
    """Create a demo's models and questions if they do not exist; returns their folder. Error: CalledProcessError.

    report: is called with the percentage done; what it raises ends the making. source: of the
    pretrained model, if the recipe has one.
    """
    folder(recipe).parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "workers.demo.make", str(folder(recipe)), "--progress"]
    command += ["--pretrained", source] if source else []
    with subprocess.Popen(command, cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                percent = json.loads(line).get("percent")
                if percent is not None:
                    report(percent)
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return folder(recipe)


def register(user: User, recipe: DemoRecipe, folder: Path) -> tuple[AgentGroup, Benchmark]:
    """The group and the benchmark of a demo, registered as a user would unless they already are.

    If the models have changed since (another recipe, a damaged file), a new set is registered beside the old one.
    """
    group_name = " + ".join(recipe.agents.values())
    for number in count(1):
        suffix = "" if number == 1 else f" ({number})"
        group = AgentGroup.objects.filter(owner=user, name=group_name + suffix).first()
        if group is None or _is_unchanged(group):
            break
    if group is None:
        new = {place: name + suffix for place, name in recipe.agents.items()}
        agents = [
            {"model": model.pk, "name": recipe.agents[place], **recipe.agent_settings}
            for place, model in _models(user, folder, new).items()
        ]
        group = groups.create_group(user, name=group_name + suffix, agents=agents)
    options = {**recipe.benchmark, "name": recipe.benchmark["name"] + suffix}
    benchmark = Benchmark.objects.filter(owner=user, name=options["name"]).first()
    return group, benchmark or _benchmark(user, folder, options)


def _is_unchanged(group: AgentGroup) -> bool:
    try:
        for agent in group.agents.select_related("model"):
            models.check_unchanged(agent.model)
    except FieldErrors:
        return False
    return True


def _models(user: User, folder: Path, names: dict[str, str]) -> dict[str, LanguageModel]:
    """The registered model of each place in the folder; new ones are inspected at the same time, seconds each."""
    known = {model.name: model for model in LanguageModel.objects.filter(owner=user, name__in=names.values())}
    new = [place for place, name in names.items() if name not in known]
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda place: models.read_model_facts(str(folder / place), ""), new))
    for place, answer in zip(new, answers, strict=True):
        known[names[place]] = models.register_model(
            user, location=str(folder / place), name=names[place], inspected=answer
        )
    return {place: known[name] for place, name in names.items()}


def _benchmark(user: User, folder: Path, options: dict[str, Any]) -> Benchmark:
    with open(folder / TRAIN_FILE, "rb") as train, open(folder / HELD_OUT_FILE, "rb") as held_out:
        return benchmarks.create_benchmark(
            user,
            file=_upload(train),
            held_out_file=_upload(held_out),
            question_field=QUESTION_FIELD,
            answer_field=ANSWER_FIELD,
            **options,
        )


def _upload(file: Any) -> UploadedFile:
    content = File(file)
    return UploadedFile(content, name=Path(file.name).name, content_type="application/jsonl", size=content.size)


def demo_sweeps(user: User, recipe: DemoRecipe) -> QuerySet[Sweep]:
    """The user's sweeps of a demo, the newest first."""
    return Sweep.objects.filter(Q(name=recipe.name) | Q(name__startswith=f"{recipe.name} ("), owner=user)


def _launch(user: User, recipe: DemoRecipe, request: dict[str, Any], *, is_new: bool) -> Sweep:
    """Queue every algorithm on every seed as one sweep with a new name.

    Unless is_new, an existing demo of these settings gets the further seeds, and its failed runs again.
    """

    def common(one: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key not in ("name", "seeds")}

    earlier = demo_sweeps(user, recipe)
    if not is_new:
        settings = common(plan_of(user, request, Sweep).request)
        sweep = next((one for one in earlier if common(one.request) == settings), None)
        if sweep is not None:
            add_seeds(user, sweep, request["seeds"])
            retry_all(user, sweep)
            return sweep
    taken = set(earlier.values_list("name", flat=True))
    names = (recipe.name if number == 1 else f"{recipe.name} ({number})" for number in count(1))
    return launch_sweep(user, request | {"name": next(name for name in names if name not in taken)})


SAY_EVERY_S = 15.0
FROM_CACHE = "Looking for its two models in the cache."


class DemoFailed(Exception):
    """The demo could not be made or launched; its text says why."""


def make_and_launch(
    user: User,
    recipe: DemoRecipe,
    source: str,
    seeds: Sequence[int],
    algorithms: Sequence[str],
    engine: str,
    *,
    is_new: bool,
    check: Callable[[], None] = lambda: None,
    say: Callable[[str], object] = lambda text: None,
) -> Sweep:
    """The demo's sweep. check: is called while models are made; what it raises ends that. Error: DemoFailed.

    say: is told what is done now.
    """
    with preparing(FROM_CACHE if folder(recipe).exists() else recipe.activity) as show:

        def tell(text: str, **place: int) -> None:
            show(text, **place)
            say(text)

        told_at = time.monotonic()

        def report(percent: int) -> None:
            nonlocal told_at
            check()
            is_due = time.monotonic() - told_at > SAY_EVERY_S
            told_at = time.monotonic() if is_due else told_at
            (tell if is_due else show)(f"{recipe.activity} {percent} % done.", percent=percent)

        try:
            if not folder(recipe).exists():
                say(recipe.activity)
            made = make_agents(recipe, report, source)
            tell("Checking and registering its models and questions.", phase=1)
            group, benchmark = register(user, recipe, made)
            settings = recipe.settings(recipe.algorithms[0], engine)
            used = {key for name in algorithms for key in own_settings(name, ALGORITHM_SETTINGS)}
            settings["algorithm"] = {key: value for key, value in ALGORITHM_SETTINGS.items() if key in used}
            say("Queueing its runs.")
            request = {
                "name": recipe.name,
                "group": group.pk,
                "benchmark": benchmark.pk,
                # HACPO and GSPO first: together they answer whether sharing helps.
                "algorithms": sorted(algorithms, key=lambda name: [DEFAULT, BASELINE, name].index(name)),
                "seeds": list(seeds),
                "confirm": list(CONFIRM),
                **settings,
            }
            return _launch(user, recipe, request, is_new=is_new)
        except subprocess.CalledProcessError as error:
            raise DemoFailed(f"The demo agents could not be created (exit status {error.returncode}).") from None
        except FieldErrors as refusal:
            raise DemoFailed(f"The demo could not be launched: {refusal}") from None
