"""Writes the bundle of a run while it is sent: no temporary file, and little memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from django.db.models import Model
from django.utils import timezone

from hacrl_web.features import feature_modules
from hacrl_web.insight.bundle.layout import (
    CHECKPOINT_FILE,
    EVENTS_NAME,
    FORMAT,
    HELD_OUT_NAME,
    KEPT_FACTS,
    MANIFEST_NAME,
    OUTPUT_NAME,
    RUN_NAME,
    TRAIN_NAME,
    VERSION,
    AgentFacts,
    BenchmarkFacts,
    BundleManifest,
    ChangeFacts,
    FileEntry,
    GroupFacts,
    ModelFacts,
    RunFacts,
    RunFile,
    columns_as,
)
from hacrl_web.insight.checkpoints.checkpoints import bundle_size_refusal, checkpoint_bytes, is_here
from hacrl_web.insight.checkpoints.zip_stream import file_pieces, zipped
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.runs.models import AnswerChunk, Contribution, QuestionChunk, RolloutSample, Run, TelemetryEvent
from hacrl_web.runs.storage.run_files import files_removal
from hacrl_web.web.errors import FieldErrors
from workers.contract.checkpoint_manifest import FOLDER_NAME, DamagedCheckpoint, read_manifest, step_folders
from workers.contract.checkpoint_manifest import MANIFEST_NAME as CHECKPOINT_MANIFEST
from workers.contract.trainer_log import read_output

LINES_AT_ONCE = 500
# type -> the table of its rows, and the columns that hold JSON as text.
TABLES: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "rollout": (RolloutSample, ("rewards", "turns")),
    "contribution": (Contribution, ()),
    "questions": (QuestionChunk, ("ids", "subjects", "difficulties", "answers", "questions")),
    "answers": (AnswerChunk, ("marks", "majority", "responses")),
}


def check_exportable(run: Run, *, checkpoints: bool) -> None:
    """Error: FieldErrors (409) before the run's end, or for checkpoints that are elsewhere, removed or too large."""
    if not run.is_terminal:
        message = f"The run has not ended ({run.state}): only one that has ended is exported as a bundle."
        raise FieldErrors.single("not_ended", message, status=409)
    if checkpoints and (sentence := files_removal(run)):
        raise FieldErrors.single("not_here", f"{sentence} Export it without them.", "checkpoints", status=409)
    if checkpoints and not is_here(run):
        message = f"The files of this run are on {run.worker_host or 'another host'}: export it without checkpoints."
        raise FieldErrors.single("not_here", message, "checkpoints", status=409)
    if checkpoints and (sentence := bundle_size_refusal(checkpoint_bytes(run))):
        raise FieldErrors.single("too_large", sentence, "checkpoints", status=409)


def bundle_of(run: Run, *, checkpoints: bool) -> Iterator[bytes]:
    """The pieces of a bundle. Errors, at any time: OSError, DamagedCheckpoint; then the file cannot be opened."""
    entries: dict[str, FileEntry] = {}

    def counted(name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece
        entries[name] = FileEntry(size=size, sha256=digest.hexdigest())

    def members() -> Iterator[tuple[str, Iterable[bytes]]]:
        for name, pieces in _members(run, checkpoints):
            yield name, counted(name, pieces)
        manifest = BundleManifest(format=FORMAT, version=VERSION, run=run.pk, exported_at=timezone.now(), files=entries)
        yield MANIFEST_NAME, [manifest.model_dump_json(indent=1).encode()]

    return zipped(members())


def _members(run: Run, checkpoints: bool) -> Iterator[tuple[str, Iterable[bytes]]]:
    yield RUN_NAME, [run_file(run).model_dump_json(indent=1).encode()]
    yield EVENTS_NAME, _lines(json.dumps(record, ensure_ascii=False) for record in stored_records(run))
    if (run.run_dir / OUTPUT_NAME).is_file():
        yield OUTPUT_NAME, _lines(read_output(run.run_dir))
    if run.benchmark:
        for name, path in zip((TRAIN_NAME, HELD_OUT_NAME), run.benchmark.paths, strict=False):
            if Path(path).is_file():
                yield name, file_pieces(Path(path))
    if checkpoints:
        yield from _checkpoint_files(run)


def _lines(lines: Iterable[str]) -> Iterator[bytes]:
    iterator = iter(lines)
    while some := list(islice(iterator, LINES_AT_ONCE)):
        yield "".join(f"{line}\n" for line in some).encode()


def _checkpoint_files(run: Run) -> Iterator[tuple[str, Iterable[bytes]]]:
    """The files of all checkpoints that match their manifests."""
    for folder in step_folders(run.run_dir / FOLDER_NAME):
        try:
            manifest = read_manifest(folder)
            manifest.check_sizes()
        except DamagedCheckpoint:
            continue
        names = {
            f"{FOLDER_NAME}/{folder.name}/{name}": folder / name for name in (*manifest.files, CHECKPOINT_MANIFEST)
        }
        if all(CHECKPOINT_FILE.fullmatch(name) for name in names):  # as of our trainer
            yield from ((name, file_pieces(path)) for name, path in names.items())


def stored_records(run: Run) -> Iterator[dict[str, Any]]:
    """All stored events of a run, in the order of seq."""
    yield from merge(_events(run), *(_rows(run, kind) for kind in TABLES), key=itemgetter("seq"))


def _events(run: Run) -> Iterator[dict[str, Any]]:
    head = ("seq", "attempt", "time", "type", "step", "agent", "source")
    rows = TelemetryEvent.objects.filter(run=run).order_by("seq").values_list(*head, "payload")
    for *values, payload in rows.iterator(chunk_size=LINES_AT_ONCE):
        yield {**dict(zip(head, values, strict=True)), **payload}


def _rows(run: Run, kind: str) -> Iterator[dict[str, Any]]:
    model, texts = TABLES[kind]
    names = [field.name for field in model._meta.concrete_fields if field.name not in ("id", "run")]
    rows = model._default_manager.filter(run=run).order_by("seq").values_list(*names)
    for values in rows.iterator(chunk_size=LINES_AT_ONCE):
        record = dict(zip(names, values, strict=True)) | {"type": kind}
        for name in texts:
            if record[name] is not None:
                record[name] = json.loads(record[name])
        if record.get("turns"):  # stored as (first letter of the role, whether it failed, text)
            names_of_turn = ("role", "is_failed", "text")
            record["turns"] = [dict(zip(names_of_turn, turn, strict=True)) for turn in record["turns"]]
        yield record


def run_file(run: Run) -> RunFile:
    """The content of run.json."""
    content = RunFile(
        run=columns_as(RunFacts, run),
        is_generated=run.is_generated,
        owner=run.owner.get_username(),
        status_changes=[columns_as(ChangeFacts, change) for change in run.status_changes.order_by("pk")],
        group=_group(run.group) if run.group else None,
        benchmark=_benchmark(run.benchmark) if run.benchmark else None,
    )
    for module in feature_modules("run_bundle"):
        module.add_rows(content, run)
    return content


def _group(group: AgentGroup) -> GroupFacts | None:
    agents = [facts_of_agent(agent) for agent in group.agents.select_related("model")]
    return GroupFacts(name=group.name, agents=agents) if agents else None


def facts_of_agent(agent: Agent) -> AgentFacts:
    return columns_as(AgentFacts, agent, model=facts_of_model(agent.model))


def facts_of_model(model: LanguageModel) -> ModelFacts:
    """A model without the path of its folder, which means nothing elsewhere."""
    switches = {name: model.facts[name] for name in KEPT_FACTS if isinstance(model.facts.get(name), bool)}
    is_hub = model.kind == LanguageModel.Kind.HUB
    candidates = (model.facts.get("imported_place"), model.facts.get("folder_fingerprint"), model.tokenizer_hash)
    place = model.location if is_hub else next((str(one) for one in candidates if one), model.name)
    return columns_as(ModelFacts, model, place=place, facts=switches)


def _benchmark(benchmark: Benchmark) -> BenchmarkFacts:
    function = benchmark.reward_function
    return columns_as(BenchmarkFacts, benchmark, reward_function=function.sha256 if function else "")
