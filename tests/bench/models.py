"""What every contestant of the bench gets alike: a random model of a given size, its tokenizer, questions, rewards."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from workers.contract.spec.run import RunSpec
from workers.verifiers.scoring.verdicts import Verdict

NUM_QUESTIONS = 64
PROMPT_WORDS = 8


@dataclass(frozen=True)
class Size:
    """A model's shape and the batch that it is timed with. Vocabulary: words 0, 1, ...; tied embeddings."""

    vocabulary: int
    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    prompts: int
    tokens: int
    group: int = 8
    words: int = PROMPT_WORDS  # of the longest prompt; above the default, the shortest has three quarters of it


SIZES = {
    "0.1M": Size(256, 64, 192, 2, 2, 1, 32, prompts=24, tokens=26),  # the demo's batch
    "5M": Size(4096, 256, 768, 5, 8, 4, 32, prompts=4, tokens=48),
    "30M": Size(8192, 512, 1536, 8, 8, 4, 64, prompts=2, tokens=40),
}
TINY = Size(256, 32, 96, 2, 2, 1, 16, prompts=8, tokens=24, group=4)  # for the scaling study


def make_model(folder: Path, size: Size, seed: int, dtype: torch.dtype = torch.float32) -> int:
    """Write a random model and its tokenizer as a model folder; returns the number of parameters.

    The end-of-sequence id lies beyond the model's vocabulary, so that every response has exactly `tokens` tokens.
    """
    words = {str(index): index for index in range(size.vocabulary)} | {"<eos>": size.vocabulary}
    backend = Tokenizer(models.WordLevel(words, unk_token="0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="0", eos_token="<eos>", padding_side="left")
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=size.vocabulary,
        pad_token_id=0,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):  # a billion of random numbers take a CPU long
        model = Qwen3ForCausalLM(config).to(dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return int(model.num_parameters())


def write_questions(path: Path, size: Size) -> Path:
    """Prompts of at most size.words words; the reference answer is a number that only the rewards below read."""
    with open(path, "w", encoding="utf-8") as file:
        for index in range(max(NUM_QUESTIONS, size.prompts)):
            shorter = index % (size.words // 4) if size.words > PROMPT_WORDS else 0
            drawn = [zlib.crc32(f"{index} {place}".encode()) for place in range(size.words - shorter)]
            words = [str(1 + number % (size.vocabulary - 1)) for number in drawn]
            file.write(json.dumps({"id": f"q{index}", "question": " ".join(words), "answer": str(index)}) + "\n")
    return path


def dense_reward(text: str, answer: str) -> float:
    """A number in [0, 1) of its own for each text: no row has advantage 0."""
    return zlib.crc32(text.encode()) / 2**32


def sparse_reward(text: str, answer: str) -> float:
    """0 for every answer to half of the questions, 0 or 1 for the rest: about half of the rows have advantage 0."""
    return float(int(answer) % 2 and zlib.crc32(text.encode()) & 1)


class BenchVerifier:
    """The rewards above in the trainer's terms; `reward` may be changed between steps."""

    def __init__(self) -> None:
        self.reward = dense_reward

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        return [Verdict(self.reward(text, answer), "") for text, answer in zip(completions, answers, strict=True)]

    def doubts(self, answers: list[str]) -> list[str]:
        return [""] * len(answers)

    def forget_unscorable(self) -> None: ...

    def close(self) -> None: ...


def make_spec(folders: list[Path], questions: Path, size: Size, threads: int, **algorithm: Any) -> RunSpec:
    """A run of this size; everything not named here has the product's default, but nothing is evaluated or saved."""
    return RunSpec.model_validate(
        {
            "name": "bench",
            "agents": [{"name": f"agent {index}", "model": str(folder)} for index, folder in enumerate(folders)],
            "data": {"train_path": str(questions), "held_out_fraction": 0.0},
            "algorithm": {"beta": 0.0, **algorithm},
            "rollout": {
                "num_generations": size.group,
                "max_completion_length": size.tokens,
                "max_prompt_length": 2 * size.words,
            },
            "training": {"steps": 1_000_000, "train_batch_size": size.prompts, "mini_batch_size": size.prompts},
            "telemetry": {"alignment_interval": 0},
            "compute": {"device": "cpu", "dtype": "float32", "num_threads": threads},
        }
    )
