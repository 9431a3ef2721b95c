"""Two agents on two GPUs, each in a process of its own: they end as in turns."""

from __future__ import annotations

import pytest
import torch

from tests.support.workers.endings import assert_same_end
from tests.support.workers.tiny import make_pair, make_spec, records, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def test_agents_on_two_gpus_end_as_in_turns(tmp_path):
    ends = {}
    for placement in ("local", "auto"):
        compute = {"device": "cuda", "dtype": "float32", "agent_devices": "own", "placement": placement}
        spec = make_spec(tmp_path, make_pair(tmp_path / placement), evaluation={"eval_interval": 0}, compute=compute)
        train(spec, tmp_path / placement / "run").close()
        (started,) = records(tmp_path / placement / "run", "started")
        ends[placement] = started["settled"]["compute"].get("placement", placement)
    assert ends == {"local": "local", "auto": "processes"}
    assert_same_end(tmp_path / "auto" / "run", tmp_path / "local" / "run")
