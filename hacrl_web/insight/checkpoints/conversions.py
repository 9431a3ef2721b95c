"""GGUF files of trained agents, made in the background by llama.cpp's converter where the operator has it.

The file lies in the run's folder, until it is removed or the run is deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from django.utils import timezone

from hacrl_web.accounts.audit_log import note_change
from hacrl_web.accounts.models import Role
from hacrl_web.accounts.projects import require
from hacrl_web.insight.checkpoints.background import BackgroundJob, jobs_in, new_key, start_job
from hacrl_web.insight.checkpoints.model_card import gguf_converter
from hacrl_web.runs.limits.quotas import check_disk
from hacrl_web.runs.models import Run
from hacrl_web.runs.run_files import GGUF_FOLDER as FOLDER
from hacrl_web.runs.run_files import files_removal, is_converting, lock_conversion, reading_files
from hacrl_web.runs.worker.usage import measure_files
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import EVERY_FIELD
from hacrl_web.web.streaming import file_slug
from workers.contract.checkpoint_manifest import Manifest

MAX_KEPT = 20  # of a run
TIME_LIMIT_S = 3 * 3600.0
SPARE_BYTES = 256 * 2**20
END_S = 5.0  # for the processes of a conversion that has ended or was killed
NumberType = Literal["auto", "f32", "f16", "bf16", "q8_0"]
NUMBER_TYPES = ("auto", "f32", "f16", "bf16", "q8_0")
_KEY = re.compile(r"\d{20}-[0-9a-f]{8}", re.ASCII)
_STOPPED = "The conversion ended without an answer: start it again."


@dataclass
class Conversion:
    """One GGUF file. size_bytes: 0 until it is there.  name: under which it is saved.

    weights: their type by the finished file; empty if it does not say.
    """

    __pydantic_config__ = EVERY_FIELD
    key: str
    step: int
    agent: str
    number_type: str
    weights: str
    name: str
    phase: str
    size_bytes: int
    error: str
    is_running: bool

    @property
    def is_there(self) -> bool:
        return bool(self.size_bytes)


def start_conversion(user: Any, run: Run, manifest: Manifest, agent: str, number_type: str) -> Conversion:
    """Make a GGUF file of an agent of a checkpoint, in the background. Error: FieldErrors."""
    require(user, run.project, Role.MEMBER)
    if number_type not in NUMBER_TYPES:
        raise FieldErrors.single("invalid", f"Must be one of {', '.join(NUMBER_TYPES)}.", "number_type")
    converter = gguf_converter()
    if not converter:
        message = "llama.cpp's converter is not on this host: the operator names it by HACRL_GGUF_CONVERTER."
        raise FieldErrors.single("no_converter", message, status=409)
    check_disk(run.project)
    try:
        lock = _lock(run)
        try:
            with reading_files(run):  # retention may have removed them since the look at the manifest
                return _start(run, manifest, agent, number_type, converter, lock)
        finally:
            os.close(lock)  # the process has its own descriptor of the lock
    except FileNotFoundError:
        raise FieldErrors.single("not_found", "The files of this run have been deleted.", status=404) from None


def _lock(run: Run) -> int:
    """The lock of the run's only conversion. Error: FieldErrors (409) while one is under way."""
    deadline = time.monotonic() + END_S
    while True:
        try:
            return lock_conversion(run.run_dir)
        except BlockingIOError:
            if any(one.is_running for one in conversions_of(run)) or time.monotonic() > deadline:
                message = "A conversion of this run is under way: wait for its end."
                raise FieldErrors.single("busy", message, status=409) from None
        time.sleep(0.05)


def _start(run: Run, manifest: Manifest, agent: str, number_type: str, converter: str, lock: int) -> Conversion:
    """Error: FieldErrors."""
    if (count := len(conversions_of(run))) >= MAX_KEPT:
        message = f"This run has {count} conversions, and at most {MAX_KEPT} are kept: remove one first."
        raise FieldErrors.single("too_many", message, status=409)
    source = manifest.path / manifest.folders[agent]
    size = sum(int(entry["size"]) for entry in manifest.files_of(agent).values())
    needed = 2 * size + SPARE_BYTES  # f32 of 16-bit weights
    if (free := shutil.disk_usage(run.run_dir).free) < needed:
        text = f"The file may need {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of the disk are free."
        raise FieldErrors.single("disk_full", text, status=507)
    folder, key = run.run_dir / FOLDER, new_key()
    name = f"{file_slug(f'{agent} step {manifest.step} {number_type}') or 'agent'}.gguf"
    facts = {"step": manifest.step, "agent": agent, "number_type": number_type, "name": name}
    command = [settings.GGUF_PYTHON, converter, str(source), "--outtype", number_type]
    request = {"command": command, "output": str(folder / f"{key}.gguf"), "time_limit_s": TIME_LIMIT_S}
    Run.objects.filter(pk=run.pk).update(files_changed_at=timezone.now())
    start_job(folder, "workers.hub.convert_gguf", facts, request, key, lock)
    note_change("convert", run, step=manifest.step, agent=agent, number_type=number_type)
    return conversion_of(run, key)


def conversions_of(run: Run) -> list[Conversion]:
    """The conversions of a run on this host, the newest first."""
    return [_conversion(job) for job in jobs_in(run.run_dir / FOLDER, MAX_KEPT)]


def conversion_of(run: Run, key: str) -> Conversion:
    """Error: FieldErrors (404)."""
    for one in conversions_of(run):
        if one.key == key:
            return one
    message = files_removal(run) or "There is no such GGUF file on this host."
    raise FieldErrors.single("not_found", message, status=404)


def finished_file(run: Run, key: str) -> tuple[Path, str]:
    """A finished file, and the name to save it under. Error: FieldErrors (404)."""
    one = conversion_of(run, key)
    path = run.run_dir / FOLDER / f"{key}.gguf"
    if not one.is_there or not path.is_file():
        message = "This GGUF file is not finished, or its conversion failed: see the list on the Checkpoints tab."
        raise FieldErrors.single("not_found", message, status=404)
    return path, one.name


def remove_conversion(user: Any, run: Run, key: str) -> None:
    """End it if it still runs, and remove what it made. Error: FieldErrors."""
    require(user, run.project, Role.MEMBER)
    if not _KEY.fullmatch(key):
        raise FieldErrors.single("not_found", "There is no such GGUF file on this host.", status=404)
    conversion_of(run, key)
    folder = run.run_dir / FOLDER
    for job in jobs_in(folder, MAX_KEPT):
        if job.key == key and job.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(job.facts["pid"]), signal.SIGKILL)  # with the converter; it leads its own session
            _await_end(run)
    for ending in ("json", "state", "new", "part", "gguf"):
        (folder / f"{key}.{ending}").unlink(missing_ok=True)
    measure_files(run)
    note_change("remove_gguf", run, key=key)


def _await_end(run: Run) -> None:
    """Wait until the processes that were killed have ended, for at most END_S."""
    deadline = time.monotonic() + END_S
    while is_converting(run.run_dir) and time.monotonic() < deadline:
        time.sleep(0.05)


def _conversion(job: BackgroundJob) -> Conversion:
    facts, state = job.facts, job.state
    return Conversion(
        key=job.key,
        step=int(facts["step"]),
        agent=str(facts["agent"]),
        number_type=str(facts["number_type"]),
        weights=str(state.get("weights", "")),
        name=str(facts["name"]),
        phase=str(state.get("phase", "starting")),
        size_bytes=int(state.get("size_bytes", 0)),
        error=str(state.get("error", "")) or ("" if state.get("ended") or job.is_alive else _STOPPED),
        is_running=job.is_running,
    )
