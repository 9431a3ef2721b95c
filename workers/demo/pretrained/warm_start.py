"""The pretrained demo's two agents, made from one model: fine-tuned on other kinds of word problems each.

The second keeps two of three layers of the model, so that size, weights and skills differ. Deterministic by seed on
one machine.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract.demo_recipe import PRETRAINED_SYSTEM_PROMPT
from workers.contract.spec.agent import AgentSpec
from workers.demo.pretrained.word_problems import KINDS, WordProblem
from workers.demo.warm_start import batch_of

BATCH_SIZE = 16
OTHER_KINDS_SHARE = 0.1  # of the problems that an agent is trained on


@dataclass(frozen=True)
class PretrainedAgent:
    """An agent of the pretrained demo. layers: every one, or two of three; steps: of fine-tuning."""

    kinds: tuple[str, ...]
    steps: int
    learning_rate: float
    drops_every_third_layer: bool = False


_SINGLE, _OTHER = tuple(KINDS)[:3], tuple(KINDS)[3:]
AGENTS = {
    "whole": PretrainedAgent(_SINGLE, 16, 3e-5),
    "two-thirds": PretrainedAgent(_OTHER, 150, 2e-4, drops_every_third_layer=True),
}


def without_every_third_layer(model: Any) -> Any:
    """The model with layers 3, 6, 9 ... left out, renumbered; it has to be trained again."""
    layers = model.model.layers
    rest = [layer for index, layer in enumerate(layers) if index % 3 != 2]
    for index, layer in enumerate(rest):
        layer.self_attn.layer_idx = index
    model.model.layers = type(layers)(rest)
    model.config = copy.deepcopy(model.config)
    model.config.num_hidden_layers = len(rest)
    return model


def _batch(agent: PretrainedAgent, by_kind: dict[str, list[WordProblem]], tokenizer: Any, draw: random.Random) -> Any:
    from workers.model.prompts import encode_question

    others = [kind for kind in by_kind if kind not in agent.kinds]
    reader = AgentSpec(name="any", model="any")  # with a run's own prompt format
    rows = []
    for _ in range(BATCH_SIZE):
        kind = draw.choice(others if draw.random() < OTHER_KINDS_SHARE else agent.kinds)
        problem = draw.choice(by_kind[kind])
        solution = [*tokenizer(problem.solution, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        rows.append((encode_question(tokenizer, reader, problem.text, [], PRETRAINED_SYSTEM_PROMPT), solution))
    return batch_of(rows)


def fine_tune(
    agent: PretrainedAgent,
    model: Any,
    tokenizer: Any,
    problems: list[WordProblem],
    folder: Path,
    seed: int,
    report: Callable[[int], None] = lambda step: None,
) -> None:
    """Train a loaded model (fp32) on its kinds of problems and save it as a Hugging Face folder.

    report: called with each finished step.
    """
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    if agent.drops_every_third_layer:
        model = without_every_third_layer(model)
    by_kind: dict[str, list[WordProblem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.skill, []).append(problem)
    draw = random.Random(f"{seed} {agent.kinds}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=agent.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    device = next(model.parameters()).device
    model.train()
    for step in range(agent.steps):
        share = min((step + 1) / 5, (agent.steps - step) / agent.steps)  # warm-up, then linear decay
        for group in optimizer.param_groups:
            group["lr"] = agent.learning_rate * share
        ids, labels = (part.to(device) for part in _batch(agent, by_kind, tokenizer, draw))
        is_answer = labels[:, 1:] != -100
        with torch.autocast(device.type, torch.bfloat16):
            # Padding is on the right, so the causal mask hides it from every other token.
            hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # (b, S - 1, d)
            logits = model.lm_head(hidden[is_answer])  # (answer tokens, V)
        loss = functional.cross_entropy(logits.float(), labels[:, 1:][is_answer])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step + 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
