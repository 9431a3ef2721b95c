"""The environment of a run, by its name in the settings."""

from __future__ import annotations

from workers.contract.spec.rollout import RolloutSpec
from workers.environments.base import Environment
from workers.environments.calculator import Calculator


def open_environment(rollout: RolloutSpec) -> Environment | None:
    """None where a rollout is one response. Error: EnvironmentFailed."""
    if rollout.environment == "calculator":
        return Calculator()
    if rollout.environment == "verifiers":
        from workers.environments.verifiers import VerifiersEnvironment  # the package takes seconds to import

        return VerifiersEnvironment(rollout.verifiers_environment)
    return None
