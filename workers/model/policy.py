"""One agent's language model: its tokenizer, its prompts, its log-probabilities and its optimizer. No algorithm.

Weights in bfloat16 are trained through float32 master copies: a step of 1e-6 would vanish in bfloat16.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer

from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec
from workers.model import lora, sharding
from workers.model.gradient_checkpointing import recompute_layers
from workers.model.loading import CPU, choose_dtype, load_model
from workers.model.offload import move_tensors
from workers.model.process_group import ALONE, Ranks
from workers.model.prompts import encode_question, eos_ids, turn_eos, uses_chat
from workers.model.rollback import Snapshot
from workers.randomness import derived_key


class Policy:
    """A model with its tokenizer and optimizer, at one sampling temperature."""

    def __init__(
        self,
        agent: AgentSpec,
        spec: RunSpec,
        device: torch.device,
        *,
        folder: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Load the agent's model, or its checkpoint in `folder`; the reference is always the starting model."""
        self.agent, self.ranks, self._home = agent, ranks, device
        self.temperature = spec.rollout.temperature
        self._samples_itself = spec.rollout.engine == "transformers"
        self.max_grad_norm = spec.training.max_grad_norm
        self.dtype = choose_dtype(spec, device)  # that it computes in
        self._uses_lora = agent.lora_rank > 0 and not spec.is_evaluation_only
        # With LoRA a checkpoint's folder holds the merged weights; going on needs the starting ones.
        starts_here = folder is None or self._uses_lora
        location, revision = (agent.model, agent.revision) if starts_here else (str(folder), None)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(location, revision=revision, trust_remote_code=False)
        # Shards are made of float32 weights in the machine's memory.
        dtype, place = (torch.float32, CPU) if ranks.is_sharded else (self.dtype, device)
        self.model = load_model(location, revision, dtype, place)
        self._load_start = partial(load_model, agent.model, agent.revision, dtype, place)
        if self._uses_lora:
            lora.add_adapter(self.model, agent, derived_key("lora", spec.seed, agent.stable_seed))
        self.reference = self._reference_of(spec, starts_here)
        self._read_tokenizer(location)
        if spec.is_evaluation_only:
            self.model.requires_grad_(False)
        elif spec.compute.gradient_checkpointing:
            recompute_layers(self.model)
        if ranks.is_sharded:
            sharding.shard(self._models, self.dtype, device, ranks)
        self._prepare_training(spec)
        self._rests = spec.compute.offloads_idle and device != CPU
        if self._rests:
            self._move(CPU)

    def _reference_of(self, spec: RunSpec, starts_here: bool) -> Any:
        """The starting model, which never changes, where the loss measures a distance from it. LoRA has it within."""
        if spec.algorithm.beta <= 0 or self._uses_lora or spec.is_evaluation_only:
            return None
        return (copy.deepcopy(self.model) if starts_here else self._load_start()).requires_grad_(False)

    def _read_tokenizer(self, location: str) -> None:
        """How a prompt is written and how a response ends. Error: ValueError."""
        self.eos_ids = eos_ids(self.tokenizer, self.model)
        if self.agent.prompt_format == "chat" and not self.tokenizer.chat_template:
            raise ValueError(
                f"agent {self.agent.name!r} has prompt_format chat, but the tokenizer of {location} has no chat "
                "template: choose auto or plain, or add a template"
            )
        self.uses_chat = uses_chat(self.tokenizer, self.agent)
        self.turn_eos = turn_eos(self.tokenizer, self.agent, self.eos_ids)

    def _prepare_training(self, spec: RunSpec) -> None:
        """The weights that are trained, their float32 masters, the optimizer, and the way back from a bad step."""
        # Tied weights stand here once.
        self._parameters = {
            name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad
        }
        self._masters_stay = spec.compute.offloads_optimizer  # in the machine's memory, and AdamW with them
        self._masters = {name: self._master_of(parameter) for name, parameter in self._parameters.items()}
        self.micro_batch_size = spec.training.micro_batch_size  # halved where memory runs out
        self.optimizer = torch.optim.AdamW(
            [{"params": list(self._masters.values())}],  # a group may be empty: of an agent that is only evaluated
            lr=self.agent.learning_rate or spec.training.learning_rate,
            betas=(spec.training.adam_beta1, spec.training.adam_beta2),
            weight_decay=spec.training.weight_decay,
            fused=True,
        )
        self.snapshot = Snapshot(self._masters, self.optimizer)

    def _master_of(self, parameter: Tensor) -> Tensor:
        """The float32 weights that the optimizer steps: the parameter itself, its shard, or a copy."""
        if self.ranks.is_sharded:
            return sharding.local(parameter.detach())
        if self._masters_stay:
            return parameter.detach().to(CPU, torch.float32, copy=True)
        return parameter.detach().float().clone() if parameter.dtype != torch.float32 else parameter

    @property
    def _copies(self) -> dict[str, Tensor]:
        """The masters that share no memory with their parameters."""
        if self.ranks.is_sharded:
            return {}
        return {name: master for name, master in self._masters.items() if master is not self._parameters[name]}

    @property
    def _models(self) -> list[Any]:
        return [self.model] if self.reference is None else [self.model, self.reference]

    def _move(self, to: torch.device) -> None:
        move_tensors(self._models, [] if self._masters_stay else self._masters.values(), self.optimizer, to)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within: the agent is on its device, where it otherwise rests in the machine's memory (offload: idle)."""
        if not self._rests:
            yield
            return
        self._move(self._home)
        self._rests = False  # within, nothing more is moved
        try:
            yield
        finally:
            self._rests = True
            self._move(CPU)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Within: the model can sample in this rank without the others."""
        with sharding.whole_weights(self.model) if self.ranks.is_sharded else nullcontext():
            yield

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def num_trained(self) -> int:
        """Weights that an update changes."""
        return sum(parameter.numel() for parameter in self._parameters.values())

    @property
    def num_parameters(self) -> int:
        """Weights of the model as it is exported."""
        return self.model.num_parameters() - (self.num_trained if self._uses_lora else 0)

    @property
    def sampling_logps_are_exact(self) -> bool:
        """True where sampling and scoring agree to rounding (4e-7 measured), so that nothing is scored twice."""
        return self._samples_itself and self._home.type == "cpu" and self.dtype == torch.float32

    @property
    def context_length(self) -> int | None:
        """Tokens that the model can place, prompt and response together; None where it names no limit."""
        config = self.model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        rope = getattr(config, "rope_parameters", None) or {}
        # Stretched rotary embeddings: some models name the stretched length, some the one before.
        stretched = (rope.get("original_max_position_embeddings") or limit or 0) * (rope.get("factor") or 1)
        return max(limit, int(stretched)) if limit else None

    def encode_prompt(self, question: str) -> list[int]:
        """The ids of a question in the agent's own prompt format."""
        return encode_question(self.tokenizer, self.agent, question, self.eos_ids)

    def decode(self, token_ids: Sequence[int], *, literal: bool = False) -> str:
        """The text of a response, without special tokens unless `literal`."""
        return str(
            self.tokenizer.decode(token_ids, skip_special_tokens=not literal, clean_up_tokenization_spaces=False)
        )

    def encode_response(self, text: str, *, literal: bool = False) -> list[int]:
        """The ids of a response text. Unless `literal`, text that looks like a special token stays text."""
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=not literal, verbose=False).input_ids
        )

    def token_logps(
        self,
        prompts: Sequence[Sequence[int]],
        responses: Sequence[Sequence[int]],
        *,
        model: Any = None,
        temperature: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of response tokens, at the sampling temperature where none is given.

        A causal pass padded on the right.

        Returns logps (b, T), 0 where padded, and the completion mask (b, T), True = counts in the loss.
        """
        device = self.device
        width = max(len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True))
        ids = torch.tensor(
            [
                [*prompt, *response, *([0] * (width - len(prompt) - len(response)))]
                for prompt, response in zip(prompts, responses, strict=True)
            ],
            device=device,
        )  # (b, S)
        starts = [len(prompt) for prompt in prompts]
        first = min(starts)
        # Padding stands behind every real token, so the causal mask alone keeps it out: no attention mask.
        logits = (model or self.model)(
            input_ids=ids[:, :-1], use_cache=False, logits_to_keep=width - first
        ).logits  # (b, S - first, V)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        temperature = temperature or self.temperature
        if temperature != 1.0:
            logits = logits / temperature
        logps = -functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, first:].reshape(-1), reduction="none"
        ).view(len(ids), -1)  # (b, S - first)
        lengths = torch.tensor([len(response) for response in responses], device=device)  # (b,)
        position = torch.arange(int(lengths.max()), device=device)  # (T,)
        mask = position[None, :] < lengths[:, None]  # (b, T)
        if max(starts) > first:
            offset = torch.tensor(starts, device=device) - first  # (b,)
            index = (offset[:, None] + position[None, :]).clamp(max=logps.shape[1] - 1)  # (b, T)
            logps = logps.gather(1, index)
        return logps.where(mask, 0.0), mask

    @torch.no_grad()
    def reference_logps(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tensor:
        """token_logps of the starting model, (b, T); only where beta is above 0."""
        if self._uses_lora:
            with lora.adapter_off(self.model):
                return self.token_logps(prompts, responses)[0]
        return self.token_logps(prompts, responses, model=self.reference)[0]

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those gathered: in the float32 masters, where they add up exactly."""
        # FSDP2 takes the mean over the ranks, of which each has a part of the sum.
        (loss * self.ranks.size if self.ranks.is_sharded else loss).backward()
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter and parameter.grad is not None:
                gradient = sharding.local(parameter.grad).to(master.device, torch.float32)
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def stand_by(self, *, with_reference: bool = False) -> None:
        """Make the passes that the other ranks make on a chunk, with nothing to learn: layers are gathered together."""
        if not self.ranks.is_sharded:
            return
        logps, _ = self.token_logps([[0]], [[0]])
        if with_reference:
            self.reference_logps([[0]], [[0]])
        if logps.requires_grad:
            self.backward(logps.sum() * 0.0)

    def add_up_gradients(self) -> None:
        """Sum the gathered gradients over the ranks, where each has seen its share of the rows."""
        if not self.ranks.is_alone and not self.ranks.is_sharded:
            self._fill_gradients()
            self.ranks.add_up([master.grad for master in self._masters.values() if master.grad is not None])

    def _fill_gradients(self) -> None:
        for master in self._masters.values():
            if master.grad is None:  # a mini-batch without any active row is still an update
                master.grad = torch.zeros_like(master)

    def gradients(self) -> list[Tensor]:
        """Take away the gathered gradients: one tensor for each parameter that has one, on the device."""
        result = [
            torch.zeros_like(master) if master.grad is None else master.grad.detach()
            for master in self._masters.values()
        ]
        self.discard_gradients()
        return result

    def discard_gradients(self) -> None:
        """Forget what backward passes have left, whole or half."""
        for parameter in self._parameters.values():
            parameter.grad = None
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, learning_rate: float, *, is_sound: bool, is_first: bool = False) -> tuple[float, bool]:
        """One optimizer step with the gathered gradients. Returns their norm before scaling, and whether it was taken.

        Without sound gradients (`is_sound` false, or a norm that is not finite) nothing changes. is_first: of the
        training step; the weights from before it are kept to roll back to.
        """
        self._fill_gradients()
        if self.ranks.is_sharded:
            norm = sharding.clip_grad_norm(list(self._masters.values()), self.max_grad_norm, self.ranks)
        else:
            norm = torch.nn.utils.clip_grad_norm_(self._masters.values(), self.max_grad_norm).item()
        is_applied = self.ranks.all(is_sound and math.isfinite(norm))
        if is_applied:
            if is_first:
                self.snapshot.take()
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
            self._push_masters()
        self.optimizer.zero_grad(set_to_none=True)
        return norm, is_applied

    def roll_back(self) -> None:
        """Return to the last weights that gave a finite gradient."""
        self.snapshot.restore()
        self._push_masters()

    @torch.no_grad()
    def _push_masters(self) -> None:
        for name, master in self._copies.items():
            self._parameters[name].copy_(master)

    def save(self, folder: Path) -> None:
        """An ordinary Hugging Face model folder that loads without any of our code; the first rank writes it."""
        model = sharding.whole_model(self.model, self.dtype) if self.ranks.is_sharded else self.model
        if not self.ranks.is_first:
            return
        if self._uses_lora:
            model = self._load_start()
            lora.merge_into(model, self.model)
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def state_tensors(self) -> dict[str, Tensor]:
        """What the model folder lacks for going on: the optimizer's tensors and float32 masters, by parameter.

        With shards, this rank's.
        """
        tensors: dict[str, Tensor] = {}
        copies = self._masters if self.ranks.is_sharded or self._uses_lora else self._copies
        for name, master in self._masters.items():
            for key, value in self.optimizer.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value.contiguous()
            if name in copies:
                tensors[f"master/{name}"] = master.detach().contiguous()
        return tensors

    @torch.no_grad()
    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The reverse of state_tensors."""
        for joined, value in tensors.items():
            key, name = joined.split("/", 1)
            master = self._masters[name]
            if key == "master":
                master.copy_(value)
            else:
                # A fused AdamW wants its step counter beside the weights.
                self.optimizer.state[master][key] = value.to(master.device).clone()
        if self._uses_lora:
            self._push_masters()
