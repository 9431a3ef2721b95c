"""The rewards of a launch request: a request names registered functions, a run's settings their files.

A request never names a file: whoever may launch a run may not choose which code it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hacrl_web.registry.models import AgentGroup
from hacrl_web.registry.reward_functions import find_functions, write_file
from hacrl_web.web.errors import FieldError
from workers.contract.spec.rewards import terms_of_text

FIELD = "rewards.terms"


def with_function_files(section: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    """The section with the file of each function; unknown functions are errors. RunSpec refuses what is no section."""
    terms = section.get("terms") if isinstance(section, Mapping) else None
    if isinstance(terms, str):
        try:
            terms = terms_of_text(terms)
        except ValueError:  # RunSpec reports it
            return section
    if not isinstance(terms, list | tuple):
        return section
    return {**section, "terms": [_with_file(term, group, errors) for term in terms]}


def _with_file(term: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    if not isinstance(term, Mapping) or not term.get("function"):
        return term
    name = str(term["function"])
    row = find_functions([name], group.project).get(name) if group else None
    if row is None:
        errors.append(FieldError("not_found", f"There is no reward function {name[:80]!r}.", FIELD))
        return {**term, "function": "-"}
    return {**term, "function": str(write_file(row))}


def with_function_names(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a stored run with the names of its functions, as a request has them."""
    terms = [{**term, "function": PurePath(term["function"]).stem} for term in section["terms"]]
    return {**section, "terms": terms}
