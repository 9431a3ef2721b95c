"""A data set's files, copied from a hub or from a folder: chosen by patterns, bounded in size, all or nothing.

Precedes a benchmark's import if its questions are not uploaded. From a hub, all files are of one commit, which is
reported so that they can be fetched again; a partial download is never read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from workers.hub.client import TIMEOUT_S, hub_errors, refusal
from workers.questions.files import SUFFIXES, BenchmarkError

MAX_FILES = 40
MAX_ENTRIES = 5000  # of a folder
TRIES = 2
NO_QUESTIONS = ("dataset_infos.json", "dataset_info.json", "manifest.json", "license.txt")  # files about the data
HELD_OUT_WORDS = ("test", "valid", "dev", "held_out")
Report = Callable[[str, float], None]


def fetch(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """{"train", "held_out": [{path, name}], "commit"}: the files, copied into `folder`. Error: BenchmarkError."""
    if request.get("place"):
        return _from_folder(Path(request["place"]), request, report)
    return _from_hub(request["dataset"], request.get("revision") or None, request, report)


def choose_files(names: list[str], patterns: dict[str, list[str]]) -> dict[str, list[str]]:
    """The files of the training and the held-out set: by patterns, or without any by the words in their names."""
    data_files = sorted(
        name for name in names if Path(name).suffix.lower() in SUFFIXES and Path(name).name.lower() not in NO_QUESTIONS
    )
    if any(patterns.values()):
        return {side: [n for n in data_files if any(fnmatch(n, p) for p in patterns[side])] for side in patterns}
    held_out = [name for name in data_files if any(word in name.lower() for word in HELD_OUT_WORDS)]
    train = [name for name in data_files if name not in held_out]
    return {"train": train, "held_out": held_out} if train else {"train": held_out, "held_out": []}


def _check(by_split: dict[str, list[str]], where: str, sizes: dict[str, int], most: int) -> None:
    """Error: BenchmarkError if the choice of files is empty or too large."""
    files = by_split["train"] + by_split["held_out"]
    if not by_split["train"]:
        some = ", ".join(sorted(sizes)[:8]) or "none"
        raise BenchmarkError(f"{where} has no matching question file (JSONL, CSV or Parquet); its files: {some}")
    if len(files) > MAX_FILES:
        raise BenchmarkError(f"{where} has {len(files)} question files, {MAX_FILES} at most: select some by a pattern")
    total = sum(sizes[name] for name in files)
    if total > most:
        size = f"{total / 2**20:.0f} MiB, {most // 2**20} at most"
        raise BenchmarkError(f"The files of {where} have {size}: select some by a pattern")


def _patterns(request: dict[str, Any]) -> dict[str, list[str]]:
    return {side: list(request.get(side) or []) for side in ("train", "held_out")}


def _from_folder(place: Path, request: dict[str, Any], report: Report) -> dict[str, Any]:
    roots = [Path(each) for each in request["roots"]]
    paths = [place] if place.is_file() else list(islice(place.rglob("*"), MAX_ENTRIES))
    # A link may lead to another of the allowed folders, as in the hub's own cache, and nowhere else.
    paths = [p for p in paths if p.is_file() and any(p.resolve().is_relative_to(each) for each in roots)]
    root = place.parent if place.is_file() else place
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in paths}
    files = choose_files(list(sizes), _patterns(request))
    if place.is_file() and not files["train"]:
        files = {"train": list(sizes), "held_out": []}  # the user chose this file
    _check(files, place.name, sizes, int(request["most_bytes"]))
    return _copied(files, request, lambda name, target: shutil.copyfile(root / name, target), report) | {"commit": ""}


def _copied(
    files: dict[str, list[str]], request: dict[str, Any], copy: Callable[[str, Path], object], report: Report
) -> dict[str, Any]:
    """Copy every file to `folder` under a safe name."""
    answer: dict[str, Any] = {"train": [], "held_out": []}
    names = [(side, name) for side in files for name in files[side]]
    for number, (side, name) in enumerate(names):
        report(f"copying {Path(name).name[:80]}", number / len(names))
        target = Path(request["folder"]) / f"{side}-{len(answer[side])}{Path(name).suffix.lower()}"
        copy(name, target)
        answer[side].append({"path": str(target), "name": name})
    return answer


def _from_hub(dataset: str, revision: str | None, request: dict[str, Any], report: Report) -> dict[str, Any]:
    from huggingface_hub import HfApi, hf_hub_download

    downloads = Path(request["folder"]) / "downloads"

    def download(name: str, target: Path) -> None:
        path = hf_hub_download(
            dataset, name, repo_type="dataset", revision=commit, local_dir=downloads, etag_timeout=TIMEOUT_S
        )
        if Path(path).stat().st_size != sizes[name]:
            raise BenchmarkError(f"{name} of {dataset} arrived with another size than the hub lists: try again")
        Path(path).rename(target)

    for _ in range(TRIES):
        try:
            info = HfApi().dataset_info(dataset, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
            commit = str(info.sha)
            sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
            files = choose_files(list(sizes), _patterns(request))
            _check(files, dataset, sizes, int(request["most_bytes"]))
            return _copied(files, request, download, report) | {"commit": commit}
        except hub_errors() as error:
            if isinstance(error, BenchmarkError):
                raise
            if cause := refusal(error, "data set", dataset, revision):
                raise BenchmarkError(cause) from None
            reason = type(error).__name__
        finally:
            shutil.rmtree(downloads, ignore_errors=True)
    text = f"Could not reach the hub for {dataset} (within {TIMEOUT_S} s, {TRIES} tries; {reason})"
    raise BenchmarkError(f"{text}: check the connection, or choose a local copy")
