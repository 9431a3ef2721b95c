"""Makes the demo's two agents and their questions: `python -m workers.demo OUT_DIR [--seed N] [--steps N]`.

Two small models of different families, sizes and tokenizers are taught arithmetic well and the rules of order badly,
each knowing the rules the other lacks. What is left to learn is a choice between two procedures, as it is for large
models under reinforcement learning. Deterministic by seed; both agents are trained at the same time, one thread each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.demo_recipe import AGENTS, HELD_OUT_FILE, RECIPE_FILE, RECIPE_VERSION, SEED, TRAIN_FILE
from workers.demo_task import Problem, make_problems, write_questions

STEPS = 1000
BATCH_SIZE = 64
LEARNING_RATE = 3e-3
WARMUP_STEPS = 50
# How often each agent is shown the right procedure: complementary, so that each has something to teach.
RIGHT_SHARE = {
    "qwen3": {
        "multiply first": 0.4,
        "left to right": 0.02,
        "brackets of a sum": 0.02,
        "brackets of a difference": 0.02,
    },
    "llama": {
        "multiply first": 0.02,
        "left to right": 0.5,
        "brackets of a sum": 0.5,
        "brackets of a difference": 0.5,
    },
}


def make_tokenizer(has_digit_pairs: bool) -> Any:
    r"""A tokenizer of single characters and `\boxed{`; with digit pairs also 10 to 99 as one piece each."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "<eos>", "<unk>", *"0123456789+-*^()=;}", "\\boxed{"]
    pattern = r"\\boxed\{|[\s\S]"
    if has_digit_pairs:
        pieces += [str(value) for value in range(10, 100)]
        pattern = r"\\boxed\{|[1-9][0-9]|[\s\S]"
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
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


def make_model(agent: str, tokenizer: Any) -> Any:
    """The agent's untrained model: Qwen3 of about 100k parameters, or Llama of about 250k."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shared: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "head_dim": 32,  # a size that vLLM's CPU attention supports
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    if agent == "qwen3":
        return Qwen3ForCausalLM(
            Qwen3Config(hidden_size=64, intermediate_size=192, num_attention_heads=2, num_key_value_heads=1, **shared)
        )
    return LlamaForCausalLM(
        LlamaConfig(hidden_size=96, intermediate_size=288, num_attention_heads=3, num_key_value_heads=3, **shared)
    )


class _Corpus:
    """Worked problems as token ids, drawn with the agent's share of right workings."""

    def __init__(self, agent: str, problems: list[Problem], tokenizer: Any, seed: int) -> None:
        self._random = random.Random(f"{seed} {agent}")
        self._share = RIGHT_SHARE[agent]
        self._problems = problems
        end = [tokenizer.eos_token_id]
        self._ids = [
            (
                tokenizer(problem.text).input_ids,
                tokenizer(problem.right).input_ids + end,
                tokenizer(problem.mistaken).input_ids + end,
            )
            for problem in problems
        ]

    def draw(self) -> tuple[list[int], list[int]]:
        """Prompt and working of one random problem."""
        index = self._random.randrange(len(self._problems))
        prompt, right, mistaken = self._ids[index]
        is_right = self._random.random() < self._share[self._problems[index].skill]
        return prompt, right if is_right else mistaken


def _learning_rate(step: int, steps: int) -> float:
    """Warm-up, then half a cosine to 0."""
    if step < WARMUP_STEPS:
        return LEARNING_RATE * (step + 1) / WARMUP_STEPS
    return LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)))


def _batch(corpus: _Corpus) -> tuple[Any, Any]:
    """Ids (b, S) and labels (b, S); labels are -100 where they do not count: in the prompt and the padding."""
    import torch

    drawn = [corpus.draw() for _ in range(BATCH_SIZE)]
    width = max(len(prompt) + len(working) for prompt, working in drawn)
    ids = torch.zeros(BATCH_SIZE, width, dtype=torch.long)
    labels = torch.full((BATCH_SIZE, width), -100)
    for row, (prompt, working) in enumerate(drawn):
        end = len(prompt) + len(working)
        ids[row, :end] = torch.tensor(prompt + working)
        labels[row, len(prompt) : end] = torch.tensor(working)
    return ids, labels


def train_agent(agent: str, folder: Path, seed: int, steps: int, report: Callable[[int], None]) -> None:
    """Teach one agent and save it as a plain Hugging Face folder. `report` hears each finished step."""
    import torch
    from torch.nn import functional
    from transformers.utils import logging

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tokenizer = make_tokenizer(has_digit_pairs=agent == "llama")
    model = make_model(agent, tokenizer)
    corpus = _Corpus(agent, make_problems(seed)[0], tokenizer, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(step, steps)
        ids, labels = _batch(corpus)
        # Padding stands on the right, behind every token that counts: the causal mask alone keeps it out.
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits  # (b, S - 1, V)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step + 1)
    logging.disable_progress_bar()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _train_in_process(agent: str, folder: Path, seed: int, steps: int, done: Any) -> None:
    """What a child process runs: `done` is a shared counter of finished steps."""

    def report(step: int) -> None:
        done.value = step

    train_agent(agent, folder, seed, steps, report)


def _train_both(folder: Path, seed: int, steps: int, say: Callable[[float], None]) -> None:
    """Each agent in a process of its own, at the same time. Error: RuntimeError where one of them fails."""
    context = multiprocessing.get_context("spawn")
    counters = [context.Value("i", 0) for _ in AGENTS]
    processes = [
        context.Process(target=_train_in_process, args=(agent, folder / agent, seed, steps, counter), daemon=True)
        for agent, counter in zip(AGENTS, counters, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        while any(process.is_alive() for process in processes):
            say(sum(counter.value for counter in counters) / (steps * len(counters)))
            next((process for process in processes if process.is_alive()), processes[0]).join(0.5)
            if any(process.exitcode for process in processes):
                break
        failed = [agent for agent, process in zip(AGENTS, processes, strict=True) if process.exitcode]
        if failed:
            raise RuntimeError(f"Training the demo's agent {failed[0]} failed; its error stands above.")
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _identity(seed: int, steps: int) -> dict[str, Any]:
    return {"recipe_version": RECIPE_VERSION, "seed": seed, "steps": steps}


def is_valid(folder: Path, seed: int = SEED, steps: int = STEPS) -> bool:
    """Whether a folder holds what this recipe makes, undamaged."""
    try:
        recipe = json.loads((folder / RECIPE_FILE).read_text(encoding="utf-8"))
        if any(recipe.get(key) != value for key, value in _identity(seed, steps).items()):
            return False
        return all(_digest(folder / name) == digest for name, digest in recipe["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def make_demo(
    folder: Path, seed: int = SEED, steps: int = STEPS, say: Callable[[float], None] = lambda share: None
) -> bool:
    """Make the demo's models and questions in `folder`; False where a valid cache was there already.

    The folder appears whole or not at all: all is written beside it and renamed.
    """
    if is_valid(folder, seed, steps):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made = workshop / "made"
        made.mkdir()
        write_questions(made, *make_problems(seed))
        _train_both(made, seed, steps, say)
        files = {str(path.relative_to(made)): _digest(path) for path in sorted(made.rglob("*")) if path.is_file()}
        recipe = {**_identity(seed, steps), "files": files}
        (made / RECIPE_FILE).write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            os.rename(folder, workshop / "replaced")
        os.rename(made, folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Make or find the demo's models and say how far it is on one line."""
    parser = argparse.ArgumentParser(prog="python -m workers.demo", description="Make the demo's models and questions.")
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps of each agent (default %(default)s)")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def say(share: float) -> None:
        if is_terminal:
            print(
                f"\rteaching two small models: {share:4.0%} {time.monotonic() - begin:4.0f} s", end="", file=sys.stderr
            )

    made = make_demo(options.folder, options.seed, options.steps, say)
    if is_terminal and made:
        print(file=sys.stderr)
    result = {
        "folder": str(options.folder),
        "made": made,
        "seconds": round(time.monotonic() - begin, 1),
        "models": {name: str(options.folder / agent) for agent, name in AGENTS.items()},
        "train": str(options.folder / TRAIN_FILE),
        "held_out": str(options.folder / HELD_OUT_FILE),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
