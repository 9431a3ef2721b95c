"""What the engines promise, on one GPU, with models of 0.1 billion weights; docs/gpu.md reports what was run here.

With `-s` it prints its figures as they come (tests/gpu/record.sh).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.models import Size, make_model
from tests.support.workers.tiny import WITHOUT_VLLM, make_spec, records, train
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.rollouts.engine import logp_difference, make_engine
from workers.rollouts.sampler import SampleRequest

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason=WITHOUT_VLLM)
pytestmark = [pytest.mark.gpu, pytest.mark.full, pytest.mark.timeout(240)]
ENGINES = ["transformers", pytest.param("vllm", marks=needs_vllm)]
MIB = 2**20
SIZE = Size(16_384, 1024, 3072, 8, 16, 8, 64, prompts=8, tokens=64)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Two agents with random weights of one shape."""
    folders = [tmp_path_factory.mktemp("models") / str(seed) for seed in range(2)]
    for seed, folder in enumerate(folders):
        make_model(folder, SIZE, seed, torch.bfloat16)
    return [{"name": folder.name, "model": str(folder)} for folder in folders]


def spec_of(root: Path, pair: list[dict[str, Any]], engine: str, **training: Any) -> RunSpec:
    return make_spec(
        root,
        pair,
        rollout={"engine": engine, "num_generations": 8, "max_completion_length": 64, "gpu_memory_utilization": 0.2},
        training={"learning_rate": 1e-6, **training},
        compute={"device": "cuda", "dtype": "bfloat16", "num_threads": 0},
        evaluation={"eval_interval": 0},
    )


def tell(text: str) -> None:
    print(f"measured: {text}", flush=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_ratio_is_one_before_the_first_update_and_the_engine_agrees(tmp_path: Path, pair: Any, engine: str) -> None:
    begun = time.monotonic()
    train(spec_of(tmp_path, pair, engine, steps=6), tmp_path / "run").close()
    rows = [row for row in records(tmp_path / "run", "contribution") if row["agent"] == row["source"]]
    first = [row["sequence_ratio"] for row in rows if row["mini_batch"] == 0 and row["sequence_ratio"] is not None]
    metrics = [record["values"] for record in records(tmp_path / "run", "metrics") if record["source"] is None]
    sampling = max(values["sampling_logp_difference/mean"] for values in metrics)
    checked = max(values.get("engine_logp_difference", 0.0) for values in metrics)
    steps = records(tmp_path / "run", "progress")
    tell(
        f"{engine}: 6 steps of a pair in {time.monotonic() - begun:.1f} s, the last by phase {steps[-1]['phase_s']}; "
        f"ratio 1 within {max((abs(ratio - 1) for ratio in first), default=-1):.1e} of {len(first)} rows; log p of "
        f"sampling and scoring differ by {sampling:.4f}, of engine and trainer by {checked:.4f}"
    )
    assert first
    assert max(abs(ratio - 1) for ratio in first) < 1e-6
    assert sampling < 0.05
    assert checked < 0.1
    assert all(values["grad_norm"] is not None and values["skipped_updates"] == 0 for values in metrics)
    assert steps[-1]["device_peak_bytes"] < 1.05 * steps[2]["device_peak_bytes"]


@torch.no_grad()
def change_weights(policy: Policy, sign: int) -> None:
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.add_(1e-3 * sign * torch.randn_like(parameter))


@needs_vllm
def test_log_probabilities_of_samples_and_weights_by_folder(tmp_path: Path, pair: Any) -> None:
    spec = spec_of(tmp_path, [pair[0]], "vllm")
    policy = Policy(spec.agents[0], spec, torch.device("cuda"))
    engine: Any = make_engine(policy, spec, torch.device("cuda"))
    prompt = policy.encode_prompt("1 2 3")
    request = SampleRequest([prompt], [0] * 64, list(range(64)), 0.7, 64, 64)
    found = {}
    for way in ("tensors", "a folder"):
        assert engine._sends_tensors or way == "a folder", "the names in a checkpoint should be the model's"
        samples = engine.sample(request)
        with torch.no_grad():
            logps, _ = policy.token_logps([prompt] * 64, [one.token_ids for one in samples], temperature=0.7)  # (64, T)
        apart = (logps.cpu() - torch.tensor([one.logps for one in samples])).abs()
        found[way] = apart.mean().item()
        tell(f"weights by {way}: log p of 64 rows differs by {found[way]:.4f}, at most {apart.max().item():.3f}")
        engine._sends_tensors = False  # as if the names differed
        change_weights(policy, 1)
        engine.take_weights()
    engine.close()
    assert max(found.values()) < 0.05


@pytest.fixture(params=[(0, "all weights"), (8, "LoRA")], ids=lambda param: param[1])
def engine_and_policy(request: pytest.FixtureRequest, tmp_path: Path, pair: Any) -> Iterator[tuple[Any, Policy]]:
    rank, name = request.param
    spec = spec_of(tmp_path, [{**pair[0], "lora_rank": rank}], "vllm")
    policy, begun = Policy(spec.agents[0], spec, torch.device("cuda")), time.monotonic()
    engine = make_engine(policy, spec, torch.device("cuda"))
    tell(f"{name}: a vLLM engine starts in {time.monotonic() - begun:.1f} s")
    yield engine, policy
    engine.close()


@needs_vllm
def test_twenty_cycles_of_sleep_and_waking_leave_no_memory_behind(engine_and_policy: tuple[Any, Policy]) -> None:
    engine, policy = engine_and_policy
    prompt = policy.encode_prompt("1 2 3")
    free, differences, seconds = [], [], []
    for cycle in range(20):
        change_weights(policy, (-1) ** cycle)
        begun = time.monotonic()
        engine.take_weights()
        # It wakes, takes the weights, samples and sleeps.
        differences.append(logp_difference(engine, policy, prompt, 32).mean)
        seconds.append(time.monotonic() - begun)
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
    tell(
        f"20 cycles: {seconds[0]:.2f} s, then {min(seconds[1:]):.2f} to {max(seconds[1:]):.2f} s; log p differs by "
        f"{min(differences):.4f} to {max(differences):.4f}; MiB free {[round(value / MIB) for value in free[::5]]}"
    )
    assert max(differences) < 0.1
    assert min(free[2:]) > free[1] - 64 * MIB, [round(value / MIB) for value in free]
