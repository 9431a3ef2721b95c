"""RunSpec's algorithm section: a registered algorithm, chosen by `name`; and the upgrade of older settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings
from workers.contract.spec.left import without_idle

SCHEMA_VERSION = 3
# Of settings that have another default since, or are new and would change a run.
DEFAULTS_OF_VERSION_2: dict[str, dict[str, Any]] = {
    "algorithm": {"beta": 1e-3},
    "rollout": {"engine": "transformers"},
    "training": {"lora_learning_rate_factor": 1.0},
    "evaluation": {"max_questions": 0, "question_choice": "first"},
    "checkpoint": {"save_steps": 0},
    "compute": {"agent_devices": "shared", "gradient_checkpointing": False, "placement": "local"},
}
DEFAULT = "hacpo"
BASELINE = "gspo"  # what others are compared with: each agent alone, at the same cost of rollouts
RECOMMENDED = "signed"  # the sharing rule that the study of docs/science.md supports
RECOMMENDED_PASSES = 4  # over the rollouts of a step
SECTION = "algorithm"

if TYPE_CHECKING:
    AnyAlgorithm = AlgorithmSpec
else:
    AnyAlgorithm = Annotated[Union[tuple(algorithms().values())], Field(discriminator="name")]  # noqa: UP007


def upgraded(values: Any) -> Any:
    """The settings of a run as this version reads them; anything else as it is.

    Up to version 1 every algorithm had the settings of all of them: those that it does not have are left out.
    Up to version 2 some defaults were others: they are filled in. Settings that left are dropped where they had no
    effect.
    """
    if not isinstance(values, Mapping):
        return values
    section = values.get(SECTION, {})
    if isinstance(section, Mapping):
        section = {"name": DEFAULT, **section}
        if values.get("schema_version") == 1 and isinstance(section["name"], str):
            section = own_settings(section["name"], section)
    values = without_idle({**values, SECTION: section})
    if values.setdefault("schema_version", SCHEMA_VERSION) not in (1, 2):
        return values
    for name, defaults in DEFAULTS_OF_VERSION_2.items():
        if isinstance(own := values.get(name, {}), Mapping):
            values[name] = {**defaults, **own}
    return {**values, "schema_version": SCHEMA_VERSION}


def field_path(parts: tuple[int | str, ...]) -> str:
    """The dotted path of a setting from the place of pydantic's error, which also names the algorithm."""
    if len(parts) > 1 and parts[0] == SECTION and parts[1] in algorithms():
        parts = (SECTION, *parts[2:])
    return ".".join(map(str, parts))
