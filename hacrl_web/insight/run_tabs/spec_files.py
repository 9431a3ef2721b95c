"""A run's settings as files: YAML to train from again, and YAML for verl's HACPO recipe."""

from __future__ import annotations

from hacrl_web.runs.models import Run
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.web.errors import FieldErrors
from workers.contract.spec.algorithm import left_settings
from workers.contract.spec.run import dump_yaml
from workers.contract.verl_export import UnsupportedByVerl, to_recipe_yaml


def as_yaml(run: Run) -> str:
    """As stored where they have settings that left. Error: FieldErrors (409), if another version stored them."""
    return dump_yaml(run.spec) if left_settings(run.spec) else stored_spec(run).to_yaml()


def as_verl_yaml(run: Run) -> str:
    """Error: FieldErrors (409), if another version stored them, or the recipe would train something else."""
    try:
        return to_recipe_yaml(stored_spec(run))
    except UnsupportedByVerl as refusal:
        raise FieldErrors.single("cannot_hand_over", str(refusal), status=409) from None


def verl_refusal(run: Run) -> str:
    """Why there is no file for the recipe; empty if there is one."""
    try:
        as_verl_yaml(run)
    except FieldErrors as refused:
        return refused.errors[0].message
    return ""
