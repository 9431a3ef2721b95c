"""Rollouts and updates of models of about half a billion weights on one GPU; what docs/gpu.md reports was run here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.workers.tiny import WITHOUT_VLLM, make_agent, make_spec, records, train
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.rollouts.engine import logp_difference, make_engine

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason=WITHOUT_VLLM)
pytestmark = [pytest.mark.gpu, pytest.mark.full, pytest.mark.timeout(1800)]
ENGINES = ["transformers", pytest.param("vllm", marks=needs_vllm)]
MIB = 2**20
# The bodies of known models of 0.4 to 0.6 billion weights, with a vocabulary of characters.
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "llama": {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 18,
        "num_attention_heads": 20,
        "num_key_value_heads": 5,
        "head_dim": 64,
    },
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two agents of different families, with random weights."""
    root = tmp_path_factory.mktemp("models")
    common = {"max_position_embeddings": 512, "initializer_range": 0.02}
    return [
        {"name": kind, "model": str(make_agent(root / kind, kind, seed, **shape, **common))}
        for seed, (kind, shape) in enumerate(SHAPES.items())
    ]


def spec_of(root: Path, pair: list[dict[str, Any]], engine: str, **training: Any) -> RunSpec:
    return make_spec(
        root,
        pair,
        rollout={"engine": engine, "num_generations": 8, "max_completion_length": 64, "gpu_memory_utilization": 0.2},
        training={"learning_rate": 1e-6, **training},
        compute={"device": "cuda", "dtype": "bfloat16", "num_threads": 0},
        evaluation={"eval_interval": 0},
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_ratio_is_one_before_the_first_update_and_the_engine_agrees(tmp_path: Path, pair: Any, engine: str) -> None:
    train(spec_of(tmp_path, pair, engine, steps=2), tmp_path / "run").close()
    rows = [row for row in records(tmp_path / "run", "contribution") if row["agent"] == row["source"]]
    first = [row["sequence_ratio"] for row in rows if row["mini_batch"] == 0 and row["sequence_ratio"] is not None]
    assert first
    assert max(abs(ratio - 1) for ratio in first) < 1e-6
    for record in records(tmp_path / "run", "metrics"):
        if record["source"] is None:
            assert record["values"]["sampling_logp_difference/mean"] < 0.05
            assert record["values"].get("engine_logp_difference", 0.0) < 0.1


@pytest.fixture(params=[0, 8])
def engine_and_policy(request: pytest.FixtureRequest, tmp_path: Path, pair: Any) -> Iterator[tuple[Any, Policy]]:
    """With all weights trained, and with LoRA."""
    spec = spec_of(tmp_path, [{**pair[0], "lora_rank": request.param}], "vllm")
    policy = Policy(spec.agents[0], spec, torch.device("cuda"))
    engine = make_engine(policy, spec, torch.device("cuda"))
    yield engine, policy
    engine.close()


@needs_vllm
def test_twenty_cycles_of_sleep_and_waking_leave_no_memory_behind(engine_and_policy: tuple[Any, Policy]) -> None:
    engine, policy = engine_and_policy
    prompt = policy.encode_prompt("1+2=")
    free = []
    for cycle in range(20):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(1e-3 * (-1) ** cycle * torch.randn_like(parameter))
        engine.take_weights()
        assert logp_difference(engine, policy, prompt, 32) < 0.1  # wakes, takes the weights, samples, sleeps
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
    assert min(free[2:]) > free[1] - 64 * MIB, [round(value / MIB) for value in free]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_models_train_for_twenty_steps_on_one_gpu(tmp_path: Path, pair: Any, engine: str) -> None:
    trainer = train(spec_of(tmp_path, pair, engine, steps=20), tmp_path / "run")
    trainer.close()
    assert trainer.step == 20
    steps = records(tmp_path / "run", "progress")
    assert all(record["device_peak_bytes"] for record in steps)
    assert steps[-1]["device_peak_bytes"] < 1.05 * steps[2]["device_peak_bytes"]
    metrics = [record["values"] for record in records(tmp_path / "run", "metrics") if record["source"] is None]
    assert all(values["grad_norm"] is not None and values["skipped_updates"] == 0 for values in metrics)
