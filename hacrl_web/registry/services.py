"""Registering models, groups and benchmarks: the single path of the forms, the API and the demo.

Each function checks everything, then writes everything or nothing. What is wrong comes back as FieldErrors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, models, transaction

from hacrl_web.errors import FieldError, FieldErrors
from hacrl_web.registry import places, uploads, values
from hacrl_web.registry.agent_settings import note_same_seeds, take_settings
from hacrl_web.registry.inspection import inspect
from hacrl_web.registry.models import MAX_AGENTS, Agent, AgentGroup, Benchmark, LanguageModel

TRAIN_FILE = "questions.jsonl"
EVAL_FILE = "held_out.jsonl"
MAX_PREVIEW_ROWS = 20
MAX_PREVIEW_LETTERS = 2000
MAX_HELD_OUT_FRACTION = 0.9


class ModelRefused(FieldErrors):
    """A model that did not pass; `checks` are those made, the failed ones included."""

    def __init__(self, errors: Sequence[FieldError], checks: list[dict[str, Any]]) -> None:
        super().__init__(errors)
        self.checks = checks


def _name_taken(model: type[models.Model], owner: Any, name: str) -> FieldErrors | None:
    if model._default_manager.filter(owner=owner, name=name).exists():
        return _taken(name)
    return None


def _taken(name: str) -> FieldErrors:
    return FieldErrors([FieldError("name_taken", f"You already have one named “{name}”. Choose another name.", "name")])


# Language models


def register_model(
    owner: Any,
    *,
    location: str,
    kind: str = "local",
    revision: str = "",
    name: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> LanguageModel:
    """Inspect a model and write its row. provenance: of a model that a run has trained.

    Errors: FieldErrors, ModelRefused; then nothing is written.
    """
    found = values.Checker()
    found.take("kind", values.choice, kind, LanguageModel.Kind.values)
    where = _checked_location(found, kind, location)
    version = found.take("revision", places.checked_revision, revision) if kind == "hub" else ""
    named = found.take("name", values.name, name or (Path(where).name if where else "model"))
    where, version, named = found.finish(where, version, named)
    taken = _name_taken(LanguageModel, owner, named)
    if taken:
        raise taken
    checks, facts = inspect_model(where, version)
    if kind == "local":
        facts["folder_fingerprint"] = places.folder_fingerprint(Path(where))
    else:
        version = _pinned(version, facts)
    row = LanguageModel(owner=owner, name=named, kind=kind, location=where, revision=version)
    row.provenance = dict(provenance or {})
    row.architecture = str(facts.get("architecture") or "")[:200]
    row.num_parameters = _count(facts.get("num_parameters"))
    row.vocab_size = _count(facts.get("vocab_size"))
    row.tokenizer_hash = str(facts.get("tokenizer_hash") or "")[:128]
    row.has_chat_template = facts.get("has_chat_template") is True
    row.context_length = _count(facts.get("context_length"))
    row.facts = facts | {"checks": checks}
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # the same name came in while this one was inspected
        raise _taken(named) from None
    return row


def _checked_location(found: values.Checker, kind: str, location: str) -> str | None:
    check = places.checked_hub_id if kind == "hub" else places.checked_folder
    if not isinstance(location, str):
        found.add("location", "not_text", "Text is needed.")
        return None
    where = found.take("location", check, location)
    return None if where is None else str(where)


def inspect_model(location: str, revision: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The checks, all passed, and the facts. Errors: FieldErrors, ModelRefused."""
    arguments = ["model", location, *([f"--revision={revision}"] if revision else [])]
    answer = inspect(*arguments, field="location")
    checks = [_check(check) for check in answer.get("checks") or [] if isinstance(check, dict)]
    failed = [check for check in checks if not check["ok"]]
    facts = answer.get("facts")
    if failed:
        message = "; ".join(": ".join(filter(None, (check["name"], check["detail"]))) for check in failed)
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    if not checks or not isinstance(facts, dict):
        message = str(answer.get("error") or "The inspection said nothing about this model.")
        raise ModelRefused([FieldError("check_failed", message, "location")], checks)
    return checks, facts


def _pinned(revision: str, facts: dict[str, Any]) -> str:
    """The commit that was inspected, so that a branch that moves on does not change a registered model."""
    commit = facts.get("commit")
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{40}", commit):
        return revision
    facts["asked_revision"] = revision
    return commit


def _check(check: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": str(check.get("name") or "check"),
        "ok": check.get("ok") is True,
        "detail": str(check.get("detail") or ""),
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def check_unchanged(model: LanguageModel, field: str = "agents") -> None:
    """Before a launch: the folder is still where it was and what it was. Error: FieldErrors."""
    if model.kind != LanguageModel.Kind.LOCAL:
        return
    try:
        folder = places.checked_folder(model.location)
        is_same = str(folder) == model.location and places.folder_fingerprint(folder) == model.facts.get(
            "folder_fingerprint", ""
        )
    except FieldErrors as refused:
        message = f"The folder of model “{model.name}” can no longer be used: {refused.errors[0].message}"
        raise FieldErrors([FieldError("model_gone", message, field)]) from None
    if not is_same:
        message = f"The folder of model “{model.name}” has changed since it was registered. Register it again."
        raise FieldErrors([FieldError("model_changed", message, field)])


# Agent groups


def create_group(owner: Any, *, name: str, agents: Sequence[Mapping[str, Any]]) -> AgentGroup:
    """Write a group and its agents; an agent has `model` (id), `name` and the fields of agent_settings.FIELDS.

    Errors: FieldErrors, with fields such as `agents.1.name`.
    """
    found = values.Checker()
    named = found.take("name", values.name, name)
    if not 1 <= len(agents) <= MAX_AGENTS:
        found.add("agents", "agent_count", f"Choose 1 to {MAX_AGENTS} models; these are {len(agents)}.")
    rows = [_agent(found, owner, position, agent) for position, agent in enumerate(agents[:MAX_AGENTS])]
    _name_agents(found, rows)
    note_same_seeds(found, rows)
    if named is not None and (taken := _name_taken(AgentGroup, owner, named)):
        found.errors.extend(taken.errors)
    (named,) = found.finish(named)
    group = AgentGroup(owner=owner, name=named)
    try:
        with transaction.atomic():
            group.save(force_insert=True)
            for row in rows:
                row.group = group
            Agent.objects.bulk_create(rows)
    except IntegrityError:
        raise _taken(named) from None
    return group


def _agent(found: values.Checker, owner: Any, position: int, asked: Mapping[str, Any]) -> Agent:
    """The agent's row, as far as its values could be read."""
    place = f"agents.{position}"
    row = Agent(position=position)
    model_id = found.take(f"{place}.model", values.row_id, asked.get("model"))
    if model_id is not None:
        model = LanguageModel.objects.visible_to(owner).filter(pk=model_id).first()
        if model is None:
            found.add(f"{place}.model", "not_found", "There is no such model.")
        else:
            row.model = model
    if asked.get("name") not in (None, ""):
        row.name = found.take(f"{place}.name", values.name, asked["name"]) or ""
    take_settings(found, row, asked)
    return row


def _name_agents(found: values.Checker, rows: list[Agent]) -> None:
    """Names are unique; an agent without one takes its model's, numbered where that is taken."""
    used: dict[str, int] = {}
    for row in rows:
        if row.name and used.setdefault(row.name, row.position) != row.position:
            message = f"Agent {used[row.name] + 1} is also named “{row.name}”. Give each agent its own name."
            found.add(f"agents.{row.position}.name", "name_twice", message)
    for row in rows:
        if row.name or row.model_id is None:
            continue
        candidate, number = row.model.name, 1
        while candidate in used:
            number += 1
            candidate = f"{row.model.name[: values.MAX_NAME - 3]} {number}"
        row.name = candidate
        used[candidate] = row.position


# Benchmarks


def create_benchmark(
    owner: Any,
    *,
    name: str,
    file: UploadedFile | None,
    held_out_file: UploadedFile | None = None,
    question_field: str = "question",
    answer_field: str = "answer",
    verifier: str = "math",
    held_out_fraction: object = 0.1,
) -> Benchmark:
    """Check an uploaded JSONL file line by line and keep it. Errors: FieldErrors; then neither row nor file is left."""
    found = values.Checker()
    named = found.take("name", values.name, name)
    question_key = found.take("question_field", values.key, question_field)
    answer_key = found.take("answer_field", values.key, answer_field)
    found.take("verifier", values.choice, verifier, Benchmark.Verifier.values)
    fraction = found.take("held_out_fraction", _held_out_fraction, held_out_fraction)
    if named is not None and (taken := _name_taken(Benchmark, owner, named)):
        found.errors.extend(taken.errors)
    if question_key is not None and question_key == answer_key:
        found.add("answer_field", "same_key", "The question and the answer need two different keys.")
    if file is None:
        found.add("file", "missing", "Choose a JSONL file: one JSON object a line.")
    file, named, question_key, answer_key, fraction = found.finish(file, named, question_key, answer_key, fraction)
    row = Benchmark(owner=owner, name=named, question_field=question_key, answer_field=answer_key)
    row.verifier, row.held_out_fraction = verifier, 0.0 if held_out_file else fraction
    with uploads.staging_folder() as staged:
        uploads.store(file, staged / TRAIN_FILE, "file")
        if held_out_file:
            uploads.store(held_out_file, staged / EVAL_FILE, "held_out_file")
        _inspect_questions(row, staged, file, held_out_file)
        _keep_benchmark(row, staged, bool(held_out_file))
    return row


def _held_out_fraction(value: object) -> float:
    return values.number(value, least=0, most=MAX_HELD_OUT_FRACTION)


def _inspect_questions(row: Benchmark, staged: Path, file: UploadedFile, eval_file: UploadedFile | None) -> None:
    """Fill in the counts and the preview. Error: FieldErrors beside the file that is wrong."""
    arguments = [
        str(staged / TRAIN_FILE),
        f"--question-field={row.question_field}",
        f"--answer-field={row.answer_field}",
        f"--held-out-fraction={row.held_out_fraction}",
    ]
    if eval_file:
        arguments.append(f"--held-out={staged / EVAL_FILE}")
    answer = inspect("benchmark", *arguments, field="file")
    if answer.get("error") or not _count(answer.get("num_train")):
        message = str(answer.get("error") or "There is no question in it to train on.").replace(f"{staged}/", "")
        field = "held_out_file" if message.startswith(EVAL_FILE) else "file"
        raise FieldErrors([FieldError("bad_file", _in_users_words(message, file, eval_file), field)])
    row.num_train = answer["num_train"]
    row.num_held_out = _count(answer.get("num_held_out")) or 0
    row.facts = {key: answer.get(key) for key in ("num_repeated", "num_overlapping", "subjects")}
    row.sample = [_preview(question) for question in (answer.get("sample") or [])[:MAX_PREVIEW_ROWS]]


def _in_users_words(message: str, file: UploadedFile, eval_file: UploadedFile | None) -> str:
    """A message with the names that the user gave the files: it begins with one, and may compare it with the other."""
    own = {TRAIN_FILE: file.name, EVAL_FILE: eval_file.name if eval_file else EVAL_FILE}
    own = {name: "".join(c for c in given or name if c.isprintable())[:80] or name for name, given in own.items()}
    begin = next((name for name in own if message.startswith(name)), "")
    if not begin:
        return message
    rest = message[len(begin) :].replace(f" is also in {EVAL_FILE}:", f" is also in {own[EVAL_FILE]}:", 1)
    return own[begin] + rest


def _preview(question: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(question.get(key) or "")[:MAX_PREVIEW_LETTERS] for key in ("question", "answer", "subject")}


def _keep_benchmark(row: Benchmark, staged: Path, has_eval_file: bool) -> None:
    """Row and files together: the row's id names the folder, and a row that is not committed leaves none."""
    folder: Path | None = None
    try:
        with transaction.atomic():
            row.train_path = "-"  # known once the row has its id
            row.save(force_insert=True)
            folder = settings.BENCHMARKS_DIR / str(row.pk)
            row.train_path = str(folder / TRAIN_FILE)
            row.eval_path = str(folder / EVAL_FILE) if has_eval_file else ""
            row.save(update_fields=["train_path", "eval_path"])
            uploads.keep(staged, folder)
    except BaseException as error:
        if folder is not None:
            uploads.discard(folder)
        if isinstance(error, IntegrityError):
            raise _taken(row.name) from None
        raise
