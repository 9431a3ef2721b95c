"""From nothing to a demo's queued runs: makes its models, registers them and launches, and says how far it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from hacrl_web.accounts.models import User
from hacrl_web.demo import launch as demo
from hacrl_web.runs.demo_state import preparing
from hacrl_web.runs.models import Sweep
from hacrl_web.web.errors import FieldErrors
from workers.contract.demo_recipe import DemoRecipe

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
) -> Sweep:
    """The demo's sweep. check: is called while models are made; what it raises ends that. Error: DemoFailed."""
    with preparing(FROM_CACHE if demo.folder(recipe).exists() else recipe.activity) as show:

        def report(percent: int) -> None:
            check()
            show(f"{recipe.activity} {percent} % done.", percent=percent)

        try:
            folder = demo.make_agents(recipe, report, source)
            show("Checking and registering its models and questions.", phase=1)
            group, benchmark = demo.register(user, recipe, folder)
            return demo.launch_demo(user, recipe, group, benchmark, seeds, algorithms, engine, is_new=is_new)
        except subprocess.CalledProcessError as error:
            raise DemoFailed(f"The demo agents could not be created (exit status {error.returncode}).") from None
        except FieldErrors as refusal:
            raise DemoFailed(f"The demo could not be launched: {refusal}") from None
