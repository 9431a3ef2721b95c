"""One agent's language model: its tokenizer, its prompts, its log-probabilities and its optimizer. No algorithm.

Weights in bfloat16 are trained through float32 master copies: a step of 1e-6 would vanish in bfloat16.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from workers import lora
from workers.randomness import derived_key
from workers.snapshot import Snapshot
from workers.spec import RunSpec
from workers.spec_sections import AgentSpec


def choose_device(spec: RunSpec) -> torch.device:
    """The device a run trains on. Error: ValueError where it asks for a GPU that is not there."""
    if spec.compute.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("compute.device is cuda but this machine has no usable GPU: choose auto or cpu")
    use_cuda = spec.compute.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if use_cuda else "cpu")


def choose_dtype(spec: RunSpec, device: torch.device) -> torch.dtype:
    """The type of the weights."""
    if spec.compute.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if spec.compute.dtype == "bfloat16" else torch.float32


def load_model(location: str, revision: str | None, dtype: torch.dtype, device: torch.device) -> Any:
    """A causal language model from a folder or the hub; safetensors only. Errors: OSError, ValueError."""
    found: Any = AutoModelForCausalLM.from_pretrained(
        location,
        revision=revision,
        dtype=dtype,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, loaded = found
    if absent := [*loaded["missing_keys"], *loaded["mismatched_keys"]]:
        # transformers would fill them with random numbers and go on
        raise ValueError(f"{location} lacks {len(absent)} tensors of its model, such as {absent[0]}: not whole weights")
    # No dropout anywhere: the old log-probabilities must be those of the policy that is updated.
    return model.to(device).eval()


class Policy:
    """A model with its tokenizer and optimizer, at one sampling temperature."""

    def __init__(self, agent: AgentSpec, spec: RunSpec, device: torch.device, *, folder: Path | None = None) -> None:
        """Load the agent's model, or its checkpoint in `folder`; the reference is always the starting model."""
        self.agent = agent
        self.temperature = spec.rollout.temperature
        self.max_grad_norm = spec.training.max_grad_norm
        dtype = choose_dtype(spec, device)
        is_frozen = spec.is_evaluation_only
        self._uses_lora = agent.lora_rank > 0 and not is_frozen
        # With LoRA a checkpoint's folder holds the merged weights; going on needs the starting ones.
        starts_here = folder is None or self._uses_lora
        location, revision = (agent.model, agent.revision) if starts_here else (str(folder), None)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(location, revision=revision, trust_remote_code=False)
        self.model = load_model(location, revision, dtype, device)
        self._load_start = partial(load_model, agent.model, agent.revision, dtype, device)
        if self._uses_lora:
            seed = derived_key("lora", spec.seed, agent.stable_seed)
            lora.add_adapter(self.model, agent, seed)
        self.reference: Any = None
        if spec.algorithm.beta > 0 and not self._uses_lora and not is_frozen:
            self.reference = (copy.deepcopy(self.model) if starts_here else self._load_start()).requires_grad_(False)
        self.eos_ids = eos_ids(self.tokenizer, self.model)
        self.turn_eos = self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else self.eos_ids[0]
        has_template = bool(self.tokenizer.chat_template)
        if agent.prompt_format == "chat" and not has_template:
            raise ValueError(
                f"agent {agent.name!r} has prompt_format chat, but the tokenizer of {location} has no chat template: "
                "choose auto or plain, or add a template"
            )
        self.uses_chat = uses_chat(self.tokenizer, agent)
        if is_frozen:
            self.model.requires_grad_(False)
        # Those that are trained; tied weights once.
        self._parameters = {
            name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad
        }
        self._masters = {
            name: parameter.detach().float().clone() if parameter.dtype != torch.float32 else parameter
            for name, parameter in self._parameters.items()
        }
        self.micro_batch_size = spec.training.micro_batch_size  # halved where memory runs out
        self.optimizer = torch.optim.AdamW(
            [{"params": list(self._masters.values())}],  # a group may be empty: of an agent that is only evaluated
            lr=agent.learning_rate or spec.training.learning_rate,
            betas=(spec.training.adam_beta1, spec.training.adam_beta2),
            weight_decay=spec.training.weight_decay,
            fused=True,
        )
        self.snapshot = Snapshot(self._masters, self.optimizer)

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
        return self.device.type == "cpu" and self.model.dtype == torch.float32

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
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], *, model: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of response tokens at the sampling temperature; a causal pass padded on the right.

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
        if self.temperature != 1.0:
            logits = logits / self.temperature
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

    def collect_gradients(self) -> None:
        """After a backward pass: move bfloat16 gradients into the float32 masters, where they add up exactly."""
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter and parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """Take away the gathered gradients: one tensor for each parameter that has one, on the device."""
        found = [
            torch.zeros_like(master) if master.grad is None else master.grad.detach()
            for master in self._masters.values()
        ]
        self.discard_gradients()
        return found

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
        for master in self._masters.values():
            if master.grad is None:  # a mini-batch without any active row is still an update
                master.grad = torch.zeros_like(master)
        norm = torch.nn.utils.clip_grad_norm_(self._masters.values(), self.max_grad_norm).item()
        taken = is_sound and norm == norm and norm != float("inf")
        if taken:
            if is_first:
                self.snapshot.take()
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
            self._push_masters()
        self.optimizer.zero_grad(set_to_none=True)
        return norm, taken

    def roll_back(self) -> None:
        """Return to the last weights that gave a finite gradient."""
        self.snapshot.restore()
        self._push_masters()

    @torch.no_grad()
    def _push_masters(self) -> None:
        for name, parameter in self._parameters.items():
            if self._masters[name] is not parameter:
                parameter.copy_(self._masters[name])

    def save(self, folder: Path) -> None:
        """An ordinary Hugging Face model folder that loads without any of our code."""
        model = self.model
        if self._uses_lora:
            model = self._load_start()
            lora.merge_into(model, self.model)
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def state_tensors(self) -> dict[str, Tensor]:
        """What the model folder lacks for going on: the optimizer's tensors and float32 masters, by parameter."""
        tensors: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            for key, value in self.optimizer.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value.contiguous()
            if master is not self._parameters[name] or self._uses_lora:
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


def encode_question(tokenizer: Any, agent: AgentSpec, question: str, stops: Sequence[int]) -> list[int]:
    """The ids of a question in an agent's own prompt format."""
    text = agent.prompt_template.replace("{question}", question)
    if uses_chat(tokenizer, agent):
        return list(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": text}],
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
                **agent.chat_template_kwargs,
            )
        )
    ids = list(tokenizer(text).input_ids)
    # Some tokenizers close every text with an EOS, which would end the response before it starts.
    return ids[:-1] if len(ids) > 1 and ids[-1] in stops else ids


def uses_chat(tokenizer: Any, agent: AgentSpec) -> bool:
    """Whether questions go through the tokenizer's chat template."""
    return bool(tokenizer.chat_template) and agent.prompt_format != "plain"


def eos_ids(tokenizer: Any, model: Any) -> list[int]:
    """All ids that end a response: generation config, model config and tokenizer together."""
    found: list[int] = []
    configs = (getattr(model, "generation_config", None), model.config)
    for value in [tokenizer.eos_token_id, *(getattr(config, "eos_token_id", None) for config in configs)]:
        found += value if isinstance(value, list) else [] if value is None else [value]
    if not found:
        raise ValueError("the model names no end-of-sequence token: set eos_token in its tokenizer")
    return list(dict.fromkeys(found))
