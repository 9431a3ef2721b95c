"""Shared builders of the trainer's tests: language models of a few thousand weights, questions, and run specs."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from workers.algorithms.registry import own_settings
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SPOOL_NAME, SpoolWriter, read_records
from workers.trainer.stop_signals import StopFlag
from workers.trainer.trainer import Trainer
from workers.verifiers.scoring.verdicts import Verdict

WITHOUT_VLLM = "vLLM is not installed: `python -m workers.rollouts.install_vllm` installs it"
CHARACTERS = list("0123456789+-*=()")


def character_tokenizer(extra_pieces: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """One token for each character and each extra piece, plus <pad> and <eos>; longer pieces first."""
    pieces = ["<pad>", "<eos>", *CHARACTERS, *extra_pieces]
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token="<pad>"))
    alternatives = "|".join([*extra_pieces, "."])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(alternatives), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def make_agent(folder: Path, kind: str, seed: int = 0, extra_pieces: tuple[str, ...] = (), **changes: Any) -> Path:
    """A random model with its tokenizer as an ordinary model folder. kind: qwen3 or llama."""
    tokenizer = character_tokenizer(extra_pieces)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **changes,
    }
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config(**settings)) if kind == "qwen3" else LlamaForCausalLM(LlamaConfig(**settings))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def _pair() -> tuple[tempfile.TemporaryDirectory[str], torch.Tensor]:
    """The folders of the pair, made once, and torch's random state after that."""
    folder = tempfile.TemporaryDirectory(prefix="hacrl-pair-")
    make_agent(Path(folder.name, "qwen"), "qwen3", seed=1)
    heads = {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3}
    make_agent(Path(folder.name, "llama"), "llama", seed=2, extra_pieces=("11", "12", "21"), **heads)
    return folder, torch.get_rng_state()


def make_pair(root: Path) -> list[dict[str, Any]]:
    """Two agents of different family, size and tokenizer, as AgentSpec values."""
    folder, state = _pair()
    shutil.copytree(folder.name, root, dirs_exist_ok=True)
    torch.set_rng_state(state)
    return [{"name": name, "model": str(root / name.lower())} for name in ("Qwen", "Llama")]


def write_questions(path: Path, count: int = 24) -> Path:
    """Sums of digits; prompts of two lengths, so that batches are padded."""
    with open(path, "w", encoding="utf-8") as file:
        for index in range(count):
            question = f"{index % 10}+{index // 10 * 7}="
            line = {"id": f"q{index}", "question": question, "answer": str(index % 3), "subject": f"s{index % 2}"}
            file.write(json.dumps(line) + "\n")
    return path


def make_spec(root: Path, agents: list[dict[str, Any]], **changes: Any) -> RunSpec:
    """A run of seconds; `changes` are merged section by section. Needs questions.jsonl beside it, which it writes."""
    sections: dict[str, Any] = {
        "name": "tiny",
        "seed": 3,
        "agents": agents,
        "data": {
            "train_path": str(write_questions(root / "questions.jsonl")),
            "held_out_fraction": 0.25,
            "verifier": "exact",
        },
        "algorithm": {"name": "hacpo", "beta": 0.0, "delta": 0.8},
        "rollout": {"num_generations": 4, "max_completion_length": 6, "max_prompt_length": 16},
        "training": {"steps": 3, "train_batch_size": 4, "mini_batch_size": 4, "learning_rate": 3e-3},
        "evaluation": {"eval_interval": 2},
        "checkpoint": {"save_steps": 0},
        "compute": {"device": "cpu", "num_threads": 1},
    }
    for name, section in changes.items():
        sections[name] = {**sections[name], **section} if isinstance(sections.get(name), dict) else section
    if "delta" not in changes.get("algorithm", {}):  # of the base, which suits HACPO
        sections["algorithm"] = own_settings(sections["algorithm"]["name"], sections["algorithm"])
    return RunSpec.model_validate(sections)


class HashVerifier:
    """Right or wrong by a hash of the text: random models get a signal. About one answer in three is right."""

    def __init__(self, unscorable: str = "") -> None:
        self.unscorable = unscorable

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        verdicts = []
        for completion, answer in zip(completions, answers, strict=True):
            value = hashlib.sha256(f"{completion}|{answer}".encode()).digest()[0]
            is_unscorable = bool(self.unscorable) and self.unscorable in completion
            verdicts.append(Verdict(None if is_unscorable else float(value < 85), "hash"))
        return verdicts

    def doubts(self, answers: list[str]) -> list[str]:
        return [""] * len(answers)

    def close(self) -> None: ...


class GradedVerifier(HashVerifier):
    """Partial credit by a hash of the text: 0, 0.1, ..., 1, most of which are rounded in binary."""

    def score(self, completions: list[str], answers: list[str]) -> list[Verdict]:
        pairs = zip(completions, answers, strict=True)
        values = [hashlib.sha256(f"{text}|{gold}".encode()).digest()[0] for text, gold in pairs]
        return [Verdict(value % 11 / 10, "hash") for value in values]


def train(
    spec: RunSpec, run_dir: Path, attempt: int = 1, verifier: Any = None, stop: StopFlag | None = None
) -> Trainer:
    """Train in this process and return the trainer; its events are in run_dir."""
    run_dir.mkdir(exist_ok=True)
    spool = SpoolWriter(run_dir, attempt)
    trainer = Trainer(spec, run_dir, spool, verifier or HashVerifier(), stop or StopFlag())
    try:
        trainer.train()
    finally:
        spool.close()
    return trainer


def weights(trainer: Trainer, agent: int) -> dict[str, torch.Tensor]:
    """A copy of an agent's weights."""
    model = trainer.agents[agent].policy.model  # type: ignore[attr-defined]
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_weights(left: Trainer, right: Trainer) -> bool:
    """Whether each agent's weights are the same, bit for bit."""
    return all(
        torch.equal(value, weights(right, agent)[name])
        for agent in range(len(left.agents))
        for name, value in weights(left, agent).items()
    )


def records(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """All events of one type."""
    return [record for _, record in read_records(run_dir / SPOOL_NAME) if record["type"] == kind]
