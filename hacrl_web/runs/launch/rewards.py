"""The rewards of a launch request: a request names registered functions and judges, a run's settings their files.

A request never names a file: whoever may launch a run may not choose which code it runs, nor whom it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hacrl_web.registry.models import AgentGroup, Judge, RewardFunction
from hacrl_web.registry.rewards.service import named_rows, write_file
from hacrl_web.web.errors import FieldError
from workers.contract.spec.rewards import terms_of_text

FIELD = "rewards.terms"


KINDS: dict[str, type[Judge] | type[RewardFunction]] = {"function": RewardFunction, "judge": Judge}  # by setting


def with_reward_files(section: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    """The section with the files of functions and judges; unknown names are errors. RunSpec refuses no section."""
    terms = section.get("terms") if isinstance(section, Mapping) else None
    if isinstance(terms, str):
        try:
            terms = terms_of_text(terms)
        except ValueError:  # RunSpec reports it
            return section
    if not isinstance(terms, list | tuple):
        return section
    return {**section, "terms": [_with_files(term, group, errors) for term in terms]}


def _with_files(term: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    if not isinstance(term, Mapping):
        return term
    files = {}
    for setting, kind in KINDS.items():
        if not term.get(setting):
            continue
        name = str(term[setting])
        row = named_rows(kind, [name], group.project).get(name) if group else None
        if row is None:
            errors.append(FieldError("not_found", f"There is no {kind._meta.verbose_name} {name[:80]!r}.", FIELD))
        files[setting] = "-" if row is None else str(write_file(row))
    return {**term, **files}


def with_reward_names(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a stored run with the names of its functions and judges, as a request has them."""
    terms = [
        {**term, **{setting: PurePath(term.get(setting) or "").stem for setting in KINDS}} for term in section["terms"]
    ]
    return {**section, "terms": terms}
