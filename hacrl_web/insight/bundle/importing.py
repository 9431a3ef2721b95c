"""Imports a bundle: a run that has ended, with all its events, as another installation stored it.

Rows are written in batches, so that other writers wait only briefly, by the checks and statements of the shipper.
Until the last of them the run is archived and failed, which nothing starts or queues; a refusal removes it. What an
import leaves whose process was killed, its user deletes as any run.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import ValidationError

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import project_of_new, require
from hacrl_web.features import feature_modules
from hacrl_web.insight.bundle.layout import EVENTS_NAME, OUTPUT_NAME, RUN_NAME, RunFacts, RunFile
from hacrl_web.insight.bundle.reader import Bundle, bundle_refusal, open_bundle
from hacrl_web.insight.bundle.registry_rows import benchmark_or_reason, group_for
from hacrl_web.ops.disk_space import check_room, disk_error
from hacrl_web.registry.base import values
from hacrl_web.runs.archive.deletion import hide_runs
from hacrl_web.runs.archive.leftover_files import remove_leftovers
from hacrl_web.runs.launch.create import columns_of
from hacrl_web.runs.models import GENERATED, Run, State, StatusChange
from hacrl_web.runs.models.quotas import check_disk
from hacrl_web.runs.run.labels import checked_labels, split_tags
from hacrl_web.runs.storage.stored_spec import readable_spec
from hacrl_web.runs.telemetry.admission import Admission, EventRefused, FieldsRefused
from hacrl_web.runs.telemetry.event_checks import problem_of
from hacrl_web.runs.telemetry.scores import score_of
from hacrl_web.runs.telemetry.tables import insert, refusal_record
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.runs.worker.usage import measure_files
from hacrl_web.web.errors import FieldErrors, plain_errors
from workers.contract.checkpoint_manifest import FOLDER_NAME, DamagedCheckpoint, read_manifest, step_folders
from workers.contract.spec.run import RunSpec

EVENTS_AT_ONCE = 500
SPARE_BYTES = 2**30  # of the disk, beside what is unpacked
log = logging.getLogger(__name__)
# Columns of the run that are written when all events are stored.
AT_THE_END = (
    *("state", "desired_state", "desire_reason", "reason", "attempt", "interruptions", "start_step", "step"),
    *("total_steps", "texts_from", "progress", "worker_host", "tags", "notes", "variant", "agent_changes"),
    *("created_at", "started_at", "finished_at"),
)


@dataclass
class ImportedRun:
    """The new run. notes: what of the bundle could not be brought along."""

    run: Run
    notes: list[str] = field(default_factory=list)


def import_bundle(user: User, file: IO[bytes], size: int) -> ImportedRun:
    """Write the run of a bundle into the user's current project. Error: FieldErrors; then no run is left."""
    project = project_of_new(user)
    require(user, project, Role.MEMBER)
    check_room("file")
    with open_bundle(file, size) as bundle:
        check_disk(project, bundle.file_bytes)
        spec = checked_spec(bundle.content.run)
        check_words(bundle.content)
        run = _begin(user, project, bundle, spec)
        try:
            last_seq = _store_events(run, bundle)
            _unpack_files(run, bundle)
            imported = ImportedRun(run)
            facts = bundle.content
            group = group_for(user, project, facts.group) if facts.group else None
            benchmark, reason = benchmark_or_reason(user, project, facts.benchmark, bundle)
            imported.notes += [reason] if reason else []
            _finish(run, bundle, last_seq, group=group, benchmark=benchmark)
        except BaseException:
            _remove(run)
            raise
    run.refresh_from_db()
    if not run.is_generated:
        measure_files(run)
    return imported


def _begin(user: User, project: Project, bundle: Bundle, spec: RunSpec) -> Run:
    """An archived, failed run without events. Error: FieldErrors (409) if it is here already."""
    facts, run_id = bundle.content.run, bundle.content.run.id
    existing = Run.objects.filter(pk=run_id).first()
    if existing and Run.objects.visible_to(user).filter(pk=run_id).exists():
        message = f"This run is here already: {existing.get_absolute_url()}. Delete it first to import it again."
        raise FieldErrors.single("already_here", message, "file", status=409)
    if existing:  # of a project that the user does not see
        run_id = uuid.uuid4()
    origin = {
        "import_id": uuid.uuid4().hex,
        "imported_at": timezone.now().isoformat(timespec="seconds"),
        "imported_by": user.get_username(),
        "exported_at": bundle.manifest.exported_at.isoformat(timespec="seconds"),
        "owner": bundle.content.owner,
    }
    columns = columns_of(spec, None, None) | {"name": facts.name}
    columns["spec"] = completed(facts.spec, columns["spec"])
    folder = GENERATED if bundle.content.is_generated else data_folder_id()
    reason = "The import of this run has not finished. If it has stopped, delete the run and import it again."
    try:
        with transaction.atomic():
            run = Run.objects.create(
                id=run_id, owner=user, project=project, state=State.FAILED, reason=reason, data_folder=folder,
                origin=origin, archived_at=timezone.now(), **columns,
            )  # fmt: skip
            for module in feature_modules("run_bundle"):
                module.begin_import(run)
    except IntegrityError:
        raise FieldErrors.single("already_here", _why_taken(run_id), "file", status=409) from None
    return run


def _why_taken(run_id: uuid.UUID) -> str:
    if Run.objects.filter(pk=run_id).exists():
        return "This run is being imported just now."
    return "This run was deleted, and what it left is still being removed: try again in a few minutes."


def _store_events(run: Run, bundle: Bundle) -> int:
    """Store all events; returns the last seq. Error: FieldErrors for events that no trainer's spool has."""
    records, last = _checked_records(bundle), 0
    while some := list(islice(records, EVENTS_AT_ONCE)):
        with transaction.atomic():
            _hold(run)
            insert(run.pk, some)
        last = some[-1]["seq"]
    return last


def _checked_records(bundle: Bundle) -> Iterator[dict[str, Any]]:
    admission, last, attempts = Admission(), 0, bundle.content.run.attempt
    for number, record in bundle.records():
        if record["seq"] <= last or record["seq"] >= 2**62:
            raise bundle_refusal(f"Line {number} of {EVENTS_NAME}: seq is {record['seq']} after {last}.")
        if not 0 <= record["attempt"] <= attempts:
            raise bundle_refusal(f"Line {number} of {EVENTS_NAME}: the run has no attempt {record['attempt']}.")
        try:
            admission.check(record, None)
        except FieldsRefused as refused:
            record = refusal_record(bundle.content.run.id, record, str(refused))
        except EventRefused as refused:
            raise bundle_refusal(f"Line {number} of {EVENTS_NAME}: {refused}.") from None
        last = record["seq"]
        yield record


def _unpack_files(run: Run, bundle: Bundle) -> None:
    """The trainer's output and the checkpoints, in the run's new folder. Error: FieldErrors."""
    if run.is_generated:
        return
    needed, folder = bundle.checkpoint_bytes + SPARE_BYTES, run.run_dir
    try:
        folder.mkdir(mode=0o700, parents=True)
        if shutil.disk_usage(folder).free < needed:
            message = f"The disk has too little space: {needed / 2**30:.1f} GiB are needed."
            raise FieldErrors.single("disk_full", message, "file", status=507)
        for name in [OUTPUT_NAME] * bundle.has(OUTPUT_NAME) + bundle.checkpoint_files:
            with transaction.atomic():
                _hold(run)
            _write(folder / name, bundle.pieces(name))
    except OSError as error:
        full = disk_error(error)
        message = full.text if full else f"The run's files could not be stored: {error.strerror}."
        raise FieldErrors.single("not_stored", message, "file", status=507) from None
    for step in step_folders(folder / FOLDER_NAME):
        try:
            manifest = read_manifest(step)
            manifest.check_bytes(manifest.files)
        except DamagedCheckpoint as error:
            raise bundle_refusal(f"A checkpoint is damaged: {error}.") from None


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "xb") as file:
        for piece in pieces:
            file.write(piece)


def _finish(run: Run, bundle: Bundle, last_seq: int, **rows: Any) -> None:
    """State, history and alerts of the run, at once."""
    content = bundle.content
    columns = {name: getattr(content.run, name) for name in AT_THE_END}
    if problem_of({"type": "progress", "eta_s": 0.0, **content.run.progress}):  # a run that has ended has no ETA
        columns["progress"] = {}
    with transaction.atomic():
        _hold(run)
        StatusChange.objects.bulk_create(
            StatusChange(run=run, **change.model_dump()) for change in content.status_changes
        )
        for module in feature_modules("run_bundle"):
            module.finish_import(run, content, last_seq)
        columns |= {"last_seq": last_seq, "score": score_of(run), "archived_at": None}
        Run.objects.filter(pk=run.pk).update(**columns, **rows)


def _remove(run: Run) -> None:
    """Remove the run at once, as it may be imported again. The dispatcher removes the rows of a deleted run."""
    with transaction.atomic():
        if is_there := _locked(run):
            hide_runs([run])
    if not is_there:
        if not Run._base_manager.filter(pk=run.pk).exists():
            shutil.rmtree(run.run_dir, ignore_errors=True)  # files that were written after its deletion
        return
    try:
        remove_leftovers(run)
    except (OSError, FieldErrors) as error:
        log.warning("bundle: what an unfinished import of %s left is removed later: %s", run.pk, error)


def _hold(run: Run) -> None:
    """Lock its row until the transaction ends: events of a deleted run would stay. Error: FieldErrors (409)."""
    if not _locked(run):
        raise FieldErrors.single("deleted", "The run was deleted while it was imported.", "file", status=409)


def _locked(run: Run) -> bool:
    """Lock the run's row until the transaction ends; False if it is gone or belongs to another import."""
    rows = Run.objects.filter(pk=run.pk, origin__import_id=run.import_id)
    return rows.select_for_update().values_list("pk").first() is not None


ValueT = TypeVar("ValueT")


def checked_spec(facts: RunFacts) -> RunSpec:
    """The run's settings as this version reads them. Error: FieldErrors, also for a name that no run can have."""
    try:
        readable_spec(facts.spec | {"name": facts.name})
        return readable_spec(facts.spec)
    except ValidationError as error:
        first = plain_errors(error)[0]
        raise bundle_refusal(f"This version cannot read the run's settings: {first.field}: {first.message}") from None


def completed(raw: Any, settings: Any) -> Any:
    """Settings as their bundle has them, with all that they leave out.

    settings: the same as RunSpec reads them. What old versions stored beside stays; a value of another type, such as
    "4" for 4, is replaced, because pages rely on types.
    """
    if isinstance(raw, dict) and isinstance(settings, dict):
        pairs = [(key, one, settings.get(key, one)) for key, one in raw.items()]
        plain = bool | int | float | str
        result = {key: completed(one, other) for key, one, other in pairs if key in settings or isinstance(one, plain)}
        return result | {key: one for key, one in settings.items() if key not in result}
    if isinstance(raw, list) and isinstance(settings, list):
        return [completed(*both) for both in zip(raw, settings, strict=True)] if len(raw) == len(settings) else settings
    return raw if raw is None or type(raw) is type(settings) else settings


def check_words(content: RunFile) -> None:
    """Names of objects that people name, with tags and notes, which become what the run stores. Error: FieldErrors."""
    group, run = content.group, content.run
    _checked("owner", values.text, content.owner, 150)
    run.tags, run.notes = _checked("tags, notes", checked_labels, split_tags(run.tags), run.notes)
    if group:
        group.name = _checked("group.name", values.name, group.name)
        for agent in group.agents:
            agent.model.name = _checked("the name of a model", values.name, agent.model.name)


def _checked(what: str, check: Callable[..., ValueT], *arguments: Any) -> ValueT:
    try:
        return check(*arguments)
    except (values.ValueProblem, FieldErrors) as problem:
        raise bundle_refusal(f"{RUN_NAME}, {what}: {problem}") from None
