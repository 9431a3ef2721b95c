"""One agent's language model with its tokenizer: prompts, log-probabilities, export. No algorithm."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from workers.contract.checkpoint_manifest import needs_float32
from workers.contract.events import TextDifference
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec
from workers.model import chunked_logprobs, export, lora, sharding
from workers.model.loading import CPU, choose_dtype, load_model, load_tokenizer, recompute_layers
from workers.model.optimizer import PolicyOptimizer
from workers.model.process_group import ALONE, Ranks, Round, Value
from workers.model.prompts import (
    TurnMarks,
    check_format,
    check_sizes,
    encode_question,
    eos_ids,
    textless_ids,
    thought_opening,
    tokenizer_limit,
    turn_eos,
    turn_marks,
    uses_chat,
)
from workers.model.template_marks import marks_of
from workers.model.text_difference import text_difference
from workers.model.thoughts import thought_marks
from workers.randomness import derived_key


class Policy:
    """A model with its tokenizer and optimizer, at one sampling temperature."""

    def __init__(
        self, agent: AgentSpec, spec: RunSpec, device: torch.device, *, folder: Path | None = None, ranks: Ranks = ALONE
    ) -> None:
        """Load the agent's model, or its checkpoint in `folder`; the reference is always the starting model."""
        self.agent, self.ranks, self._home = agent, ranks, device
        self.temperature = spec.rollout_of(agent).temperature
        self._samples_itself = spec.rollout.engine != "vllm" and not spec.rollout.samples_ahead
        self.dtype = choose_dtype(spec, device)  # of its computations
        if spec.is_evaluation_only and spec.compute.dtype == "auto" and needs_float32(agent.model):
            self.dtype = torch.float32
        self.uses_lora = agent.lora_rank > 0 and not spec.is_evaluation_only
        # With LoRA a checkpoint's folder holds the merged weights; resuming needs the starting ones.
        starts_here = folder is None or self.uses_lora
        location, revision = (agent.model, agent.revision) if starts_here else (str(folder), None)
        self.tokenizer: Any = load_tokenizer(location, revision)
        # Float32 weights in the machine's memory are split into shards.
        dtype, place = (torch.float32, CPU) if ranks.is_sharded else (self.dtype, device)
        self.model = load_model(location, revision, dtype, place)
        self._load_start = partial(load_model, agent.model, agent.revision)
        if self.uses_lora:
            lora.add_adapter(self.model, agent, derived_key("lora", spec.seed, agent.stable_seed))
        self._has_linear_head = not ranks.is_sharded and chunked_logprobs.is_linear_head(self.model)
        self._replaces_head = ranks.is_sharded and chunked_logprobs.is_replaceable_head(self.model)
        self.reference = self._reference_of(spec, starts_here, dtype, place)
        self._read_tokenizer(location)
        if spec.is_evaluation_only:
            self.model.requires_grad_(False)
        elif spec.compute.gradient_checkpointing:
            recompute_layers(self.model)
        if ranks.is_sharded:
            sharding.shard(self._models, self.dtype, device, ranks)
        self.optimizer = PolicyOptimizer(self.model, agent, spec, ranks)
        self.micro_batch_size = spec.training.micro_batch_size
        self._tokens_per_micro_batch = spec.training.tokens_per_micro_batch
        self._rests = spec.compute.offloads_idle and device != CPU
        if self._rests:
            self._move(CPU)

    def _reference_of(self, spec: RunSpec, starts_here: bool, dtype: torch.dtype, place: torch.device) -> Any:
        """The starting model, if the loss has a KL penalty. With LoRA it is the model without its adapter."""
        if spec.algorithm.beta <= 0 or self.uses_lora or spec.is_evaluation_only:
            return None
        start = copy.deepcopy(self.model) if starts_here else self._load_start(dtype, place)
        return start.requires_grad_(False)

    def _read_tokenizer(self, location: str) -> None:
        """Set how a prompt is written and how a response ends. Error: ValueError."""
        rows = self.model.config.get_text_config().vocab_size
        check_sizes(self.tokenizer, self.agent, rows)
        self.eos_ids = eos_ids(self.tokenizer, self.model)
        self.textless = textless_ids(self.tokenizer, rows, self.eos_ids)
        check_format(self.tokenizer, self.agent, location)
        self.turn_eos = turn_eos(self.tokenizer, self.agent, self.eos_ids)
        self._marks: dict[str, TurnMarks] = {}  # by role
        # Of a chat it is the same for every question.
        self._opening = thought_opening(self.tokenizer, self.agent) if uses_chat(self.tokenizer, self.agent) else None

    @property
    def _models(self) -> list[Any]:
        return [self.model] if self.reference is None else [self.model, self.reference]

    def _move(self, to: torch.device) -> None:
        for model in self._models:
            model.to(to)
        self.optimizer.move(to)
        if torch.cuda.is_available():  # another process may need the freed memory
            torch.cuda.empty_cache()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within: the agent is on its device. With offload: idle it otherwise rests in the machine's memory."""
        if not self._rests:
            yield
            return
        self._move(self._home)
        self._rests = False  # a nested call moves nothing
        try:
            yield
        finally:
            self._rests = True
            self._move(CPU)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Within: the model can sample in this rank without the others, if it is what samples."""
        with sharding.whole_weights(self.model) if self.ranks.is_sharded and self._samples_itself else nullcontext():
            yield

    def micro_batches(self, rows: Sequence[Value], length: Callable[[Value], int]) -> list[Round[Value]]:
        """Rows in chunks for single passes, by rank. length: tokens of a row."""
        return self.ranks.rounds(rows, self.micro_batch_size, length, self._tokens_per_micro_batch)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def num_bytes(self) -> int:
        return sum(parameter.numel() * parameter.element_size() for parameter in self.model.parameters())

    @property
    def num_parameters(self) -> int:
        """Weights of the model as it is exported."""
        return self.model.num_parameters() - (self.optimizer.num_trained if self.uses_lora else 0)

    @property
    def sampling_logps_are_exact(self) -> bool:
        """True if sampling and scoring agree to rounding (4e-7 measured), so that nothing is scored twice."""
        return self._samples_itself and self._home.type == "cpu" and self.dtype == torch.float32

    @property
    def output_layer(self) -> chunked_logprobs.Head | None:
        """The model's output layer, if nothing else follows its last hidden states."""
        return chunked_logprobs.Head.of(self.model) if self._has_linear_head else None

    @property
    def context_length(self) -> int | None:
        """The longest prompt and response together, in tokens; None if the model names no limit."""
        config = self.model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        rope = getattr(config, "rope_parameters", None) or {}
        # Of stretched rotary embeddings some models name the stretched length, some the original one.
        stretched = (rope.get("original_max_position_embeddings") or limit or 0) * (rope.get("factor") or 1)
        return max(limit, int(stretched)) if limit else None

    def encode_prompt(self, question: str, system: str = "") -> list[int]:
        """The ids of a question in the agent's own prompt format, after a system message if there is one."""
        return encode_question(self.tokenizer, self.agent, question, self.eos_ids, system)

    def opening(self, question: str) -> str:
        """What of a thought the prompt of a question holds, before the response begins."""
        if self._opening is None:
            return thought_opening(self.tokenizer, self.agent, question)
        return self._opening

    def decode(self, token_ids: Sequence[int], *, literal: bool = False) -> str:
        """The text of a response, without special tokens unless `literal`. Thoughts stand in <think> and </think>."""
        if not literal:
            return thought_marks(self.tokenizer).decode(token_ids)
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_response(self, text: str, *, literal: bool = False) -> list[int]:
        """The ids of a response text. Unless `literal`, what looks like a special token or a turn's mark stays text.

        <think> and </think> become the marks of the model's family.
        """
        with tokenizer_limit(self.agent, text):
            if literal:
                return list(self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
            ids: list[int] = []
            for run in thought_marks(self.tokenizer).runs(text):
                ids += marks_of(self.tokenizer).encode_answer(run) if isinstance(run, str) else run
        return ids

    def text_difference(self, token_ids: Sequence[int]) -> TextDifference:
        """Why the text of sampled tokens, without their EOS, does not lead back to them; empty if it does."""
        return text_difference(self.tokenizer, token_ids)

    def environment_ids(self, text: str, role: Literal["tool", "user"], *, has_eos: bool) -> list[int]:
        """The ids of an environment's turn, up to the agent's next one. has_eos: the turn before it ended with one.

        Words of marks stay text. Error: ValueError if the chat template has no such turn.
        """
        return self._marks_of(role).around(self.encode_text(text), self.eos_ids, has_eos=has_eos)

    def encode_text(self, text: str) -> list[int]:
        """The ids of an environment's text, in which no words are a mark of the chat template."""
        with tokenizer_limit(self.agent, text):
            return marks_of(self.tokenizer).encode_text(text)

    def opening_after(self, role: Literal["tool", "user"]) -> str:
        """What of a thought stands before the agent's turn that follows an environment's."""
        return self._marks_of(role).opening

    def _marks_of(self, role: Literal["tool", "user"]) -> TurnMarks:
        if role not in self._marks:
            self._marks[role] = turn_marks(self.tokenizer, self.agent, role)
        return self._marks[role]

    def token_logps(
        self,
        prompts: Sequence[Sequence[int]],
        responses: Sequence[Sequence[int]],
        *,
        model: Any = None,
        temperature: float | None = None,
        train_masks: Sequence[Sequence[bool]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of response tokens by one causal pass, padded on the right.

        temperature: the sampling temperature by default.  train_masks: by response; default: all tokens count.
        Returns logps (b, T), 0 where padded or not counted, and the completion mask (b, T), True = counts in the loss.
        """
        device, model, temperature = self.device, model or self.model, temperature or self.temperature
        rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)  # (b, S)
        starts = torch.tensor([len(prompt) for prompt in prompts], device=device)  # (b,)
        lengths = torch.tensor([len(response) for response in responses], device=device)  # (b,)
        position = torch.arange(int(lengths.max()), device=device)  # (T,)
        mask = position[None, :] < lengths[:, None]  # (b, T)
        if train_masks is not None:
            padded = [[*row, *([False] * (mask.shape[1] - len(row)))] for row in train_masks]
            mask = mask & torch.tensor(padded, device=device)
        place = (starts[:, None] + position[None, :]).clamp(max=width - 1)  # (b, T)  of each response token in its row
        vocabulary = model.config.get_text_config().vocab_size
        by_chunks = self._has_linear_head or self._replaces_head
        if by_chunks and chunked_logprobs.is_large(len(rows) * (width - int(starts.min())) * vocabulary):
            row = torch.arange(len(rows), device=device)[:, None].expand_as(mask)[mask]  # (N,)
            index, targets = (row, place[mask] - 1), ids[row, place[mask]]  # (N,)
            values = self._chunked_logps(model, ids[:, :-1], index, targets, temperature)  # (N,)
            return values.new_zeros(mask.shape).masked_scatter(mask, values), mask
        first = int(starts.min())
        logits = model(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=width - first).logits  # (b, S - first, V)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if temperature != 1.0:
            logits = logits / temperature
        logps = -functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), ids[:, first:].reshape(-1), reduction="none"
        ).view(len(ids), -1)  # (b, S - first)
        return logps.gather(1, place - first).where(mask, 0.0), mask

    def _chunked_logps(
        self, model: Any, ids: Tensor, index: chunked_logprobs.Index, targets: Tensor, temperature: float
    ) -> Tensor:
        """Of targets (N,), predicted from the states [index] of a pass over ids (b, S)."""
        # Padding follows every real token, so the causal mask alone keeps it out: no attention mask.
        if self._replaces_head:
            with chunked_logprobs.logps_for_logits(model, index, targets, temperature):
                values: Tensor = model(input_ids=ids, use_cache=False).logits
            return values
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state  # (b, S, d)
        output = chunked_logprobs.Head.of(model)
        assert output is not None
        return chunked_logprobs.token_logps(output, states[index], targets, temperature)

    @torch.no_grad()
    def reference_logps(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tensor:
        """token_logps of the starting model, (b, T); only if beta is above 0."""
        if self.uses_lora:
            with lora.adapter_off(self.model):
                return self.token_logps(prompts, responses)[0]
        return self.token_logps(prompts, responses, model=self.reference)[0]

    def stand_by(self, *, with_reference: bool = False) -> None:
        """Join the passes that the other ranks make on a chunk, if this rank has no rows: they gather the shards."""
        if not self.ranks.is_sharded:
            return
        logps, _ = self.token_logps([[0]], [[0]])
        if with_reference:
            self.reference_logps([[0]], [[0]])
        if logps.requires_grad:
            self.optimizer.backward(logps.sum() * 0.0)

    def save(self, folder: Path, rows: export.Rows = ()) -> None:
        """An ordinary Hugging Face model folder that loads without any of our code; the first rank writes it.

        With LoRA its weights are the merged ones in float32, and the folder `adapter` in it has the matrices in PEFT's
        format. rows: recent rollouts, with which the loss of a bfloat16 copy is measured (export.py).
        """
        if self.uses_lora:
            self._save_merged(folder, rows)
            return
        model = sharding.whole_model(self.model, self.dtype) if self.ranks.is_sharded else self.model
        if self.ranks.is_first:
            model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def save_adapter(self, folder: Path) -> None:
        """LoRA's matrices as a folder of PEFT; the first rank writes it."""
        adapter = lora.matrices(self.model)
        if self.ranks.is_first:
            lora.save_adapter(folder, self.agent, adapter)

    def _save_merged(self, folder: Path, rows: export.Rows) -> None:
        adapter = lora.matrices(self.model)
        if self.ranks.is_first:
            model = self._load_start(self.dtype, CPU).float()  # the weights beside which the adapter was trained
            surviving = lora.merge_into(model, self.model, adapter)
            model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            lora.save_adapter(folder / lora.ADAPTER_FOLDER, self.agent, adapter)
            if self.dtype == torch.bfloat16:  # one rank alone cannot compute with a shard
                rows = () if self.ranks.is_sharded else rows
                export.write_precision(folder, self.token_logps, self.device, model, surviving, rows)
