"""GSPO and GRPO equal TRL's GRPOTrainer._compute_loss on the same batch: loss and gradient, with its own model pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.workers.tiny import make_agent, make_spec
from workers.agents.messages import LearnerRow
from workers.agents.updates import Inputs, run_updates
from workers.contract.advantages import OverlongPenalty
from workers.model.policy import Policy

TEMPERATURE = 0.7
MAX_LENGTH = 9

PROMPTS = [[2, 3, 4], [5, 6], [7, 8, 9, 10], [2, 9]]
RESPONSES = [[4, 5, 1], [6, 7, 8, 9, 1], [10], [11, 12, 4, 5, 6, 7]]
# Both signs, and ratios on either side of the bands.
ADVANTAGES = [1.3, -0.7, 0.4, -1.1]
SHIFTS = [0.0, 3e-3, -5e-4, 1e-4]


def trl_trainer(folder: Path, root: Path, form: str, level: str, beta: float, bounds: tuple[float, float]) -> Any:
    """TRL's own trainer on the same model, in evaluation mode: no dropout, no scaling for accumulation.

    form: its loss_type.  bounds: epsilon and epsilon_high.
    """
    # Loaded where it is needed: it takes each process of the tests three seconds.
    grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer", reason="needs the dev extra: trl")
    dataset = pytest.importorskip("datasets").Dataset.from_list([{"prompt": "1+2="}] * 4)
    config = grpo_trainer.GRPOConfig(
        output_dir=str(root),
        use_cpu=True,
        bf16=False,
        report_to=[],
        loss_type=form,
        importance_sampling_level=level,
        beta=beta,
        epsilon=bounds[0],
        epsilon_high=bounds[1],
        max_completion_length=MAX_LENGTH,
        temperature=TEMPERATURE,
        use_bias_correction_kl=False,
        per_device_train_batch_size=4,
        num_generations=4,
    )
    trainer = grpo_trainer.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=dataset,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    trainer.model.eval()
    return trainer


def trl_inputs(policy: Policy, old: list[list[float]], reference: Any, beta: float) -> dict[str, torch.Tensor]:
    """The batch as TRL wants it: prompts padded on the left, completions on the right."""
    wide, long = max(map(len, PROMPTS)), max(map(len, RESPONSES))

    def right(rows: list[list[Any]], filler: Any) -> torch.Tensor:
        return torch.tensor([[*row, *([filler] * (long - len(row)))] for row in rows])

    found = {
        "prompt_ids": torch.tensor([[0] * (wide - len(row)) + row for row in PROMPTS]),
        "prompt_mask": torch.tensor([[0] * (wide - len(row)) + [1] * len(row) for row in PROMPTS]),
        "completion_ids": right(RESPONSES, 0),
        "completion_mask": right([[1] * len(row) for row in RESPONSES], 0),
        "advantages": torch.tensor(ADVANTAGES),
        "num_items_in_batch": torch.tensor(float(sum(map(len, RESPONSES)))),
        "old_per_token_logps": right(old, 0.0),
    }
    if beta:
        with torch.no_grad():
            found["ref_per_token_logps"] = policy.token_logps(PROMPTS, RESPONSES, model=reference)[0]
    return found


@pytest.mark.parametrize(("beta", "masked"), [(0.0, None), (0.05, None), (0.05, 3)])
@pytest.mark.parametrize(
    ("name", "form", "level", "bounds"),
    [
        ("gspo", "grpo", "sequence", (3e-4, 4e-4)),
        ("hacpo", "grpo", "sequence", (3e-4, 4e-4)),
        ("grpo", "grpo", "token", (0.2, 0.28)),
        ("dapo", "dapo", "token", (0.2, 0.28)),
        ("dr_grpo", "dr_grpo", "token", (0.2, 0.2)),
        ("cispo", "cispo", "token", (0.2, 5.0)),
        ("sapo", "sapo", "token", (0.2, 0.28)),
    ],
)
def test_loss_and_gradient_equal_those_of_trl(tmp_path, name, form, level, bounds, beta, masked):
    """masked: the row that was cut, and has no place in the loss."""
    folder = make_agent(tmp_path / "model", "qwen3", seed=4)
    spec = make_spec(
        tmp_path,
        [{"name": "A", "model": str(folder)}],
        algorithm={"name": name, "beta": beta},
        rollout={"temperature": TEMPERATURE, "max_completion_length": MAX_LENGTH},
        training={"train_batch_size": 1, "mini_batch_size": 1, "max_grad_norm": 1e6, "micro_batch_size": 3},
    )
    policy = Policy(spec.agents[0], spec, torch.device("cpu"))
    if beta:
        with torch.no_grad():  # a reference that differs
            for parameter in policy.reference.parameters():
                parameter.mul_(1.1)
    scale = 100.0 if level == "token" else 1.0  # past the wider band in places
    with torch.no_grad():
        logps, _ = policy.token_logps(PROMPTS, RESPONSES)
    old = [
        [value + shift * scale * (1 + place) for place, value in enumerate(row[: len(ids)].tolist())]
        for row, ids, shift in zip(logps, RESPONSES, SHIFTS, strict=True)
    ]

    trainer = trl_trainer(folder, tmp_path, form, level, beta, bounds)
    batch = trl_inputs(policy, old, policy.reference, beta)
    if masked is not None:
        batch["num_items_in_batch"] -= len(RESPONSES[masked])
        batch["completion_mask"][masked] = 0
    expected = trainer._compute_loss(trainer.model, batch)
    expected.backward()
    gradients = {key: parameter.grad.clone() for key, parameter in trainer.model.named_parameters()}
    assert max(gradient.abs().max().item() for gradient in gradients.values()) > 1e-3

    rows = [LearnerRow(0, 0, number, True, advantage, 1.0) for number, advantage in enumerate(ADVANTAGES)]
    inputs = [
        Inputs(prompt, ids, sum(values) / len(values), len(ids), values)
        for prompt, ids, values in zip(PROMPTS, RESPONSES, old, strict=True)
    ]
    ours: dict[str, torch.Tensor] = {}
    step = policy.optimizer.step

    def caught(*arguments: Any, **more: Any) -> tuple[float, bool]:
        ours.update({key: parameter.grad.clone() for key, parameter in policy.model.named_parameters()})
        return step(*arguments, **more)

    policy.optimizer.step = caught  # type: ignore[method-assign]
    report = run_updates(
        policy, spec, [rows], lambda row: "truncated" if row.sample == masked else inputs[row.sample], 1e-3, 0
    )
    assert report.losses[0] == pytest.approx(expected.item(), abs=2e-6)
    assert ours.keys() == gradients.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(ours[key], gradient, rtol=1e-4, atol=2e-6)
    shares = trainer._metrics["eval"]
    low = sum(result.clipped_low for result in report.results[0]) / 4
    high = sum(result.clipped_high for result in report.results[0]) / 4
    if level == "sequence" and masked is None:
        assert [low] == shares["clip_ratio/low_mean"]
        assert [high] == shares["clip_ratio/high_mean"]
        assert low + high > 0


@pytest.mark.parametrize(("limit", "cache"), [(100, 20), (9, 9), (26, 7), (4096, 1)])
def test_overlong_penalty_is_that_of_trl(limit, cache):
    get_penalty = pytest.importorskip("trl.rewards").get_soft_overlong_punishment
    lengths = [*range(min(limit, 200) + 3), limit - cache, limit - 1, limit, limit + 1]
    expected = get_penalty(max_completion_len=limit, soft_punish_cache=cache)([[1] * length for length in lengths])
    assert [OverlongPenalty(limit, cache).of(length) for length in lengths] == expected
    assert min(expected) == -1.0
