"""What makes a step cheap is really there: counted in rows and tokens that pass through the model, not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from tests.support.workers.tiny import make_agent, make_spec
from workers.agents.local import LocalAgent
from workers.agents.messages import LearnerRow
from workers.agents.updates import Inputs, run_updates
from workers.model.policy import Policy
from workers.questions.dataset import split_questions
from workers.rollouts import sampler
from workers.rollouts.sampler import SampleRequest, sample

PROMPTS = [[2, 3, 4], [5, 6]]
TOKENS = 80  # more than the cache's room: it grows on the way


def make_policy(root: Path, **training: Any) -> tuple[Policy, Any]:
    agent = {"name": "A", "model": str(make_agent(root / "model", "qwen3", seed=4, max_position_embeddings=256))}
    spec = make_spec(root, [agent], algorithm={"name": "gspo"}, training=training)
    return Policy(spec.agents[0], spec, torch.device("cpu")), spec


@contextmanager
def shapes_seen(model: Any) -> Iterator[list[tuple[int, int]]]:
    """(rows, tokens) of every pass through a model."""
    seen: list[tuple[int, int]] = []
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    yield seen
    handle.remove()


def draw(policy: Policy) -> list[sampler.Sample]:
    rows = [0, 0, 0, 1, 1, 1, 1, 1]
    request = SampleRequest(PROMPTS, rows, list(range(len(rows))), 1.0, TOKENS, 64)
    return sample(policy.model, request, policy.eos_ids)


def test_each_prompt_is_read_once_and_each_token_in_one_row_pass(tmp_path):
    policy, _ = make_policy(tmp_path)
    with shapes_seen(policy.model) as seen:
        samples = draw(policy)
    assert seen[0] == (2, 3)  # two prompts, padded to three tokens, for eight samples
    assert {tokens for _, tokens in seen[1:]} == {1}
    assert len(seen) == max(len(found.token_ids) for found in samples)  # the last token is not read
    assert seen[-1][0] < 8  # finished rows have left


def test_cache_that_is_written_in_place_gives_the_bits_of_transformers_own(tmp_path, monkeypatch):
    policy, _ = make_policy(tmp_path)
    with torch.no_grad():  # few rows end early
        policy.model.model.embed_tokens.weight[policy.turn_eos] *= 0.3
    ours = draw(policy)
    assert max(len(found.token_ids) for found in ours) > 70  # grown at least once
    assert len({len(found.token_ids) for found in ours}) > 1  # and rows have left
    monkeypatch.setattr(sampler, "sampling_cache", lambda config: DynamicCache(config=config))
    assert draw(policy) == ours


def test_own_rollouts_are_not_scored_again_where_the_sampler_has_the_trainers_weights(tmp_path):
    agent = {"name": "A", "model": str(make_agent(tmp_path / "model", "qwen3", seed=4))}
    spec = make_spec(tmp_path, [agent], algorithm={"name": "gspo"})
    learner = LocalAgent(spec.agents[0], spec, torch.device("cpu"), None)
    questions = split_questions(spec.data).train
    with shapes_seen(learner.policy.model) as seen:
        learner.generate(0, questions[:4])
    # One pass reads the four prompts; every other reads one new token in each row. None reads whole rollouts.
    assert [rows for rows, tokens in seen if tokens > 1] == [4]


def test_rows_without_advantage_do_not_pass_the_model_but_stay_in_the_denominator(tmp_path):
    policy, spec = make_policy(tmp_path, train_batch_size=1, mini_batch_size=1)  # x 4 rollouts: 4 planned rows
    advantages = [1.0, 0.0, 0.0, -0.5]
    responses = [[4, 5, 1], [6, 7, 1], [8, 9, 1], [10, 3, 1]]
    with torch.no_grad():
        logps, _ = policy.token_logps([PROMPTS[0]] * 4, responses)
    rows = [LearnerRow(0, 0, number, True, advantage, 1.0) for number, advantage in enumerate(advantages)]
    inputs = [Inputs(PROMPTS[0], ids, mean.item(), 3) for ids, mean in zip(responses, logps.mean(dim=1), strict=True)]
    with shapes_seen(policy.model) as seen:
        report = run_updates(policy, spec, [rows], lambda row: inputs[row.sample], 1e-3, 0)
    assert [count for count, _ in seen] == [2]
    # s = 1: -(1 * 1.0 + 1 * -0.5) / 4 rows
    assert report.losses == [pytest.approx(-0.125, abs=1e-6)]


def test_micro_batches_hold_rows_of_like_length(tmp_path):
    policy, spec = make_policy(tmp_path, train_batch_size=1, mini_batch_size=1, micro_batch_size=2)
    responses = [[4] * 9, [5] * 2, [6] * 8, [7] * 3]
    rows = [LearnerRow(0, 0, number, True, 1.0, 1.0) for number in range(4)]
    inputs = [Inputs(PROMPTS[0], ids, -2.0, len(ids)) for ids in responses]
    with shapes_seen(policy.model) as seen:
        run_updates(policy, spec, [rows], lambda row: inputs[row.sample], 1e-3, 0)
    # Prompts of 3 tokens; the last token of a row is not read: 3 + 3 - 1, and 3 + 9 - 1. In order of coming: 11, 10.
    assert seen == [(2, 5), (2, 11)]


def test_optimizer_is_the_fused_one(tmp_path):
    policy, _ = make_policy(tmp_path)
    assert policy.optimizer.adamw.defaults["fused"] is True
