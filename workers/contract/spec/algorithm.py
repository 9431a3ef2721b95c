"""RunSpec's algorithm section: a registered algorithm, chosen by `name`; and the upgrade of older settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.registry import algorithms, own_settings

SCHEMA_VERSION = 2
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
    """
    if not isinstance(values, Mapping):
        return values
    section = values.get(SECTION, {})
    if isinstance(section, Mapping):
        section = {"name": DEFAULT, **section}
        if values.get("schema_version") == 1 and isinstance(section["name"], str):
            section = own_settings(section["name"], section)
    version = SCHEMA_VERSION if values.get("schema_version") == 1 else values.get("schema_version", SCHEMA_VERSION)
    return {**values, SECTION: section, "schema_version": version}


def field_path(parts: tuple[int | str, ...]) -> str:
    """The dotted path of a setting from the place of pydantic's error, which also names the algorithm."""
    if len(parts) > 1 and parts[0] == SECTION and parts[1] in algorithms():
        parts = (SECTION, *parts[2:])
    return ".".join(map(str, parts))
