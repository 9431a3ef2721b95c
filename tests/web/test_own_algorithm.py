"""A rule in one file of a folder, the example of docs/algorithms.md: no other file is touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = Path(__file__).with_name("own_algorithm_checks.py")
HEAD = "from typing import ClassVar, Literal\nfrom workers.algorithms.base.gated import GatedSpec\n"
OTHERS = {
    "raises": "1 / 0\n",
    "taken": f"""{HEAD}
class Again(GatedSpec):
    label: ClassVar[str] = "again"
    summary: ClassVar[str] = "again"
    name: Literal["hacpo"] = "hacpo"
""",
    "unnamed": f"""{HEAD}
class Unnamed(GatedSpec):
    name: Literal["unnamed"] = "unnamed"
""",
    "half_good": f"""{HEAD}
class Good(GatedSpec):
    label: ClassVar[str] = "good"
    summary: ClassVar[str] = "good"
    name: Literal["good"] = "good"

class Bad(GatedSpec):
    name: Literal["bad"] = "bad"
""",
    "constant": f"""{HEAD}
class Constant(GatedSpec):
    label: ClassVar[str] = "constant"
    summary: ClassVar[str] = "a gate that is one number"
    name: Literal["constant"] = "constant"

    def gate(self, s, sign, update_index, ops):
        return 0.5
""",
    "not_finite": f"""{HEAD}
class NotFinite(GatedSpec):
    label: ClassVar[str] = "Not finite"
    summary: ClassVar[str] = "a gate that is not a number"
    name: Literal["not_finite"] = "not_finite"

    def gate(self, s, sign, update_index, ops):
        return s * float("nan")
""",
}


@pytest.mark.slow
def test_a_rule_in_one_file_is_in_form_api_command_line_trainer_what_if_and_board(tmp_path):
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "algorithms.md").read_text(), re.DOTALL)
    assert len(example) == 1
    for name, text in {"halved": example[0], **OTHERS}.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)],
        cwd=ROOT,
        env={**os.environ, "HACRL_ALGORITHMS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "9 passed" in done.stdout
