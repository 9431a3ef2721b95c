"""The settings that make a row of a board: those that act on its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hacrl_web.insight.settings_diff import effective
from hacrl_web.runs.models import Run
from hacrl_web.web.dotted_paths import flat
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.registry import algorithms
from workers.contract.settings import Needs, void_because
from workers.contract.spec.rewards import text_of_terms
from workers.contract.spec.run import RunSpec

EVALUATION_ONLY = "evaluation only"  # in an algorithm's place: a run of no steps
_COMPARED = ("algorithm", "rewards", "rollout", "training", "evaluation", "agents", "data")
# What acts on an untrained agent's score, so that runs which agree in it have the same start.
_ACTS_ON_START = ("data.", "evaluation.", "rollout.max_prompt_length", "rollout.max_completion_length")
_ACTS_ON_AGENT = ("name", "model", "revision", "prompt_format", "prompt_template", "chat_template_kwargs", "thinking")
# Above 0: the run continued from another run's checkpoint, whose steps are not in its own settings.
_START_STEP = "training.start_step"
Settings = Mapping[str, Any]


def algorithm_of(run: Run) -> str:
    """The algorithm's name in RunSpec, or EVALUATION_ONLY."""
    return run.algorithm if run.total_steps else EVALUATION_ONLY


def all_settings(run: Run) -> dict[str, Any]:
    """Every compared setting of a run by its dotted path, with today's defaults for those that came later."""
    spec = effective(run)
    if rewards := spec.get("rewards"):  # limits of functions change no reward, and terms are one factor
        terms = text_of_terms(rewards["terms"])
        spec = spec | {"rewards": {"terms": terms, "verifier_weight": rewards["verifier_weight"] if terms else 1.0}}
    if sets := spec.get("training", {}).get("benchmarks"):  # one factor
        own = [(spec["data"]["benchmark"], spec["training"]["benchmark_weight"])]
        weights = own + [(one["benchmark"], one["weight"]) for one in sets]
        spec = spec | {"training": spec["training"] | {"benchmarks": _shares(weights), "benchmark_weight": 1.0}}
    settings = {path: value for section in _COMPARED for path, value in flat(spec.get(section), section)}
    # A continuation in the place of a run that did not end has all its steps: its checkpoint counts the earlier ones.
    return settings | ({_START_STEP: run.start_step} if run.start_step and run.retry_of_id is None else {})


def _shares(weights: Sequence[tuple[str, float]]) -> str:
    """Training sets with their shares of the prompts, whatever the size of the weights: `sums 75%, words 25%`."""
    total = sum(weight for _, weight in weights)
    first, *others = [f"{name} {100 * weight / total:.6g}%" for name, weight in weights]
    return ", ".join([first, *sorted(others)])


def relevant_settings(settings: Settings, algorithm: str) -> dict[str, Any]:
    """The settings that act on the results of `algorithm`: runs with equal ones are one row.

    An empty epsilon becomes the algorithm's default, so that only another number makes another row.
    """
    relevant = {path: value for path, value in settings.items() if path != "algorithm.name"}
    if algorithm == EVALUATION_ONLY:
        return {path: value for path, value in relevant.items() if acts_on_start(path) and _acts(path, settings)}
    if (rule := algorithms().get(algorithm)) is not None:
        for path, epsilon in zip(("algorithm.epsilon", "algorithm.epsilon_high"), rule.own_epsilons, strict=True):
            if relevant.get(path) is None:
                relevant[path] = epsilon
        own = {f"algorithm.{name}" for name in rule.model_fields if name not in rule.unused}
        relevant = {path: value for path, value in relevant.items() if path in own or not path.startswith("algorithm.")}
    return {path: value for path, value in relevant.items() if _acts(path, settings, rule)}


def settings_under(settings: Settings, algorithm: str, other: str) -> dict[str, Any]:
    """The settings of a run of `other` that is the equal of this one of `algorithm`.

    A setting at its algorithm's default is at the other's default there: Dr. GRPO scales no rewards by itself.
    """
    own, rule = algorithms().get(algorithm), algorithms().get(other)
    changed: dict[str, Any] = {}
    if own is not None and rule is not None:
        for name in own.model_fields.keys() & rule.model_fields.keys() - {"name"}:
            path, default = f"algorithm.{name}", own.model_fields[name].default
            if settings.get(path, default) == default:
                changed[path] = rule.model_fields[name].default
    return relevant_settings({**settings, **changed}, other)


def acts_on_start(path: str) -> bool:
    """Whether a setting acts on the scores of untrained agents."""
    if path.startswith("agents."):
        return path.split(".")[2] in _ACTS_ON_AGENT
    return path.startswith(_ACTS_ON_START) and path != "evaluation.eval_interval"


def _acts(path: str, settings: Settings, rule: type[AlgorithmSpec] | None = None) -> bool:
    """False if a setting changes no result: never does, or not at the present values of others."""
    section, _, name = path.partition(".")
    if section == "agents" and name.endswith(".lora_alpha"):  # it scales LoRA's matrices
        return bool(settings.get(path.removesuffix("alpha") + "rank"))
    if section == "algorithm":
        needs, acts = (_needs(rule, name) if rule else ()), True
    else:
        needs, acts = _marks(section, name)
    return acts and not (needs and void_because(needs, lambda at: settings.get(at if "." in at else f"{section}.{at}")))


@cache
def _needs(rule: type[AlgorithmSpec], name: str) -> Needs:
    return rule.needs_of(name)


@cache
def _marks(section: str, name: str) -> tuple[Needs, bool]:
    """A setting's `needs`, and whether it changes results."""
    part = RunSpec.model_fields[section].default
    field = getattr(type(part), "model_fields", {}).get(name.partition(".")[0])
    extra = field.json_schema_extra if field else None
    marks: dict[str, Any] = extra if isinstance(extra, dict) else {}
    return marks.get("needs", ()), not marks.get("changes_no_result")
