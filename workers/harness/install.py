"""Installs lm-evaluation-harness into an environment of its own, `python -m workers.harness.install`.

The environment is `lm_eval` in the data folder. It reads torch and transformers of this one, so a model computes the
same in both, and holds what the harness needs besides (requirements.txt), so nothing here changes. Then the names of
the harness's tasks are written to the data folder, for the form to check them; with HACRL_LM_EVAL, which names another
Python, that is all. Exit status: 0 done, 1 not; the last line explains.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from workers.contract.repository import ROOT
from workers.contract.spec.harness import (
    HARNESS_CATALOGUE,
    HARNESS_ENVIRONMENT,
    PYTHON_VARIABLE,
    TASKS_VARIABLE,
    python_of_environment,
)
from workers.harness.process import HarnessFailed, call

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
LISTING_S = 900.0  # thousands of files, perhaps from a network disk


def folder_of_data() -> Path:
    """As the product finds it."""
    return Path(os.environ.get("HACRL_DATA") or ROOT / "var").expanduser().resolve()


def make_environment(folder: Path) -> Path:
    """The environment's Python. Errors: CalledProcessError, OSError."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = python_of_environment(folder)
    purelib = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # Its own packages come first on the path, then these.
    (Path(purelib) / "hacrl.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), "-r", str(REQUIREMENTS)], check=True)
    return python


def write_catalogue(path: Path, python: Path) -> dict[str, Any]:
    """The harness's version and the names of its tasks, also of the operator's folder. Error: HarnessFailed."""
    os.environ[PYTHON_VARIABLE] = str(python)
    folders = [folder] if (folder := os.environ.get(TASKS_VARIABLE)) else []
    with tempfile.TemporaryDirectory() as work:
        answer = call("tasks", Path(work), *folders, time_limit_s=LISTING_S)
    names = answer.get("tasks")
    if not isinstance(names, list) or not names:
        raise HarnessFailed("lm-evaluation-harness listed no task")
    catalogue = {"python": str(python), "version": str(answer.get("version")), "tasks": sorted(map(str, names))}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(catalogue), encoding="utf-8")
    temporary.replace(path)
    return catalogue


def main() -> int:
    data = folder_of_data()
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = os.environ.get(PYTHON_VARIABLE)
        python = Path(named) if named else make_environment(data / HARNESS_ENVIRONMENT)
        catalogue = write_catalogue(data / HARNESS_CATALOGUE, python)
    except subprocess.CalledProcessError as error:
        print(f"lm-evaluation-harness could not be installed (exit status {error.returncode}); see above.")
        return 1
    except (HarnessFailed, OSError) as error:
        print(f"lm-evaluation-harness cannot be used: {error}.")
        return 1
    print(f"lm-evaluation-harness {catalogue['version']} is ready, with {len(catalogue['tasks']):,} tasks: {python}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
