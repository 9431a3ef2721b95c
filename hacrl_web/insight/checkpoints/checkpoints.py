"""The checkpoints of a run: those in its folder on this host, how many the trainer recorded, and which is best."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from hacrl_web.insight.checkpoints.model_card import precision_of, precision_text, serve_command
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.run_files import files_removal
from hacrl_web.runs.telemetry.scores import accuracies
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.schemas import EVERY_FIELD
from hacrl_web.web.streaming import file_slug
from workers.contract.checkpoint_manifest import FOLDER_NAME, DamagedCheckpoint, Manifest, read_manifest, step_folders

MAX_LISTED = 100
MAX_BUNDLE_BYTES = 4 * 2**30  # of a run as one file, to be imported
READ_AT_ONCE_BYTES = 64 * 2**20  # checked byte by byte in each list, beginning with the newest checkpoint


@dataclass
class AgentFolder:
    """One agent of a checkpoint. serve: the command with which vLLM serves it.  proposed: a name for a model of it.

    has_adapter: whether LoRA matrices are beside the merged weights.  repository: a name for one on the hub.
    precision: how far a bfloat16 copy is from the agent, in words; empty where it is equal.
    """

    __pydantic_config__ = EVERY_FIELD
    name: str
    position: int
    num_files: int
    size_bytes: int
    accuracy: float | None
    serve: str
    proposed: str = ""
    has_adapter: bool = False
    precision: str = ""
    repository: str = ""


@dataclass
class CheckpointSummary:
    """One checkpoint in the list. checked: what was compared with the manifest.  damage: the problem, or empty."""

    __pydantic_config__ = EVERY_FIELD
    step: int
    size_bytes: int
    num_files: int
    agents: list[AgentFolder]
    checked: str
    damage: str = ""
    accuracy: float | None = None
    is_newest: bool = False
    is_best: bool = False


@dataclass
class CheckpointList:
    """The checkpoints on this host, newest first. host: of the run's folder, if it is another one."""

    checkpoints: list[CheckpointSummary] = field(default_factory=list)
    num_recorded: int = 0  # checkpoints in the trainer's events
    is_here: bool = True
    host: str = ""
    removal: str = ""  # why none is left, if retention has removed them

    @property
    def num_removed(self) -> int:
        return max(0, self.num_recorded - len(self.checkpoints))


def is_here(run: Run) -> bool:
    """Whether the run's folder is in this data folder; a run that has not begun has no folder."""
    return run.data_folder in ("", data_folder_id()) and run.run_dir.is_dir()


def best_step(scores: dict[int, dict[str, float]], steps: list[int], num_agents: int) -> int | None:
    """The first step with the highest mean over all agents; None without an evaluation of all agents."""
    means = {step: fmean(scores[step].values()) for step in steps if len(scores.get(step, {})) == num_agents}
    return max(sorted(means), key=lambda step: means[step]) if means else None


def list_of_checkpoints(run: Run, *, verify: int | None = None) -> CheckpointList:
    """The checkpoints of a run. verify: the step whose every byte is read."""
    steps_recorded = set(run.events.filter(type="checkpoint").order_by().values_list("step", flat=True))
    here, removal = is_here(run), files_removal(run)
    if removal or not here:
        return CheckpointList(num_recorded=len(steps_recorded), is_here=here, host=run.worker_host, removal=removal)
    scores = accuracies(run)
    rows = []
    budget = READ_AT_ONCE_BYTES
    for path in reversed(step_folders(run.run_dir / FOLDER_NAME)[-MAX_LISTED:]):
        try:
            manifest = read_manifest(path)
        except DamagedCheckpoint as error:
            rows.append(CheckpointSummary(_step_of(path), 0, 0, [], "its manifest cannot be read", str(error)))
            continue
        is_small = manifest.size_bytes <= budget
        budget -= manifest.size_bytes * is_small
        reads = is_small or manifest.step == verify
        rows.append(_summary(run, manifest, scores.get(manifest.step, {}), reads=reads))
    sound = [one.step for one in rows if not one.damage]
    best = best_step(scores, sound, len(run.agent_names))
    for one in rows:
        one.is_newest, one.is_best = one.step == max(sound, default=None), one.step == best
    return CheckpointList(rows, len(steps_recorded | {one.step for one in rows}))


def _summary(run: Run, manifest: Manifest, scores: dict[str, float], *, reads: bool) -> CheckpointSummary:
    agents = []
    places = {name: place for place, name in enumerate(run.agent_names)}
    for name in manifest.folders:
        files = manifest.files_of(name)
        size = sum(int(entry["size"]) for entry in files.values())
        folder = str(manifest.path / manifest.folders[name])
        precision = precision_of(Path(folder))
        serve = serve_command(folder, name, in_float32=bool(precision))
        has_adapter = any(one.startswith("adapter/") for one in files)
        place = places.get(name, 0)
        row = AgentFolder(name, place, len(files), size, scores.get(name), serve, has_adapter=has_adapter)
        row.precision = precision_text(precision)
        agents.append(row)
    checked, damage = ("verified" if reads else "sizes match"), ""
    try:
        manifest.check_bytes() if reads else manifest.check_sizes()
    except (DamagedCheckpoint, OSError) as error:
        checked, damage = "damaged", str(error)
    mean = fmean(scores.values()) if len(scores) == len(run.agent_names) else None
    return CheckpointSummary(manifest.step, manifest.size_bytes, len(manifest.files), agents, checked, damage, mean)


def find_checkpoint(run: Run, step: int | None) -> Manifest:
    """The checkpoint of a step, or the newest; the sizes of its files are checked. Error: FieldErrors at `step`."""
    folders = [] if (reason := files_removal(run) or _elsewhere(run)) else step_folders(run.run_dir / FOLDER_NAME)
    paths = folders[-1:] if step is None else [one for one in folders if _step_of(one) == step]
    if not paths:
        none = "This run has no checkpoint."
        if step is not None:
            none = f"There is no checkpoint of step {step}: only the newest and the best are kept."
        raise FieldErrors.single("not_found", reason or none, "step", status=404)
    try:
        manifest = read_manifest(paths[0])
        manifest.check_sizes()
        return manifest
    except DamagedCheckpoint as error:
        raise FieldErrors.single("damaged", f"{error}.", "step", status=409) from None


def _elsewhere(run: Run) -> str:
    return "" if is_here(run) else f"The files of this run are on {run.worker_host or 'another host'}, not on this one."


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def checkpoint_and_agent(run: Run, step: int, place: int) -> tuple[Manifest, str]:
    """A checkpoint, and the name of the agent at a place of it. Error: FieldErrors."""
    manifest = find_checkpoint(run, step)
    names = list(manifest.folders)
    if place >= len(names):
        message = f"The checkpoint of step {manifest.step} has {len(names)} agents."
        raise FieldErrors.single("not_found", message, "step", status=404)
    return manifest, names[place]


def agent_slug(*parts: Any) -> str:
    """A name for a file or folder: small letters, digits and dashes."""
    return file_slug(*parts) or "model"


def checkpoint_bytes(run: Run) -> int:
    """The bytes of the checkpoints on this host."""
    return sum(one.size_bytes for one in list_of_checkpoints(run).checkpoints)


def bundle_size_refusal(num_bytes: int) -> str:
    """Why these checkpoints are not exported in a bundle, or empty."""
    if num_bytes <= MAX_BUNDLE_BYTES:
        return ""
    return (
        f"Its checkpoints take {num_bytes / 2**30:.1f} GiB, and a bundle of more than {MAX_BUNDLE_BYTES / 2**30:.0f} "
        "GiB is not imported: export it without them, and download the checkpoints on the Checkpoints tab."
    )
