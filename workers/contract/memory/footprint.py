"""Part of the contract: the memory that a run needs, from its spec and its models' shapes, before anything is loaded.

What one process of an agent holds, part by part, and at which moment: always, while it generates, in an update's
passes, in the optimizer's step, while it loads. workers/contract/memory/plan.py adds it up. Bytes. No torch, no Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec
from workers.contract.spec.sections import ComputeSpec

VLLM_CPU_CACHE_BYTES = 2**30  # vllm_engine.py asks for so much
KV_ROOM = 64  # tokens that a KV cache grows by (rollouts/sampler.py)

Moment = Literal["always", "generate", "update", "step", "load"]
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocabulary": ("vocab_size",),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
}


class Shape(BaseModel):
    """The sizes of a decoder-only language model. query, key: width of all query heads, and of all key heads."""

    model_config = ConfigDict(frozen=True)
    parameters: int
    vocabulary: int
    hidden: int
    layers: int
    feed_forward: int
    query: int
    key: int

    def lora_parameters(self, rank: int) -> int:
        """Weights of matrices of that rank beside every linear layer but the output's (lora.py)."""
        ends = 2 * (self.hidden + self.query) + 2 * (self.hidden + self.key) + 3 * (self.hidden + self.feed_forward)
        return rank * ends * self.layers

    @property
    def layer_parameters(self) -> int:
        """Weights of one decoder layer."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.feed_forward)


def shape_of(config: Mapping[str, Any], parameters: int | None) -> Shape | None:
    """The shape that config.json, or the sizes kept of a registered model, tell; None where that is too little."""
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


class Part(BaseModel):
    """One thing that one process of an agent holds: on its device, or (is_host) in the machine's memory."""

    model_config = ConfigDict(frozen=True)
    name: str
    size: int
    moment: Moment = "always"
    is_host: bool = False


def gpu_of(compute: ComputeSpec, agent_index: int, rank: int, gpus: int) -> int:
    """The GPU of one process of an agent, of `gpus` that are visible."""
    first = agent_index * compute.processes_per_agent if compute.agent_devices == "own" else 0
    return (first + rank) % gpus  # where agents outnumber GPUs, some share one


def parts_of(spec: RunSpec, agent: AgentSpec, shape: Shape, *, on_gpu: bool, gpu_bytes: int = 0) -> list[Part]:
    """What one process of an agent holds, and when. gpu_bytes: of its GPU, of which vLLM takes a share."""
    compute = spec.compute
    width = number_bytes(compute, on_gpu=on_gpu)
    shards = compute.processes_per_agent if compute.sharding == "fsdp2" else 1
    is_sharded = shards > 1
    weights = shape.parameters * (4 if is_sharded else width) // shards
    parts = [Part(name="weights", size=weights)]
    if spec.rollout.engine == "transformers":
        parts += _rollout_parts(spec, shape, width, is_sharded)
    elif on_gpu:  # asleep while the agent trains
        parts.append(Part(name="vLLM", size=int(spec.rollout.gpu_memory_utilization * gpu_bytes), moment="generate"))
    else:
        parts.append(Part(name="vLLM", size=shape.parameters * width + VLLM_CPU_CACHE_BYTES))
    if on_gpu or is_sharded:  # a model is read into the machine's memory first; shards are cut from all of it there
        parts.append(
            Part(name="loading", size=shape.parameters * (4 if is_sharded else width), moment="load", is_host=True)
        )
    if spec.is_evaluation_only:
        return parts
    rank = agent.lora_rank
    trained = (shape.lora_parameters(rank) if rank else shape.parameters) // shards
    if rank:
        parts.append(Part(name="LoRA matrices", size=trained * 4))
    elif spec.algorithm.beta > 0:
        parts.append(Part(name="reference", size=weights))
    has_copies = not is_sharded and (compute.offloads_optimizer or (width < 4 and not rank))
    offloads = compute.offloads_optimizer and on_gpu
    if has_copies:
        parts.append(Part(name="float32 weights", size=trained * 4, is_host=offloads))
        parts.append(Part(name="gradients in the number type", size=trained * width, moment="update"))
    gradients = trained * 4
    # Of a single micro-batch they come to be while its activations go.
    if _batch(spec) < _rows(spec):
        parts.append(Part(name="gradients", size=gradients, moment="update", is_host=offloads))
    compares = spec.telemetry.alignment_interval or spec.algorithm.peer_quarantine
    if spec.algorithm.shares_rollouts and compares and len(spec.agents) > 1:
        parts.append(Part(name="gradients to compare", size=gradients, moment="update", is_host=offloads))
    parts += [
        Part(name="gradients", size=gradients, moment="step", is_host=offloads),
        Part(name="AdamW", size=trained * 8, is_host=offloads),  # two float32 moments, arXiv 1711.05101
        Part(name="snapshot", size=trained * 12, is_host=on_gpu),  # weights and moments to roll back to, snapshot.py
    ]
    return parts + _update_parts(spec, shape, width, is_sharded)


def number_bytes(compute: ComputeSpec, *, on_gpu: bool) -> int:
    """Bytes of a weight in the run's number type."""
    is_short = compute.dtype == "bfloat16" or (compute.dtype == "auto" and on_gpu)
    return 2 if is_short else 4


def _rows(spec: RunSpec) -> int:
    """Rows of a mini-batch that one process of an agent trains on."""
    return -(-spec.mini_batch_prompts * spec.num_generations // spec.compute.processes_per_agent)


def _batch(spec: RunSpec) -> int:
    return min(spec.training.micro_batch_size, _rows(spec))


def _update_parts(spec: RunSpec, shape: Shape, width: int, is_sharded: bool) -> list[Part]:
    """One micro-batch: what autograd keeps of its forward pass, and the logits.

    In a layer of n tokens autograd keeps 4 feed-forward tensors (gate, its SiLU, up, their product), 6 of the hidden
    size (two norms, their inputs and outputs), 4 of the queries and 4 of the keys' and values' size (projection, norm,
    rotation, attention's own), counted with saved_tensors_hooks; norms keep float32. Of the logits: themselves, their
    log-softmax and the gradient of either, in float32 (cross_entropy).
    """
    batch = _batch(spec)
    response = spec.rollout.max_completion_length
    tokens = batch * (spec.rollout.max_prompt_length + response)
    working_bytes = width * (4 * shape.feed_forward + 6 * shape.hidden + 4 * shape.query + 4 * shape.key)
    working_bytes += (4 - width) * (2 * shape.hidden + shape.query + shape.key)
    layer = tokens * working_bytes
    activations = shape.layers * layer
    if spec.compute.gradient_checkpointing:
        activations = layer + shape.layers * tokens * shape.hidden * width  # arXiv 1604.06174: inputs, and one layer
    logits = batch * (response + 1) * shape.vocabulary
    parts = [
        Part(name="activations", size=activations, moment="update"),
        Part(name="logits", size=logits * (12 if width == 4 else 14), moment="update"),
    ]
    if is_sharded:  # two layers gathered, one float32 gradient of a layer, and the output's weights
        gathered = 2 * width * shape.layer_parameters + 4 * shape.layer_parameters
        parts.append(
            Part(name="gathered layers", size=gathered + width * shape.vocabulary * shape.hidden, moment="update")
        )
    return parts


def _rollout_parts(spec: RunSpec, shape: Shape, width: int, is_sharded: bool) -> list[Part]:
    """One batch of rollouts.

    Choosing a token takes 28 bytes a logit: logits, log-probabilities and probabilities in float32, and those and
    their sums in float64 (rollout.py).
    """
    rollout = spec.rollout
    num_rollouts = spec.training.train_batch_size * spec.num_generations
    rows = min(rollout.rollout_batch_size, -(-num_rollouts // spec.compute.processes_per_agent))
    length = rollout.max_prompt_length + rollout.max_completion_length + KV_ROOM
    cache = rows * length * 2 * shape.key * width * shape.layers
    cache += cache // shape.layers  # one layer's old cache beside its larger new one
    parts = [
        Part(name="KV cache", size=cache, moment="generate"),
        Part(name="logits of rollouts", size=rows * shape.vocabulary * 28, moment="generate"),
    ]
    if is_sharded:
        parts.append(Part(name="all weights", size=shape.parameters * width, moment="generate"))
    return parts
