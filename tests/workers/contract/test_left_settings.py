"""Settings that left: dropped where they had no effect, refused in one sentence with the way out where they acted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.workers.tiny import make_spec
from workers.contract.spec.algorithm import left_settings, without_left
from workers.contract.spec.run import InvalidSettings, RunSpec

ROOT = Path(__file__).resolve().parents[3]
IDLE = {
    "algorithm": {
        "anchor": "source",
        "anchor_clip": 0.4,
        "omega_scope": "run",
        "omega_shrinkage": 9.0,
        "replay_steps": 0,
    },
    "training": {"curriculum_rest": 0},
}
ACTING = [
    ({"algorithm": {"anchor": "own"}}, "algorithm.anchor", "anchor own left this version"),
    ({"algorithm": {"omega_scope": "subject"}}, "algorithm.omega_scope", "omega_scope subject left this version"),
    ({"algorithm": {"replay_steps": 2}}, "algorithm.replay_steps", "leave it out to train without it"),
    ({"algorithm": {"cross_gate": "tapered"}}, "algorithm.cross_gate", "choose hacpo, signed or gamma"),
    ({"algorithm": {"name": "transfer"}}, "algorithm.name", "docs/examples/success_transfer.py"),
    ({"training": {"curriculum_rest": 3}}, "training.curriculum_rest", "leave it out to train without it"),
]


def stored(root: Path, **sections) -> dict:
    values = make_spec(root, [{"name": name, "model": "unused"} for name in "AB"]).model_dump(mode="json")
    return {key: value | sections.get(key, {}) if isinstance(value, dict) else value for key, value in values.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_settings_that_had_no_effect_are_dropped(tmp_path, version):
    values = stored(tmp_path, **IDLE) | {"schema_version": version}
    assert RunSpec.model_validate(values) == RunSpec.model_validate(stored(tmp_path) | {"schema_version": version})


@pytest.mark.parametrize(("sections", "path", "sentence"), ACTING)
def test_setting_that_acted_is_refused_with_its_place_and_the_way_out(tmp_path, sections, path, sentence):
    values = stored(tmp_path, **sections)
    with pytest.raises(ValidationError, match=sentence) as refused:
        RunSpec.model_validate(values)
    assert [".".join(map(str, one["loc"])) for one in refused.value.errors()] == [path]
    (tmp_path / "run.json").write_text(json.dumps(values))
    with pytest.raises(InvalidSettings, match=f"{path}: .*{sentence}"):
        RunSpec.from_file(tmp_path / "run.json")
    assert [f"{one.section}.{one.name}" for one in left_settings(values)] == [path]
    assert left_settings(without_left(values) if path != "algorithm.name" else {}) == []


def test_registered_example_trains_what_left(tmp_path):
    """In a process of its own: algorithms are read once."""
    (tmp_path / "run.json").write_text(json.dumps(stored(tmp_path, algorithm=IDLE["algorithm"] | {"name": "transfer"})))
    program = (
        "import sys; from pathlib import Path; from workers.contract.spec.run import RunSpec; "
        "spec = RunSpec.from_file(Path(sys.argv[1])); print(spec.algorithm.name, spec.algorithm.label)"
    )
    values = json.loads((tmp_path / "run.json").read_text())
    sharing = {"name", "epsilon", "beta", "sharing", "cross_weight", *IDLE["algorithm"]}
    values["algorithm"] = {name: value for name, value in values["algorithm"].items() if name in sharing}
    (tmp_path / "run.json").write_text(json.dumps(values))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run.json")],
        env={**os.environ, "HACRL_ALGORITHMS": str(ROOT / "docs" / "examples")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "transfer Success transfer", done.stderr
