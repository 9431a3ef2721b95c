"""Whether two runs ended the same way: checkpoints and events, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file

from tests.support.workers.tiny import records
from workers.trainer.checkpoints import newest_checkpoint


def last_records(run_dir: Path, kind: str) -> list[dict]:
    """The events of a run as a reader stores them: of a step that was made twice, the last."""
    last: dict[tuple, dict] = {}
    for record in records(run_dir, kind):
        names = ("step", "agent", "source", "prompt_id", "sample", "benchmark")
        body = {key: value for key, value in record.items() if key not in ("seq", "attempt", "time", "crc")}
        last[tuple(str(record.get(name)) for name in names)] = body
    return [last[key] for key in sorted(last)]


KINDS = ("metrics", "rollout", "contribution", "evaluation")


def assert_same_end(left: Path, right: Path, kinds: Sequence[str] = KINDS) -> None:
    ends = [newest_checkpoint(run_dir)[0] for run_dir in (left, right)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].step == ends[1].step
    names = [
        {path.relative_to(each.path).as_posix() for path in each.path.rglob("*.safetensors")} for each in ends if each
    ]
    assert names[0] == names[1]
    agents = {str(record["agent"]) for record in records(left, "metrics")}
    own = [name for name in names[0] if not name.endswith("adapter_model.safetensors")]
    assert len(own) == 2 * len(agents)  # of each its weights and its optimizer
    for name in names[0]:
        ours, theirs = (load_file(each.path / name) for each in ends if each)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert ours[key].equal(theirs[key]), (name, key)
    for kind in kinds:
        assert last_records(left, kind) == last_records(right, kind), kind
