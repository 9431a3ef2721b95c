"""The memory estimate, its numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from workers.contract.memory.footprint import Shape, estimate_memory, parts_of, shape_of
from workers.contract.memory.machine import Machine
from workers.contract.spec.run import RunSpec

GIB = 2**30
SHAPE = Shape(parameters=1000, vocabulary=100, hidden=8, layers=3, feed_forward=16, query=8, key=4)
QWEN = Shape(
    parameters=1_720_000_000, vocabulary=151_936, hidden=2048, layers=28, feed_forward=6144, query=2048, key=1024
)


def spec_of(agents: int = 1, **sections: Any) -> RunSpec:
    names = [{"name": f"agent {index}", "model": "model"} for index in range(agents)]
    return RunSpec.model_validate({"agents": names, "data": {"train_path": "questions.jsonl"}, **sections})


SMALL = {
    "algorithm": {"beta": 0.01},
    "rollout": {"num_generations": 2, "max_prompt_length": 6, "max_completion_length": 10},
    "training": {"train_batch_size": 4, "mini_batch_size": 4, "micro_batch_size": 2},
}


def sizes(spec: RunSpec, *, on_gpu: bool = False) -> dict[tuple[str, str], int]:
    return {(part.name, part.moment): part.size for part in parts_of(spec, spec.agents[0], SHAPE, on_gpu=on_gpu)}


def test_parts_of_a_float32_agent_by_hand():
    found = sizes(spec_of(**SMALL))
    assert found["weights", "always"] == found["reference", "always"] == 4000
    assert found["AdamW", "always"] == 8000
    assert found["snapshot", "always"] == 12_000
    assert found["gradients", "update"] == found["gradients", "step"] == 4000
    # 2 rows x 16 tokens x 3 layers x 4 bytes x (4 x 16 + 6 x 8 + 4 x 8 + 4 x 4)
    assert found["activations", "update"] == 2 * 16 * 3 * 4 * 160
    assert found["logits", "update"] == 2 * 11 * 100 * 12
    # 8 rows x (16 + 64 tokens of room) x keys and values of 4 x 4 bytes x (3 layers + 1 that grows)
    assert found["KV cache", "generate"] == 8 * 80 * 2 * 4 * 4 * 4
    assert ("float32 weights", "always") not in found


def test_memory_of_sampling_stays_on_a_gpu_while_the_agent_learns_if_it_is_an_eighth_of_it():
    spec = spec_of(**SMALL)
    needed = 8 * 80 * 2 * 4 * 2 * 4 + 8 * 100 * 28  # of the cache in bfloat16, and of logits

    def moment(spec: RunSpec, gpu_bytes: int) -> set[str]:
        parts = parts_of(spec, spec.agents[0], SHAPE, on_gpu=True, gpu_bytes=gpu_bytes)
        return {part.moment for part in parts if part.name in ("KV cache", "logits of rollouts")}

    assert moment(spec, 8 * needed) == {"always"}
    assert moment(spec, 8 * needed - 1) == {"generate"}
    assert moment(spec_of(**SMALL, compute={"offload": "idle"}), 8 * needed) == {"generate"}


def test_many_logits_are_one_chunk_and_with_lora_no_gradient_of_the_output():
    spec = spec_of(**SMALL | {"rollout": {"max_prompt_length": 96, "max_completion_length": 4000}})
    agents = spec.agents[0], spec.agents[0].model_copy(update={"lora_rank": 16})

    def logits(*, on_gpu: bool) -> list[int]:
        return [
            {part.name: part.size for part in parts_of(spec, agent, QWEN, on_gpu=on_gpu)}["logits"] for agent in agents
        ]

    whole, by_lora = logits(on_gpu=True)
    # A chunk of 256 MiB, its copy in bfloat16, and hidden states with their gradient of 2 rows x 4,001 tokens.
    assert by_lora == 2**28 + 2**27 + 2 * 8002 * 2048 * 2
    assert whole - by_lora == 4 * 151_936 * 2048
    _, by_lora = logits(on_gpu=False)  # one of 64 MiB in float32
    assert by_lora == 2**26 + 2 * 8002 * 2048 * 4


def test_sampler_ahead_has_weights_and_cache_while_the_agent_learns():
    one_off = {**SMALL, "rollout": {**SMALL["rollout"], "max_staleness": 1}}
    found, plain = sizes(spec_of(**one_off)), sizes(spec_of(**SMALL))
    assert {key: size for key, size in found.items() if key not in plain} == {
        ("weights of the sampler", "always"): 4000,
        ("weights on their way", "always"): 4000,
        ("KV cache ahead", "always"): 8 * 80 * 2 * 4 * 4 * 4,
        ("logits of rollouts ahead", "always"): 8 * 100 * 28,
    }
    agent = spec_of(**one_off).agents[0].model_copy(update={"lora_rank": 2})
    by_lora = {part.name: part.size for part in parts_of(spec_of(**one_off), agent, SHAPE, on_gpu=False)}
    assert by_lora["weights on their way"] == 4 * 2 * (32 + 24 + 72) * 3  # the matrices alone
    peaks = [estimate_memory(spec_of(**each), [SHAPE], Machine(memory=GIB)).memory for each in (one_off, SMALL)]
    assert peaks[0] - peaks[1] == 450 * 2**20 + sum(size for key, size in found.items() if key not in plain)


def test_recomputed_layers_keep_their_inputs_and_one_layer():
    found = sizes(spec_of(**SMALL, compute={"gradient_checkpointing": True}))
    assert found["activations", "update"] == 2 * 16 * 4 * 160 + 3 * 2 * 16 * 8 * 4


def test_bfloat16_needs_masters_which_offload_moves():
    found = sizes(spec_of(**SMALL), on_gpu=True)
    assert found["weights", "always"] == 2000
    assert found["float32 weights", "always"] == 4000
    spec = spec_of(**SMALL, compute={"offload": "optimizer"})
    moved = {part.name for part in parts_of(spec, spec.agents[0], SHAPE, on_gpu=True) if part.is_host}
    assert moved == {"loading", "tokenizer", "float32 weights", "gradients", "AdamW", "snapshot"}


def test_lora_trains_its_matrices_only():
    spec = spec_of(**SMALL)
    agent = spec.agents[0].model_copy(update={"lora_rank": 2})
    found = {part.name: part.size for part in parts_of(spec, agent, SHAPE, on_gpu=False)}
    # Rank 2 beside q, o (16 each), k, v (12 each), gate, up, down (24 each), in 3 layers.
    assert found["LoRA matrices"] == 4 * 2 * (32 + 24 + 72) * 3
    assert "reference" not in found
    saved = [part for part in parts_of(spec, agent, SHAPE, on_gpu=True) if part.moment == "save"]
    assert [(part.size, part.is_host) for part in saved] == [(2 * 1000, True)]  # the merged weights of a checkpoint


def test_tokenizer_is_held_in_the_machines_memory():
    [part] = [part for part in parts_of(spec_of(), spec_of().agents[0], SHAPE, on_gpu=True) if part.name == "tokenizer"]
    assert (part.size, part.is_host, part.moment) == (700 * 100, True, "always")


def test_shards_split_all_but_what_is_gathered():
    compute = {"processes_per_agent": 4, "sharding": "fsdp2"}
    found = sizes(spec_of(**SMALL, compute=compute), on_gpu=True)
    assert found["weights", "always"] == 1000
    assert found["AdamW", "always"] == 2000
    assert found["all weights", "generate"] == 2000
    assert found["loading", "load"] == 4000
    spec = spec_of(**SMALL, compute=compute)
    agent = spec.agents[0].model_copy(update={"lora_rank": 2})
    by_lora = {part.name: part.size for part in parts_of(spec, agent, SHAPE, on_gpu=True)}
    assert by_lora["LoRA matrices"] == 4 * (2 * (32 + 24 + 72) * 3 // 4)
    # Of the one layer whose gradients are whole, only those of its matrices: 2 * 128 weights.
    assert found["gathered layers", "update"] - by_lora["gathered layers"] == 4 * (SHAPE.layer_parameters - 256)


def test_vllm_holds_a_starting_model_with_lora_and_keeps_it_while_it_sleeps():
    def vllm_parts(*, on_gpu: bool, rank: int = 0, **compute: Any) -> dict[tuple[str, str, bool], int]:
        spec = spec_of(**SMALL | {"rollout": {**SMALL["rollout"], "engine": "vllm"}}, compute=compute)
        agent = spec.agents[0].model_copy(update={"lora_rank": rank})
        parts = parts_of(spec, agent, SHAPE, on_gpu=on_gpu, gpu_bytes=10_000)
        return {(part.name, part.moment, part.is_host): part.size for part in parts if "vLLM" in part.name}

    lora, process = 8 * (32 + 24 + 72) * 3, 740 * 2**20  # rank 2 takes the room of rank 8
    on_gpu = {("vLLM", "generate", False): 3000, ("vLLM's process", "always", True): process}
    assert vllm_parts(on_gpu=True) == on_gpu
    asleep = {("vLLM asleep", "always", True): 2 * (1000 + lora)}
    assert vllm_parts(on_gpu=True, rank=2) == on_gpu | asleep
    assert vllm_parts(on_gpu=False) == {("vLLM", "always", False): 4 * 1000 + GIB + process}
    assert vllm_parts(on_gpu=False, rank=2) == {("vLLM", "always", False): 4 * (1000 + lora) + GIB + process}
    # Files from which the engines of both processes read: half of them each.
    two = vllm_parts(on_gpu=True, processes_per_agent=2)
    assert two == on_gpu | {("weights for vLLM", "always", True): 1000}


def test_agents_that_take_turns_add_what_they_keep_but_not_their_turns():
    machine = Machine(gpus=(80 * GIB,), memory=500 * GIB)
    small = {"training": {"micro_batch_size": 1}, "rollout": {"rollout_batch_size": 1}}
    one, two = (estimate_memory(spec_of(n, **small), [QWEN] * n, machine).gpu for n in (1, 2))

    def kept(**compute: Any) -> int:
        spec = spec_of(**small, compute=compute)
        parts = parts_of(spec, spec.agents[0], QWEN, on_gpu=True, gpu_bytes=80 * GIB)
        return sum(part.size for part in parts if part.moment == "always" and not part.is_host)

    always = kept()
    # The second agent also makes both compare gradients.
    assert two - one == always + 4 * QWEN.parameters
    idle = estimate_memory(spec_of(2, **small, compute={"offload": "idle"}), [QWEN] * 2, machine).gpu
    # What samples is kept by agents that stay alone.
    assert idle == two - always - (always - kept(offload="idle"))


def test_quarantine_compares_gradients_also_where_no_alignment_is_told():
    found = []
    for peer_quarantine in (False, True):
        algorithm, telemetry = {"peer_quarantine": peer_quarantine}, {"alignment_interval": 0}
        run = spec_of(2, algorithm=algorithm, telemetry=telemetry)
        parts = parts_of(run, run.agents[0], QWEN, on_gpu=True)
        found.append(sum(part.size for part in parts if part.name == "gradients to compare"))
    assert found == [0, 4 * QWEN.parameters]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 100}, (32, 8, 8)),
        (
            {
                "hidden_size": 8,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 16,
                "intermediate_size": 20,
                "vocab_size": 100,
            },
            (20, 32, 16),
        ),
        ({"text_config": {"n_embd": 8, "n_layer": 3, "n_head": 2, "vocab_size": 100}}, (32, 8, 8)),
    ],
)
def test_shape_is_read_from_a_configuration(config, expected):
    shape = shape_of(config, 1000)
    assert shape is not None
    assert (shape.feed_forward, shape.query, shape.key) == expected
    assert shape_of({**config, "vocab_size": None, "text_config": None}, 1000) is None or "text_config" not in config
