"""The memory that a run needs; plan.py compares it with a machine.

From the settings and the models' shapes, before anything is loaded. The parts that one process of an agent holds have a
moment: always, while it generates, in an update's passes, in the optimizer's step, while it loads, or while it saves a
checkpoint. Agents of `placement: local` take turns: what they always hold adds up, what they hold at a moment does
not. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Literal, NamedTuple

from workers.contract.memory.machine import FrozenModel, Machine, resolved_settings, with_settings
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.compute import ComputeSpec
from workers.contract.spec.rollout import vllm_lora_rank
from workers.contract.spec.run import RunSpec

VLLM_CPU_CACHE_BYTES = 2**30  # of vllm_engine.py
VLLM_PROCESS_BYTES = 740 * 2**20  # of an engine in the machine's memory, without weights and cache, measured
# A piece of a tokenizer's vocabulary. Measured: 470 (whole words), 820 (Qwen3), 1,120 (SmolLM2), 1,850 (Llama 3.1).
PIECE_BYTES = 700
# Of model/chunked_logprobs.py: one chunk of logits in float32, and the number of logits from which it computes by
# chunks. A GPU takes larger ones: with each it adds to the gradient of all of the output's weights.
CHUNK_BYTES, GPU_CHUNK_BYTES, MIN_LOGITS = 2**26, 2**28, 2**24
KV_ROOM = 64  # tokens by which a KV cache grows (rollouts/sampler.py), or of which a fixed one is a multiple
KEPT_SHARE = 8  # memory of sampling stays on a GPU while the agent learns if it is at most this part, 1 / 8
CUDA_CONTEXT_BYTES = 600 * 2**20  # of one process on a GPU, with the libraries' workspaces
BFLOAT16_CPU_BYTES = 120 * 2**20  # of one process on a CPU: oneDNN's compiled products and their room, measured
PROCESS_BYTES = 450 * 2**20  # Python, torch and its libraries, before a model is loaded

Moment = Literal["always", "generate", "update", "step", "load", "save"]
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocabulary": ("vocab_size",),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
}


class Shape(FrozenModel):
    """The sizes of a decoder-only language model. query, key: width of all query heads, and of all key heads."""

    parameters: int
    vocabulary: int
    hidden: int
    layers: int
    feed_forward: int
    query: int
    key: int

    def lora_parameters(self, rank: int) -> int:
        """Weights of LoRA matrices of that rank, beside every linear layer but the output's (lora.py)."""
        ends = 2 * (self.hidden + self.query) + 2 * (self.hidden + self.key) + 3 * (self.hidden + self.feed_forward)
        return rank * ends * self.layers

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.feed_forward)


def shape_of(config: Mapping[str, Any], parameters: int | None) -> Shape | None:
    """The shape in config.json, or in the sizes of a registered model; None if one of them is missing."""
    config = config.get("text_config") or config
    fields: dict[str, Any] = {
        key: next((config[n] for n in names if config.get(n)), None) for key, names in _NAMES.items()
    }
    hidden, heads = fields["hidden"], fields.pop("heads")
    fields["feed_forward"] = fields["feed_forward"] or (4 * hidden if hidden else None)
    if not parameters or not heads or None in fields.values():
        return None
    head = config.get("head_dim") or hidden // heads
    keys = config.get("num_key_value_heads") or heads
    return Shape(parameters=parameters, query=heads * head, key=keys * head, **fields)


class Part(NamedTuple):
    """Something that one process of an agent holds: on its device, or (is_host) in the machine's memory."""

    name: str
    size: int
    moment: Moment = "always"
    is_host: bool = False


def gpu_of(compute: ComputeSpec, agent_index: int, rank: int, gpus: int) -> int:
    """The GPU of one process of an agent, out of `gpus` visible ones."""
    first = agent_index * compute.processes_per_agent if compute.agent_devices == "own" else 0
    return (first + rank) % gpus  # some GPUs are shared if there are fewer GPUs than processes


def parts_of(spec: RunSpec, agent: AgentSpec, shape: Shape, *, on_gpu: bool, gpu_bytes: int = 0) -> list[Part]:
    """What one process of an agent holds, and when. gpu_bytes: memory of its GPU, of which vLLM takes a share."""
    compute = spec.compute
    width = 2 if compute.dtype == "bfloat16" or (compute.dtype == "auto" and on_gpu) else 4
    shards = compute.processes_per_agent if compute.sharding == "fsdp2" else 1
    is_sharded = shards > 1
    weights = shape.parameters * (4 if is_sharded else width) // shards
    parts = [
        Part("weights", weights),
        Part("tokenizer", PIECE_BYTES * shape.vocabulary, is_host=True),
    ]
    if spec.rollout.engine != "vllm":
        own = _rollout_parts(spec, shape, width, is_sharded)
        if on_gpu and keeps_decoder(spec, shape, width, gpu_bytes):
            own = [part._replace(moment="always") for part in own]
        parts += own
    else:
        parts += _vllm_parts(spec, agent, shape, width, gpu_bytes if on_gpu else None)
    if on_gpu or is_sharded:  # models are loaded into the machine's memory first, and sharded there
        parts.append(Part("loading", shape.parameters * (4 if is_sharded else width), "load", is_host=True))
    if spec.is_evaluation_only:
        return parts
    rank = agent.lora_rank
    trained = (shape.lora_parameters(rank) if rank else shape.parameters) // shards
    if spec.rollout.samples_ahead:  # a second process samples while the agent learns (agents/ahead.py)
        parts.append(Part("weights of the sampler", weights + (trained * 4 if rank else 0)))
        parts.append(Part("weights on their way", trained * (4 if rank else width), is_host=True))
        parts += [
            part._replace(name=f"{part.name} ahead", moment="always")
            for part in _rollout_parts(spec, shape, width, is_sharded)
        ]
    if rank:
        parts.append(Part("LoRA matrices", trained * 4))
        parts.append(Part("merged weights", shape.parameters * width, "save", is_host=True))
    elif spec.algorithm.beta > 0:
        parts.append(Part("reference", weights))
    has_copies = not is_sharded and (compute.offloads_optimizer or (width < 4 and not rank))
    offloads = compute.offloads_optimizer and on_gpu
    if has_copies:
        parts.append(Part("float32 weights", trained * 4, is_host=offloads))
        parts.append(Part("gradients in the number type", trained * width, "update"))
    gradients = trained * 4
    # With a single micro-batch, gradients grow as its activations are freed.
    if _tokens(spec) < _rows(spec) * _longest(spec):
        parts.append(Part("gradients", gradients, "update", is_host=offloads))
    sharing = spec.sharing
    if sharing and len(spec.agents) > 1 and (spec.telemetry.alignment_interval or sharing.peer_quarantine):
        parts.append(Part("gradients to compare", gradients, "update", is_host=offloads))
    parts += [
        Part("gradients", gradients, "step", is_host=offloads),
        Part("AdamW", trained * 8, is_host=offloads),  # two float32 moments, arXiv 1711.05101
        Part("snapshot", trained * 12, is_host=on_gpu),  # weights and moments (model/optimizer.py)
    ]
    return parts + _update_parts(spec, shape, width, is_sharded, rank, GPU_CHUNK_BYTES if on_gpu else CHUNK_BYTES)


def _rows(spec: RunSpec) -> int:
    """The most rows of a mini-batch that one process of an agent trains on."""
    return ceil(spec.mini_batch_prompts * spec.num_generations / spec.compute.processes_per_agent)


def _longest(spec: RunSpec) -> int:
    """Tokens of the longest prompt with the longest response."""
    return spec.rollout.max_prompt_length + spec.rollout.max_completion_length


def _tokens(spec: RunSpec) -> int:
    """Most tokens of a micro-batch."""
    tokens = min(spec.training.micro_batch_size, _rows(spec)) * _longest(spec)
    budget = spec.training.tokens_per_micro_batch
    return max(_longest(spec), min(tokens, budget)) if budget else tokens


def _update_parts(spec: RunSpec, shape: Shape, width: int, is_sharded: bool, rank: int, chunk_bytes: int) -> list[Part]:
    """One micro-batch: what autograd keeps of its forward pass, and the logits.

    In a layer of n tokens autograd keeps 4 feed-forward tensors (gate, its SiLU, up, their product), 6 of the hidden
    size (two norms, their inputs and outputs), 4 of the queries and 4 of the keys' and values' size (projection, norm,
    rotation, attention's own), counted with saved_tensors_hooks; norms keep float32. The logits, their log-softmax
    and the gradients of both are in float32 (cross_entropy); `_logits_bytes` says where they are fewer.
    """
    tokens = _tokens(spec)
    responses = tokens * (spec.rollout.max_completion_length + 1) // _longest(spec)
    working_bytes = width * (4 * shape.feed_forward + 6 * shape.hidden + 4 * shape.query + 4 * shape.key)
    working_bytes += (4 - width) * (2 * shape.hidden + shape.query + shape.key)
    layer = tokens * working_bytes
    activations = shape.layers * layer
    if spec.compute.gradient_checkpointing:
        activations = layer + shape.layers * tokens * shape.hidden * width  # arXiv 1604.06174: inputs, and one layer
    parts = [
        Part("activations", activations, "update"),
        Part("logits", _logits_bytes(responses, shape, width, rank, chunk_bytes), "update"),
    ]
    if is_sharded:  # two layers gathered, one float32 gradient of a layer, and the output's weights
        trained = shape.lora_parameters(rank) // shape.layers if rank else shape.layer_parameters
        gathered = 2 * width * shape.layer_parameters + 4 * trained
        parts.append(Part("gathered layers", gathered + width * shape.vocabulary * shape.hidden, "update"))
    return parts


def _logits_bytes(tokens: int, shape: Shape, width: int, rank: int, chunk_bytes: int) -> int:
    """The logits of a micro-batch and what is computed from them.

    Many of them are computed by chunks (model/chunked_logprobs.py): room for one, a copy in the number type,
    without LoRA the float32 gradient of the output's weights, and the hidden states with their gradient.
    """
    logits = tokens * shape.vocabulary
    if logits <= MIN_LOGITS:
        return logits * (12 if width == 4 else 14)
    chunk = min(4 * logits, max(chunk_bytes, 4 * shape.vocabulary))
    return (
        chunk
        + (chunk // 2 if width < 4 else 0)
        + (0 if rank else 4 * shape.vocabulary * shape.hidden)
        + 2 * tokens * shape.hidden * width
    )


def keeps_decoder(spec: RunSpec, shape: Shape, width: int, gpu_bytes: int) -> bool:
    """Whether the tensors and CUDA graphs that sample stay on a GPU while the agent learns (rollouts/engine.py).

    Else they are made for each step, which takes about a second. width: bytes of a weight.
    """
    needed = sum(part.size for part in _rollout_parts(spec, shape, width, is_sharded=False))
    return not spec.compute.offloads_idle and needed * KEPT_SHARE <= gpu_bytes


def _rollout_parts(spec: RunSpec, shape: Shape, width: int, is_sharded: bool) -> list[Part]:
    """One batch of rollouts.

    Choosing a token takes 28 bytes a logit: logits, log-probabilities and probabilities in float32, probabilities and
    their sums in float64 (rollouts/token_sampling.py); with top_p 28 more: ranks, their places, and sums in float64.
    """
    rollout = spec.rollout
    has_top_p = any(spec.rollout_of(agent).top_p < 1 for agent in spec.agents)
    num_rollouts = spec.training.train_batch_size * spec.num_generations
    rows = min(rollout.rollout_batch_size, -(-num_rollouts // spec.compute.processes_per_agent))
    length = rollout.max_prompt_length + rollout.max_completion_length + KV_ROOM
    cache = rows * length * 2 * shape.key * width * shape.layers
    cache += cache // shape.layers  # one layer's old cache beside its larger new one
    parts = [
        Part("KV cache", cache, "generate"),
        Part(
            "logits of rollouts",
            rows * shape.vocabulary * (56 if has_top_p else 28),
            moment="generate",
        ),
    ]
    if is_sharded:
        parts.append(Part("all weights", shape.parameters * width, "generate"))
    return parts


def _vllm_parts(spec: RunSpec, agent: AgentSpec, shape: Shape, width: int, gpu_bytes: int | None) -> list[Part]:
    """One engine; gpu_bytes: None on a CPU.

    With LoRA it holds the starting model, on a GPU also while it sleeps: in the machine's memory.
    Engines of an agent of several processes read its weights from files in memory (vllm_engine.py).
    """
    uses_lora = agent.lora_rank > 0 and not spec.is_evaluation_only
    adapter = shape.lora_parameters(vllm_lora_rank(agent.lora_rank)) if uses_lora else 0
    weights, processes = (shape.parameters + adapter) * width, spec.compute.processes_per_agent
    parts = []
    if gpu_bytes is not None:  # asleep while the agent trains
        parts.append(Part("vLLM", int(spec.rollout.gpu_memory_utilization * gpu_bytes), "generate"))
        parts.append(Part("vLLM's process", VLLM_PROCESS_BYTES, is_host=True))
        parts += [Part("vLLM asleep", weights, is_host=True)] if uses_lora else []
    else:
        parts.append(Part("vLLM", weights + VLLM_CPU_CACHE_BYTES + VLLM_PROCESS_BYTES))
    if processes > 1 and not uses_lora:
        parts.append(Part("weights for vLLM", ceil(weights / processes), is_host=True))
    return parts


class MemoryEstimate(FrozenModel):
    """Peaks of a run. gpu: of the fullest GPU, 0 without one.  memory: of the machine's own memory."""

    gpu: int
    memory: int


def estimate_memory(spec: RunSpec, shapes: Sequence[Shape], machine: Machine) -> MemoryEstimate:
    """The memory of a run on that machine. shapes: of its models, in the order of its agents."""
    spec = with_settings(spec, resolved_settings(spec, [shape.parameters for shape in shapes], machine))
    compute, gpus, size = spec.compute, len(machine.gpus), spec.compute.processes_per_agent
    gpu_bytes = min(machine.gpus, default=0)
    every = [
        parts_of(spec, agent, shape, on_gpu=gpus > 0, gpu_bytes=gpu_bytes)
        for agent, shape in zip(spec.agents, shapes, strict=True)
    ]
    is_parallel = compute.is_parallel
    has_own_processes = size > 1 or compute.placement == "processes"
    samplers = spec.rollout.samples_ahead and not spec.is_evaluation_only  # 1: beside each agent
    num_of_agents = (len(every) * size if has_own_processes else 0) + samplers * len(every)
    processes = PROCESS_BYTES * (1 + num_of_agents)
    if not gpus and compute.dtype == "bfloat16":
        processes += BFLOAT16_CPU_BYTES * (num_of_agents if has_own_processes else 1 + num_of_agents)
    if not gpus:
        return MemoryEstimate(gpu=0, memory=_peak([_all(parts, size) for parts in every], is_parallel) + processes)
    held: dict[int, list[list[Part]]] = {}
    for index, parts in enumerate(every):
        for rank in range(size):
            held.setdefault(gpu_of(compute, index, rank, gpus), []).append([p for p in parts if not p.is_host])
    contexts = {
        gpu: CUDA_CONTEXT_BYTES * ((len(each) if has_own_processes else 1) + samplers * len(each))
        for gpu, each in held.items()
    }
    on_host = [_all([part for part in parts if part.is_host], size) for parts in every]
    resting = sum(part.size for each in held.values() for parts in each for part in parts if part.moment == "always")
    rests = compute.offloads_idle
    return MemoryEstimate(
        gpu=max(_peak(each, is_parallel, rests=rests) + contexts[gpu] for gpu, each in held.items()),
        memory=_peak(on_host, is_parallel) + processes + (resting if rests else 0),
    )


def _all(parts: Sequence[Part], processes: int) -> list[Part]:
    """What all processes of an agent hold together."""
    return [part._replace(size=part.size * processes) for part in parts]


def _peak(held: Sequence[Sequence[Part]], is_parallel: bool, *, rests: bool = False) -> int:
    """The most that agents hold together in one place. rests: agents hold nothing there between their turns."""
    always, moments = [], []
    for parts in held:
        sums: dict[str, int] = {}
        for part in parts:
            sums[part.moment] = sums.get(part.moment, 0) + part.size
        always.append(sums.pop("always", 0))
        moments.append(max(sums.values(), default=0))
    if is_parallel:
        return sum(always) + sum(moments)
    if rests:
        return max(a + m for a, m in zip(always, moments, strict=True))
    return sum(always) + max(moments, default=0)
