"""A run's settings as a file: YAML to train from again."""

from __future__ import annotations

from hacrl_web.runs.models import Run
from hacrl_web.runs.stored_spec import stored_spec
from workers.contract.spec.algorithm import left_settings
from workers.contract.spec.run import dump_yaml


def as_yaml(run: Run) -> str:
    """As stored where they have settings that left. Error: FieldErrors (409), if another version stored them."""
    return dump_yaml(run.spec) if left_settings(run.spec) else stored_spec(run).to_yaml()
