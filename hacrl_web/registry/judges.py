"""Registers judges: models whose rewards runs pay by, with the settings by which they are asked.

Questions and responses go only to hosts that the operator lists (HACRL_JUDGE_ALLOW). The key of an address is stored
encrypted, shown to nobody, and sent to the trainer by a pipe. Runs read the newest settings when an attempt starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from pydantic import ValidationError

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import project_of_new, require, require_delete
from hacrl_web.registry import values
from hacrl_web.registry.children import JUDGE
from hacrl_web.registry.locations import checked_folder
from hacrl_web.registry.models import Benchmark, Judge, JudgeVersion
from hacrl_web.registry.reward_sources import (
    delete_source,
    source_name,
    trial_cases,
    trial_rows,
    tried_case,
    write_at_once,
)
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt, encrypt
from workers.allowed_address import AddressRefused, AllowList
from workers.contract.spec.judge import ALLOW_VARIABLE, JudgeFile, JudgeSettings

_PLAUSIBLE = re.compile(r"[!-~]{1,400}")


@sensitive_variables("key")
def register_judge(owner: Any, *, name: object, fields: Mapping[str, Any], key: object = "") -> Judge:
    """Write a judge and its first version. fields: of JudgeSettings, also as texts of a form. Error: FieldErrors."""
    project = project_of_new(owner)
    require(owner, project, Role.MEMBER)
    checker = values.Checker()
    named = checker.take("name", source_name, name)
    if named is not None:
        checker.take("name", values.check_name_is_free, Judge, project, named)
    own = checker.take("kind", _settings, fields)
    secret = checker.take("key", _key, key, own)
    named, own, secret = checker.finish(named, own, secret)
    row = Judge(owner=owner, project=project, name=named)
    _set(row, own)
    with values.unique_name(named):
        row.save(force_insert=True)
        if secret:
            _encrypt(row, secret)
        _add_version(row, owner)
    write_file(row)
    return row


@sensitive_variables("key")
def update_judge(user: Any, row: Judge, fields: Mapping[str, Any], key: object = "") -> Judge:
    """Make these settings the newest version. The stored key stays unless another is texts or the address changes.

    Error: FieldErrors.
    """
    require(user, row.project, Role.MEMBER)
    checker = values.Checker()
    own = checker.take("kind", _settings, fields)
    secret = checker.take("key", _key, key, own)
    own, secret = checker.finish(own, secret)
    with transaction.atomic():
        row = Judge.objects.select_for_update(of=("self",)).get(pk=row.pk)
        if own.address != row.settings["address"]:  # a key goes only where its owner sent it
            row.ciphertext, row.key_set_at = "", None
        _set(row, own)
        row.save()
        if secret:
            _encrypt(row, secret)
        _add_version(row, user)
    write_file(row)
    return row


def delete_judge(user: Any, row: Judge) -> None:
    """Errors: FieldErrors (403, 409)."""
    require_delete(user, row)
    delete_source(row)


def judge_path(row: Judge) -> Path:
    """Where trainers read the newest version."""
    return Path(settings.JUDGES_DIR) / str(row.pk) / f"{row.name}.json"


def write_file(row: Judge) -> Path:
    """Write the newest version where trainers read it, at once for each reader. No key is in it."""
    return write_at_once(judge_path(row), file_of(row).to_json())


def file_of(row: Judge) -> JudgeFile:
    return JudgeFile(row.name, JudgeSettings.model_validate(row.settings))


def judge_keys(project: Any, paths: Sequence[str]) -> dict[str, str]:
    """By name the keys of the judges whose files a run of the project names. Error: FieldErrors (409)."""
    keys = {}
    for path in {Path(text) for text in paths}:
        pk = path.parent.name
        row = Judge.objects.filter(project=project, pk=int(pk)).first() if pk.isascii() and pk.isdigit() else None
        if row is not None and row.ciphertext and path == judge_path(row):
            keys[row.name] = _read_key(row)
    return keys


def judge_of_response(row: Judge, *, question: object, gold: object, response: object) -> dict[str, Any]:
    """{reward (None: unscorable), reason, parts, seconds, version} of one response. Error: FieldErrors."""
    answer = _ask(row, [tried_case(question, gold, response)], "response")
    return answer["results"][0] | {"version": answer["version"]}


def judge_of_benchmark(row: Judge, benchmark: Benchmark) -> list[dict[str, Any]]:
    """For its first questions, the rewards of the boxed reference answer and of no answer. Error: FieldErrors."""
    questions, cases = trial_cases(benchmark)
    return trial_rows(questions, _ask(row, cases, "benchmark")["results"] if cases else [])


def _ask(row: Judge, cases: list[dict[str, Any]], at: str) -> dict[str, Any]:
    key = _read_key(row) if row.ciphertext else ""
    request = {"name": row.name, "settings": row.settings, "key": key, "cases": cases}
    answer = JUDGE.ask(at=at, request=request)
    if answer.get("error"):
        raise FieldErrors.single("judge_failed", str(answer["error"]), at)
    return answer


def _set(row: Judge, own: JudgeSettings) -> None:
    row.settings = own.model_dump()
    row.sha256 = JudgeFile(row.name, own).sha256


def _add_version(row: Judge, author: Any) -> None:
    JudgeVersion.objects.get_or_create(
        judge=row, sha256=row.sha256, defaults={"settings": row.settings, "author": author}
    )


def _settings(fields: Mapping[str, Any]) -> JudgeSettings:
    """Checked settings; empty texts of a form mean the default. Errors: FieldErrors."""
    values_of_fields = {name: value for name, value in fields.items() if value not in ("", None)}
    for name, value in values_of_fields.items():
        if isinstance(value, str) and ("\x00" in value or any("\ud800" <= letter <= "\udfff" for letter in value)):
            raise FieldErrors.single("bad_character", "NUL and unpaired surrogates are not allowed.", name[:80])
    try:
        own = JudgeSettings.model_validate(values_of_fields)
    except ValidationError as error:
        raise FieldErrors([_problem(one) for one in error.errors(include_url=False)]) from None
    if own.kind == "endpoint":
        _check_address(own.address)
        return own
    try:
        folder = checked_folder(own.model)
    except FieldErrors as refused:
        raise FieldErrors([FieldError(one.code, one.message, "model") for one in refused.errors]) from None
    return own.model_copy(update={"model": str(folder)})


def _problem(error: Any) -> FieldError:
    message = error["msg"].removeprefix("Value error, ")
    field = str(error["loc"][0])[:80] if error["loc"] else "kind"
    return FieldError("invalid", f"{message[0].upper()}{message[1:]}.", field)


def _check_address(address: str) -> None:
    try:
        AllowList.of(ALLOW_VARIABLE, settings.JUDGE_ALLOW).check_url(address)
    except AddressRefused as refused:
        raise FieldErrors.single("not_allowed", str(refused), "address") from None


@sensitive_variables("value", "text")
def _key(value: object, own: JudgeSettings | None) -> str:
    if not isinstance(value, str):
        raise values.ValueProblem("not_text", "Text is needed.")
    text = value.strip()
    if not text:
        return ""
    if own is not None and own.kind != "endpoint":
        raise values.ValueProblem("not_a_choice", "A model in a folder needs no key: leave it empty.")
    if not _PLAUSIBLE.fullmatch(text):
        raise values.ValueProblem("invalid", "Paste the whole key: at most 400 letters, digits and signs, no spaces.")
    return text


@sensitive_variables("key")
def _encrypt(row: Judge, key: str) -> None:
    row.ciphertext, row.key_set_at = encrypt(row.secret_name, key), timezone.now()
    row.save(update_fields=["ciphertext", "key_set_at"])


def _read_key(row: Judge) -> str:
    try:
        return decrypt(row.secret_name, row.ciphertext)
    except SecretUnreadable:
        message = f"The key of the judge {row.name} cannot be read: the installation's secret key has changed. Set it."
        raise FieldErrors.single("unreadable_key", message, "key", status=409) from None
