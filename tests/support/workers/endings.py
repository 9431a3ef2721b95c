"""Whether two runs ended the same way: checkpoints and what was told, bit for bit."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from tests.support.workers.tiny import records
from workers.trainer.checkpoints import newest_checkpoint


def told(run_dir: Path, kind: str) -> list[dict]:
    """The events of a run as a reader keeps them: of a step that was made twice, the last telling."""
    kept: dict[tuple, dict] = {}
    for record in records(run_dir, kind):
        names = ("step", "agent", "source", "prompt_id", "sample", "benchmark")
        body = {key: value for key, value in record.items() if key not in ("seq", "attempt", "time", "crc")}
        kept[tuple(str(record.get(name)) for name in names)] = body
    return [kept[key] for key in sorted(kept)]


def assert_same_end(left: Path, right: Path) -> None:
    found = [newest_checkpoint(run_dir)[0] for run_dir in (left, right)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].step == found[1].step
    names = [
        {path.relative_to(each.path).as_posix() for path in each.path.rglob("*.safetensors")} for each in found if each
    ]
    assert names[0] == names[1]
    agents = {str(record["agent"]) for record in records(left, "metrics")}
    assert len(names[0]) == 2 * len(agents)  # of each its weights and its optimizer
    for name in names[0]:
        ours, theirs = (load_file(each.path / name) for each in found if each)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert ours[key].equal(theirs[key]), (name, key)
    for kind in ("metrics", "rollout", "contribution", "evaluation"):
        assert told(left, kind) == told(right, kind), kind
