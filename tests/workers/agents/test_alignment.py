"""gradient_alignment, the cosine of a source's gradient with the learner's own, against a second derivation."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support.workers.tiny import make_spec, records, same_weights, train
from workers.agents.messages import LearnerRow, Response
from workers.agents.updates import Inputs, run_updates
from workers.model.policy import Policy

SHARED = Response("1", "1", "stop", 2, 2, -1.0)


@pytest.fixture
def policy(tmp_path, pair) -> Policy:
    spec = make_spec(tmp_path, pair, algorithm={"delta": 0.2})
    return Policy(spec.agents[0], spec, torch.device("cpu"))


def mean_logp(policy: Policy, response: list[int]) -> torch.Tensor:
    logps, _ = policy.token_logps([[2, 3]], [response])
    return logps.mean()


def measured(policy: Policy, tmp_path, pair, rows: list[tuple[int, list[int], float, float]], **algorithm):
    """Alignments of learner 0; rows are (source, response, advantage, old mean log-probability)."""
    spec = make_spec(tmp_path, pair, algorithm={"delta": 0.2, "beta": 0.0, **algorithm})
    plan, inputs = [], {}
    for number, (source, response, advantage, old) in enumerate(rows):
        is_self = source == 0
        plan.append(
            LearnerRow(0, source, number, is_self, advantage, 1.0 if is_self else 2.0, None if is_self else SHARED)
        )
        inputs[number] = Inputs([2, 3], response, old, len(response))
    blocks = [[row for row in plan if row.is_self], [row for row in plan if not row.is_self]]
    report = run_updates(policy, spec, blocks, lambda row: inputs[row.sample], 1e-3, 0, measures_alignment=True)
    return report.alignment


def test_cosine_equals_that_of_the_formulas_written_out(policy, tmp_path, pair):
    responses = [[4, 5, 1], [6, 7, 8, 1], [9, 4, 1], [10, 11, 12, 1]]
    present = [mean_logp(policy, response).item() for response in responses]
    # Own rows at s = 1. Shared: s = .9 and .85 inside [.8, 1]; the last far below, which teaches nothing at m = 0.
    olds = [present[0], present[1], present[2] - math.log(0.9), present[3] - math.log(0.85)]
    advantages = [1.2, -0.4, 0.8, -1.5]
    rows = [(source, responses[i], advantages[i], olds[i]) for i, source in enumerate((0, 0, 1, 1))]
    rows.append((1, responses[0], 5.0, present[0] - math.log(0.5)))

    parameters = list(policy.model.parameters())

    def gradient(terms) -> torch.Tensor:
        found = torch.autograd.grad(-sum(terms), parameters)
        return torch.cat([part.flatten() for part in found]).double()

    own = gradient([mean_logp(policy, responses[i]) * advantages[i] for i in (0, 1)])
    # sg(c)^2 * omega * A * log s
    cross = gradient([mean_logp(policy, responses[i]) * advantages[i] * s**2 * 2.0 for i, s in ((2, 0.9), (3, 0.85))])
    expected = torch.nn.functional.cosine_similarity(own, cross, dim=0).item()
    assert 0.01 < abs(expected) < 0.99
    assert measured(policy, tmp_path, pair, rows) == {1: pytest.approx(expected, abs=1e-4)}


@pytest.mark.parametrize(("advantage", "cosine"), [(2.0, 1.0), (-2.0, -1.0)])
def test_same_rollout_aligns_fully_with_itself_and_against_its_opposite(policy, tmp_path, pair, advantage, cosine):
    old = mean_logp(policy, [4, 5, 1]).item()
    rows = [(0, [4, 5, 1], 1.0, old), (1, [4, 5, 1], advantage, old - math.log(0.9))]
    assert measured(policy, tmp_path, pair, rows) == {1: pytest.approx(cosine, abs=1e-5)}


@pytest.mark.parametrize("case", ["all clipped", "own without advantage"])
def test_missing_where_a_gradient_is_zero(policy, tmp_path, pair, case):
    old = mean_logp(policy, [4, 5, 1]).item()
    is_clipped = case == "all clipped"
    rows = [
        (0, [4, 5, 1], 1.0 if is_clipped else 0.0, old),
        (1, [6, 5, 1], 1.0, mean_logp(policy, [6, 5, 1]).item() - math.log(0.5 if is_clipped else 0.9)),
    ]
    assert measured(policy, tmp_path, pair, rows) == {1: None}


def test_measuring_changes_no_weight_and_comes_at_its_interval(tmp_path, pair):
    trainers = [
        train(make_spec(tmp_path, pair, telemetry={"alignment_interval": interval}), tmp_path / str(interval))
        for interval in (0, 2)
    ]
    assert same_weights(*trainers)
    told = [record for record in records(tmp_path / "2", "metrics") if "gradient_alignment" in record["values"]]
    assert [(record["step"], record["agent"], record["source"]) for record in told] == [
        (2, "Qwen", "Llama"),
        (2, "Llama", "Qwen"),
    ]
    assert all(-1 <= record["values"]["gradient_alignment"] <= 1 for record in told)
    assert not [r for r in records(tmp_path / "0", "metrics") if "gradient_alignment" in r["values"]]
