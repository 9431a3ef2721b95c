"""FSDP2 on two GPUs: the weights that one GPU would have learnt, each GPU holding half of what is trained."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from tests.support.workers.tiny import make_agent, make_spec, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize(("sharding", "lora_rank"), [("none", 0), ("fsdp2", 0), ("fsdp2", 4)])
def test_two_gpus_learn_what_one_learns(tmp_path, sharding, lora_rank):
    agents = [{"name": "A", "model": str(make_agent(tmp_path / "model", "qwen3")), "lora_rank": lora_rank}]
    found = {}
    for processes in (1, 2):
        compute = {"device": "cuda", "dtype": "float32", "processes_per_agent": processes}
        compute |= {"sharding": sharding} if processes > 1 else {}
        training = {"learning_rate": 1e-4, "micro_batch_size": 3}
        spec = make_spec(tmp_path, agents, training=training, evaluation={"eval_interval": 0}, compute=compute)
        run_dir = tmp_path / str(processes)
        train(spec, run_dir).close()
        (file,) = (run_dir / "checkpoints" / "step-000003" / "agents").glob("*/model.safetensors")
        found[processes] = load_file(file)
    assert all(torch.allclose(value, found[2][name], rtol=0, atol=1e-5) for name, value in found[1].items())
