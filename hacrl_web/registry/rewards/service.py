"""Registers what gives rewards: reward functions and judges, each versioned by its content.

A function is code, so registering one is for staff; HACRL_REWARD_AUTHORS lets the admins of a project, or all of its
members, do it too. It runs only in fenced processes (workers/verifiers/functions). A judge's questions and responses go
only to hosts that the operator lists (HACRL_JUDGE_ALLOW); the key of its address is stored encrypted, shown to nobody,
and sent to the trainer by a pipe. Runs read the newest version, a file, when an attempt starts.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from pydantic import ValidationError

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import forbidden, project_of_new, require, require_delete
from hacrl_web.registry.base import values
from hacrl_web.registry.base.children import JUDGE, REWARD_FUNCTION
from hacrl_web.registry.base.locations import checked_folder
from hacrl_web.registry.models import Benchmark, Judge, RewardFunction
from hacrl_web.web.errors import FieldErrors, plain_errors
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt, encrypt
from workers.contract.allowed_address import AddressRefused, AllowList
from workers.contract.spec.judge import ALLOW_VARIABLE, JudgeSettings
from workers.contract.spec.reward_function import (
    BOM,
    NETWORK_VARIABLE,
    FunctionFile,
    FunctionFileError,
    check_new_source,
)
from workers.contract.spec.rewards import REWARD_NAME

MAX_RESPONSE = 100_000
TRIED_QUESTIONS = 5
PROBLEM_KEPT_S = 3600
NO_ANSWER = "I do not know."
SANDBOX_KEY = "reward-function-sandbox"  # in the cache: what fenced the last function that ran on the web server
BAD_CHARACTER = ("bad_character", "NUL and unpaired surrogates are not allowed.")

SourceT = TypeVar("SourceT", Judge, RewardFunction)


def require_author(user: User, kind: type[SourceT], project: Project) -> None:
    """Error: FieldErrors (403) for a user who may not register one in the project."""
    require(user, project, Role.MEMBER)
    if kind is Judge or user.is_staff or settings.REWARD_AUTHORS == "members":
        return
    if settings.REWARD_AUTHORS != "admins":
        raise forbidden("Reward functions are code: only staff may register them (HACRL_REWARD_AUTHORS).")
    require(user, project, Role.ADMIN)


def may_author(user: User, kind: type[SourceT], project: Project) -> bool:
    try:
        require_author(user, kind, project)
    except FieldErrors:
        return False
    return True


@sensitive_variables("key")
def register_source(owner: User, kind: type[SourceT], *, name: object, content: Any, key: object = "") -> SourceT:
    """Write a row, its first version and its file. Error: FieldErrors.

    content: the text of a function; of a judge the fields of JudgeSettings, also as texts of a form.
    """
    project = project_of_new(owner)
    require_author(owner, kind, project)
    checker = values.Checker()
    named = checker.take("name", _source_name, name)
    if named is not None:
        checker.take("name", values.check_name_is_free, kind, project, named)
    row = kind(owner=owner, project=project, name=named or "")
    secret = _set_checked(checker, row, content, key)
    with values.unique_name(row.name):
        _store(row, owner, secret)
    write_file(row)
    return row


@sensitive_variables("key")
def update_source(user: User, row: SourceT, content: Any, key: object = "") -> SourceT:
    """Make this the newest version. A judge's key stays unless another is given or the address changes.

    Error: FieldErrors.
    """
    require_author(user, type(row), row.project)
    changed = type(row)(name=row.name)
    secret = _set_checked(values.Checker(), changed, content, key)
    with transaction.atomic():
        row = type(row)._default_manager.select_for_update(of=("self",)).get(pk=row.pk)
        if isinstance(row, Judge) and changed.settings["address"] != row.settings["address"]:
            row.ciphertext, row.key_set_at = "", None  # a key goes only where its owner sent it
        setattr(row, row.content, getattr(changed, row.content))
        _store(row, user, secret)
    write_file(row)
    return row


def delete_source(user: User, row: Judge | RewardFunction) -> None:
    """Delete the row; its file stays for the runs that name it. Errors: FieldErrors (403; 409: a benchmark uses it)."""
    if isinstance(row, Judge):
        require_delete(user, row)
    else:
        require_author(user, RewardFunction, row.project)
    if benchmark := row.benchmarks.first():
        raise FieldErrors.single("in_use", f"The benchmark {benchmark.name} uses it: delete that first.", status=409)
    row.delete()


def write_file(row: Judge | RewardFunction) -> Path:
    """Write the newest version where trainers read it: each reader finds the former text or the whole new one.

    No key is in it.
    """
    path, text = row.path, row.file.text if isinstance(row, RewardFunction) else row.file.to_json()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{secrets.token_hex(8)}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path


@sensitive_variables("key")
def _store(row: Judge | RewardFunction, author: Any, key: str) -> None:
    """Write the row with its version, in a transaction of the caller's."""
    row.sha256 = row.file.sha256
    row.save()
    if isinstance(row, Judge) and key:
        row.ciphertext, row.key_set_at = encrypt(row.secret_name, key), timezone.now()
        row.save(update_fields=["ciphertext", "key_set_at"])
    values_of_version = {row.content: getattr(row, row.content), "author": author}
    row.versions.get_or_create(sha256=row.sha256, defaults=values_of_version)


# Checks


@sensitive_variables("key", "secret")
def _set_checked(checker: values.Checker, row: Judge | RewardFunction, content: Any, key: object) -> str:
    """Set the checked content; returns the key. Errors: FieldErrors, with those that the checker has."""
    secret: str | None = ""
    if isinstance(row, Judge):
        own = checker.take("kind", _settings, content)
        secret = checker.take("key", _key, key, own)
        own, secret = checker.finish(own, secret)
        row.settings = own.model_dump()
    else:
        (row.text,) = checker.finish(checker.take("source", _source, content))
        _ask(row, [], "source")  # does it load?
    return secret or ""


def _source_name(value: object) -> str:
    """The name, which is also that of its metric. Error: ValueProblem, as of all checks below."""
    name = values.text(value, 40)
    if not re.fullmatch(REWARD_NAME, name):
        raise values.ValueProblem("bad_name", "Use small letters, digits and _, beginning with a letter.")
    return name


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _source(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise values.ValueProblem("missing", "Write the function.")
    text = value.removeprefix(BOM).replace("\r\n", "\n").rstrip() + "\n"
    if not _is_storable(text):
        raise values.ValueProblem(*BAD_CHARACTER)
    try:
        check_new_source(text)
    except FunctionFileError as error:
        message = str(error)
        raise values.ValueProblem("bad_function", f"{message[0].upper()}{message[1:]}.") from None
    if FunctionFile("", text).uses_network and not settings.REWARD_NETWORK:
        message = f"It asks for the network (NETWORK = True), which is allowed only where {NETWORK_VARIABLE} is 1."
        raise values.ValueProblem("network_not_allowed", message)
    return text


def _settings(fields: Mapping[str, Any]) -> JudgeSettings:
    """Checked settings; empty texts of a form mean the default. Errors: FieldErrors."""
    given = {name: value for name, value in fields.items() if value not in ("", None)}
    for name, value in given.items():
        if isinstance(value, str) and not _is_storable(value):
            raise FieldErrors.single(*BAD_CHARACTER, name[:80])
    try:
        own = JudgeSettings.model_validate(given)
    except ValidationError as error:
        raise FieldErrors([replace(one, field=one.field or "kind") for one in plain_errors(error)]) from None
    if own.kind == "endpoint":
        try:
            AllowList.of(ALLOW_VARIABLE, settings.JUDGE_ALLOW).check_url(own.address)
        except AddressRefused as refused:
            raise FieldErrors.single("not_allowed", str(refused), "address") from None
        return own
    try:
        return own.model_copy(update={"model": str(checked_folder(own.model))})
    except FieldErrors as refused:
        raise FieldErrors([replace(one, field="model") for one in refused.errors]) from None


@sensitive_variables("value", "text")
def _key(value: object, own: JudgeSettings | None) -> str:
    text = values.plausible_key(value)
    if text and own is not None and own.kind != "endpoint":
        raise values.ValueProblem("not_a_choice", "A model in a folder needs no key: leave it empty.")
    return text


# The keys of judges


def judge_keys(project: Project, paths: Sequence[str]) -> dict[str, str]:
    """The keys, by name, of the judges whose files a run of the project names. Error: FieldErrors (409)."""
    keys = {}
    for path in {Path(text) for text in paths}:
        pk = path.parent.name
        row = Judge.objects.filter(project=project, pk=int(pk)).first() if pk.isascii() and pk.isdigit() else None
        if row is not None and row.ciphertext and path == row.path:
            keys[row.name] = _read_key(row)
    return keys


def _read_key(row: Judge) -> str:
    """The key of a judge; empty if none is stored."""
    try:
        return decrypt(row.secret_name, row.ciphertext) if row.ciphertext else ""
    except SecretUnreadable:
        message = f"The key of the judge {row.name} cannot be read: the installation's secret key has changed. Set it."
        raise FieldErrors.single("unreadable_key", message, "key", status=409) from None


# Of other parts: rows by name


def named_rows(kind: type[SourceT], names: Sequence[str], project: Project) -> dict[str, SourceT]:
    """The rows of a project by name or id; one that is not there is left out."""
    rows: dict[str, SourceT] = {}
    for name in names:
        query = {"pk": int(name)} if name.isascii() and name.isdigit() and len(name) < 19 else {"name": name}
        row = kind.objects.filter(project=project, **query).first()
        if row is not None:
            rows[name] = row
    return rows


def chosen_source(kind: type[SourceT], project: Project, verifier: str | None, name: object) -> SourceT | None:
    """The row that a benchmark with `verifier` names, by name or id. Error: ValueProblem."""
    text = str(name or "").strip()
    if verifier != kind.verifier:
        if text and verifier:
            message = f"It belongs to the verifier {kind.verifier}: choose both or neither."
            raise values.ValueProblem("not_a_choice", message)
        return None
    row = named_rows(kind, [text], project).get(text) if text else None
    if row is None:
        label = kind._meta.verbose_name
        raise values.ValueProblem("not_found", f"There is no {label} {text[:80]!r} in this project.")
    return row


# Try-outs


def reward_of(row: Judge | RewardFunction, *, question: object, gold: object, response: object) -> dict[str, Any]:
    """{reward (None: unscorable), reason, parts, seconds, version, sandbox} of one response. Error: FieldErrors."""
    checker = values.Checker()
    texts = {"question": question, "gold": gold, "response": response}
    taken = [checker.take(name, values.lines, value, MAX_RESPONSE) for name, value in texts.items()]
    asked, answer, text = checker.finish(*taken)
    reply = _ask(row, [_case(asked, answer, text, {"id": "try"})], "response")
    return reply["results"][0] | {key: reply[key] for key in ("version", "sandbox") if key in reply}


def rewards_on(row: Judge | RewardFunction, benchmark: Benchmark) -> list[dict[str, Any]]:
    """The rewards of the boxed answers to a benchmark's first questions, and of no answer. Error: FieldErrors."""
    questions = [one for one in benchmark.sample[:TRIED_QUESTIONS] if isinstance(one, dict)]
    cases = [
        _case(str(one.get("question", "")), str(one.get("answer", "")), text, one)
        for one in questions
        for text in (f"\\boxed{{{one.get('answer', '')}}}", NO_ANSWER)
    ]
    results = _ask(row, cases, "benchmark")["results"] if cases else []
    return [
        {"question": one.get("question"), "answer": one.get("answer"), "correct": right, "none": nothing}
        for one, right, nothing in zip(questions, results[::2], results[1::2], strict=True)
    ]


def problem_on(row: RewardFunction, benchmark: Benchmark) -> str:
    """Why a run on the benchmark would pause at its first step; empty if nothing is known against it.

    Asked once in PROBLEM_KEPT_S of a version and a benchmark: a launch form asks at every change.
    """
    key = f"reward-problem-{row.sha256}-{benchmark.pk}"
    problem: str | None = cache.get(key)
    if problem is None:
        try:
            rewards_on(row, benchmark)
            problem = ""
        except FieldErrors as refused:
            if refused.errors[0].code != f"{row.verifier}_failed":  # too busy to tell
                return ""
            problem = refused.text
        cache.set(key, problem, PROBLEM_KEPT_S)
    return problem


def _case(question: str, answer: str, response: str, of_question: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"id": str(of_question.get("id", "")), "subject": str(of_question.get("subject", "")), "difficulty": ""}
    return {"question": question, "answer": answer, "response": response, "fields": fields}


def _ask(row: Judge | RewardFunction, cases: list[dict[str, Any]], at: str) -> dict[str, Any]:
    """The answer of its child process. Error: FieldErrors."""
    if isinstance(row, Judge):
        request = {"name": row.name, "settings": row.settings, "key": _read_key(row), "cases": cases}
        answer = JUDGE.ask(at=at, request=request)
    else:
        answer = REWARD_FUNCTION.ask(at=at, request={"name": row.name, "source": row.text, "cases": cases})
    if answer.get("error"):
        raise FieldErrors.single(f"{row.verifier}_failed", str(answer["error"]), at)
    if sandbox := answer.get("sandbox"):
        cache.set(SANDBOX_KEY, sandbox, None)
    return answer
