"""Registers reward functions: Python files that runs pay by, versioned by their content.

A function is code, so registering one is for staff; HACRL_REWARD_AUTHORS lets the admins of a project, or all of its
members, do it too. It runs only in fenced processes (workers/verifiers/functions). Runs read the newest version when
an attempt starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import forbidden, project_of_new, require
from hacrl_web.registry import values
from hacrl_web.registry.children import REWARD_FUNCTION
from hacrl_web.registry.models import Benchmark, RewardFunction, RewardFunctionVersion
from hacrl_web.registry.reward_sources import (
    delete_source,
    source_name,
    trial_cases,
    trial_rows,
    tried_case,
    write_at_once,
)
from hacrl_web.web.errors import FieldErrors
from workers.contract.spec.reward_function import NETWORK_VARIABLE, FunctionFile, FunctionFileError, check_new_source


def require_author(user: Any, project: Any) -> None:
    """Error: FieldErrors (403) for a user who may not register code in the project."""
    require(user, project, Role.MEMBER)
    if user.is_staff:
        return
    if settings.REWARD_AUTHORS == "members":
        return
    if settings.REWARD_AUTHORS != "admins":
        raise forbidden("Reward functions are code: only staff may register them (HACRL_REWARD_AUTHORS).")
    require(user, project, Role.ADMIN)


def may_author(user: Any, project: Any) -> bool:
    try:
        require_author(user, project)
    except FieldErrors:
        return False
    return True


def register_function(owner: Any, *, name: object, source: object) -> RewardFunction:
    """Write a function and its first version. Error: FieldErrors."""
    project = project_of_new(owner)
    require_author(owner, project)
    checker = values.Checker()
    named = checker.take("name", source_name, name)
    text = checker.take("source", _source, source)
    if named is not None:
        checker.take("name", values.check_name_is_free, RewardFunction, project, named)
    named, text = checker.finish(named, text)
    file = FunctionFile(named, text)
    _load(file)
    row = RewardFunction(owner=owner, project=project, name=named, text=text, sha256=file.sha256)
    with values.unique_name(named):
        row.save(force_insert=True)
        _add_version(row, owner)
    write_file(row)
    return row


def update_function(user: Any, row: RewardFunction, source: object) -> RewardFunction:
    """Make this text the newest version; runs use it from their next attempt on. Error: FieldErrors."""
    require_author(user, row.project)
    checker = values.Checker()
    (text,) = checker.finish(checker.take("source", _source, source))
    file = FunctionFile(row.name, text)
    _load(file)
    with transaction.atomic():
        row = RewardFunction.objects.select_for_update(of=("self",)).get(pk=row.pk)
        row.text, row.sha256 = text, file.sha256
        row.save(update_fields=["text", "sha256"])
        _add_version(row, user)
    write_file(row)
    return row


def delete_function(user: Any, row: RewardFunction) -> None:
    """Errors: FieldErrors (403, 409)."""
    require_author(user, row.project)
    delete_source(row)


def _add_version(row: RewardFunction, author: Any) -> None:
    RewardFunctionVersion.objects.get_or_create(
        function=row, sha256=row.sha256, defaults={"text": row.text, "author": author}
    )


def _source(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise values.ValueProblem("missing", "Write the function.")
    text = value.replace("\r\n", "\n").rstrip() + "\n"
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise values.ValueProblem("bad_character", "NUL and unpaired surrogates are not allowed.")
    try:
        check_new_source(text)
    except FunctionFileError as error:
        message = str(error)
        raise values.ValueProblem("bad_function", f"{message[0].upper()}{message[1:]}.") from None
    if FunctionFile("", text).uses_network and not settings.REWARD_NETWORK:
        message = f"It asks for the network (NETWORK = True), which is allowed only where {NETWORK_VARIABLE} is 1."
        raise values.ValueProblem("network_not_allowed", message)
    return text


def _load(file: FunctionFile) -> None:
    """Check in a child process that the file loads. Error: FieldErrors."""
    _ask(file, [], "source")


def _ask(file: FunctionFile, cases: list[dict[str, Any]], at: str) -> dict[str, Any]:
    request = {"name": file.name, "source": file.text, "cases": cases}
    answer = REWARD_FUNCTION.ask(at=at, request=request)
    if answer.get("error"):
        raise FieldErrors.single("function_failed", str(answer["error"]), at)
    return answer


def reward_of(row: RewardFunction, *, question: object, gold: object, response: object) -> dict[str, Any]:
    """{reward (None: unscorable), reason, parts, seconds, version} of one response. Error: FieldErrors."""
    case = tried_case(question, gold, response, id="try", subject="", difficulty="")
    answer = _ask(FunctionFile(row.name, row.text), [case], "response")
    return answer["results"][0] | {"version": answer["version"]}


def try_on_benchmark(row: RewardFunction, benchmark: Benchmark) -> list[dict[str, Any]]:
    """For its first questions, the rewards of the boxed reference answer and of no answer. Error: FieldErrors."""
    questions, cases = trial_cases(benchmark)
    results = _ask(FunctionFile(row.name, row.text), cases, "benchmark")["results"] if cases else []
    return trial_rows(questions, results)


def function_path(row: RewardFunction) -> Path:
    """Where trainers read the newest version."""
    return Path(settings.REWARD_FUNCTIONS_DIR) / str(row.pk) / f"{row.name}.py"


def write_file(row: RewardFunction) -> Path:
    """Write the newest version where trainers read it, at once for each reader."""
    return write_at_once(function_path(row), row.text)
