"""The starting point of a demo agent: a small model that computes well and half knows the order of operations.

It is trained on a mixture of correct workings and misconceptions, so that it remains to learn a choice between two
procedures, as large models do in reinforcement learning. Deterministic by seed.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.demo.task import ArithmeticProblem, make_problems

STEPS = 1000
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARMUP_STEPS = 50
CHARACTERS = "0123456789+-*^()=;}"
BOX = "\\boxed{"
DIGIT_PAIRS = tuple(str(value) for value in range(10, 100))
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen3": {  # about 100k parameters
        "model_type": "qwen3",
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    },
    "llama": {  # about 250k
        "model_type": "llama",
        "hidden_size": 96,
        "intermediate_size": 288,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    },
    "olmo2": {  # about 200k
        "model_type": "olmo2",
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    },
}


@dataclass(frozen=True)
class WarmStart:
    """A demo agent. architecture: a key of ARCHITECTURES; correct_share: of the workings that it is trained on, by
    skill; pieces: tokens besides single characters and the opening of a box."""

    architecture: str
    correct_share: Mapping[str, float]
    pieces: tuple[str, ...] = ()


def make_tokenizer(pieces: tuple[str, ...] = ()) -> Any:
    """A tokenizer of single characters, the opening of a box and further pieces, the longest match first."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces_in_order = ["<pad>", "<eos>", "<unk>", *CHARACTERS, BOX, *pieces]
    longest_first = sorted((BOX, *pieces), key=len, reverse=True)
    pattern = "|".join([*map(re.escape, longest_first), r"[\s\S]"])
    vocabulary = {piece: index for index, piece in enumerate(pieces_in_order)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=128,
        padding_side="left",
    )


def make_model(architecture: str, tokenizer: Any) -> Any:
    """An untrained model; `architecture` is a key of ARCHITECTURES."""
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "head_dim": 32,  # a size that vLLM's CPU attention supports
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        **ARCHITECTURES[architecture],
    }
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings))


class _Corpus:
    """Problems with workings as token ids, drawn with the agent's share of correct ones."""

    def __init__(self, agent: WarmStart, problems: list[ArithmeticProblem], tokenizer: Any, seed: int) -> None:
        self._random = random.Random(f"{seed} {agent.architecture}")
        self._share = agent.correct_share
        self._problems = problems
        self._ids = [
            tuple(tokenizer(text).input_ids for text in (problem.text, problem.correct, problem.mistaken))
            for problem in problems
        ]
        self._end = [tokenizer.eos_token_id]

    def draw(self) -> tuple[list[int], list[int]]:
        """Prompt and working of one random problem, which ends with the EOS."""
        index = self._random.randrange(len(self._problems))
        prompt, correct, mistaken = self._ids[index]
        is_correct = self._random.random() < self._share[self._problems[index].skill]
        return prompt, (correct if is_correct else mistaken) + self._end


def _learning_rate(step: int, steps: int) -> float:
    """Warm-up, then half a cosine to 0."""
    if step < WARMUP_STEPS:
        return LEARNING_RATE * (step + 1) / WARMUP_STEPS
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)))


def batch_of(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Any, Any]:
    """Ids (b, S) and labels (b, S) of prompts and answers; labels are -100 in the prompt and the padding."""
    import torch

    width = max(len(prompt) + len(answer) for prompt, answer in pairs)
    ids = torch.zeros(len(pairs), width, dtype=torch.long)
    labels = torch.full((len(pairs), width), -100)
    for row, (prompt, answer) in enumerate(pairs):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
    return ids, labels


def train_agent(
    agent: WarmStart, folder: Path, seed: int, steps: int = STEPS, report: Callable[[int], None] = lambda step: None
) -> None:
    """Train one agent and save it as a Hugging Face folder. report: called with each finished step."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(agent.pieces)
    model = make_model(agent.architecture, tokenizer)
    corpus = _Corpus(agent, make_problems(seed)[0], tokenizer, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, steps)
        ids, labels = batch_of([corpus.draw() for _ in range(BATCH_SIZE)])
        # Padding is on the right, so the causal mask hides it from every other token.
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits  # (b, S - 1, V)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step + 1)
    save_agent(model, tokenizer, folder)


def save_agent(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save an agent as a Hugging Face folder; its answers end with the tokenizer's EOS."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
