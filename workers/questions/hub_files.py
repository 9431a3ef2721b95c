"""The files of a data set, from a hub or from a folder: chosen by patterns, bounded in size, whole or not at all.

Before the first station of a benchmark where its questions are not uploaded. A hub is asked for one commit, which is
told, so that the same files can be had again; what was only half downloaded is never read.
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
Tell = Callable[[str, float], None]


def fetch(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """{"train", "held_out": [{path, name}], "commit"}: the files, copied into `folder`. Error: BenchmarkError."""
    folder, most = Path(request["folder"]), int(request["most_bytes"])
    if request.get("place"):
        return _from_folder(Path(request["place"]), request, folder, most)
    return _from_hub(request["dataset"], request.get("revision") or None, request, folder, most, tell)


def choose_files(names: list[str], patterns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Which files are trained on and which are held out: by patterns, or where there are none by their names."""
    data_files = sorted(name for name in names if Path(name).suffix.lower() in SUFFIXES and not _is_about(name))
    if any(patterns.values()):
        return {side: [n for n in data_files if any(fnmatch(n, p) for p in patterns[side])] for side in patterns}
    held_out = [
        name for name in data_files if any(word in name.lower() for word in ("test", "valid", "dev", "held_out"))
    ]
    train = [name for name in data_files if name not in held_out]
    return {"train": train, "held_out": held_out} if train else {"train": held_out, "held_out": []}


def _is_about(name: str) -> bool:
    """Files that speak of the data and are none."""
    return Path(name).name.lower() in ("dataset_infos.json", "dataset_info.json", "manifest.json", "license.txt")


def _checked(by_split: dict[str, list[str]], where: str, sizes: dict[str, int], most: int) -> None:
    files = by_split["train"] + by_split["held_out"]
    if not by_split["train"]:
        some = ", ".join(sorted(sizes)[:8]) or "none"
        raise BenchmarkError(f"{where} has no file of questions that fits (JSONL, CSV or Parquet; files there: {some})")
    if len(files) > MAX_FILES:
        raise BenchmarkError(f"{where} has {len(files)} files of questions, {MAX_FILES} at most: name a pattern")
    total = sum(sizes[name] for name in files)
    if total > most:
        raise BenchmarkError(f"The files of {where} have {total / 2**20:.0f} MiB, {most // 2**20} at most")


def _patterns(request: dict[str, Any]) -> dict[str, list[str]]:
    return {side: list(request.get(side) or []) for side in ("train", "held_out")}


def _from_folder(place: Path, request: dict[str, Any], folder: Path, most: int) -> dict[str, Any]:
    roots = [Path(each) for each in request["roots"]]
    paths = [place] if place.is_file() else list(islice(place.rglob("*"), MAX_ENTRIES))
    # A link may lead to another of the allowed folders, as in the hub's own cache, and nowhere else.
    paths = [p for p in paths if p.is_file() and any(p.resolve().is_relative_to(each) for each in roots)]
    root = place.parent if place.is_file() else place
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in paths}
    files = choose_files(list(sizes), _patterns(request))
    if place.is_file() and not files["train"]:
        files = {"train": list(sizes), "held_out": []}  # the user named this one
    _checked(files, place.name, sizes, most)
    return _placed(files, folder, lambda name, target: shutil.copyfile(root / name, target)) | {"commit": ""}


def _placed(
    files: dict[str, list[str]], folder: Path, bring: Callable[[str, Path], object], tell: Tell | None = None
) -> dict[str, Any]:
    """Bring every file to `folder` under a name of ours."""
    answer: dict[str, Any] = {}
    total, done = sum(map(len, files.values())), 0
    for side, names in files.items():
        answer[side] = []
        for number, name in enumerate(names):
            if tell:
                tell(f"downloading {Path(name).name[:80]}", done / total)
            target = folder / f"{side}-{number}{Path(name).suffix.lower()}"
            bring(name, target)
            answer[side].append({"path": str(target), "name": name})
            done += 1
    return answer


def _from_hub(
    dataset: str, revision: str | None, request: dict[str, Any], folder: Path, most: int, tell: Tell
) -> dict[str, Any]:
    from huggingface_hub import HfApi, hf_hub_download

    downloads = folder / "downloads"

    def bring(name: str, target: Path) -> None:
        got = hf_hub_download(
            dataset, name, repo_type="dataset", revision=commit, local_dir=downloads, etag_timeout=TIMEOUT_S
        )
        if Path(got).stat().st_size != sizes[name]:
            raise BenchmarkError(f"{name} of {dataset} came with another size than the hub tells: try again")
        Path(got).rename(target)

    for _ in range(TRIES):
        try:
            info = HfApi().dataset_info(dataset, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
            commit = str(info.sha)
            sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
            files = choose_files(list(sizes), _patterns(request))
            _checked(files, dataset, sizes, most)
            return _placed(files, folder, bring, tell) | {"commit": commit}
        except hub_errors() as error:
            if isinstance(error, BenchmarkError):
                raise
            if cause := refusal(error, "data set", dataset, revision):
                raise BenchmarkError(cause) from None
            reason = type(error).__name__
        finally:
            shutil.rmtree(downloads, ignore_errors=True)
    text = f"Could not reach the hub for {dataset} (within {TIMEOUT_S} s, {TRIES} tries; {reason})"
    raise BenchmarkError(f"{text}: check the connection, or give a local copy")
