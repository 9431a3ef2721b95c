"""Step 2 of Algorithm 1: the interface of what samples rollouts, and the correction of its probabilities.

`transformers` samples with the trainer's own weights (sampler.py); `vllm` with a copy of them in another process
(vllm_engine.py), which receives the new weights after each step's updates and is then compared with the trainer.

Where the engine computes slightly different probabilities, truncated importance sampling corrects the loss (Ionides
2008; for rollout engines: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025).
Each rollout has one weight, of mean log-probabilities as in the sequence ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch

from workers.contract.spec.rollout import INSTALL_VLLM
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.rollouts.sampler import Sample, SampleRequest, sample


def truncated_weight(trainer_mean_logp: float, engine_mean_logp: float, cap: float) -> float:
    """min(exp(trainer - engine), cap) of one rollout's mean log-probabilities by token, both at the same weights."""
    # Compared before exp: a token that the trainer or the engine gives probability 0 must not overflow.
    difference = trainer_mean_logp - engine_mean_logp
    return cap if difference >= math.log(cap) else math.exp(difference)


# Mean difference of log-probabilities by token, in nats, above which engine and trainer have different weights.
LOGP_DIFFERENCE_LIMIT = 0.1
CHECKED_TOKENS = 64


class EngineMissing(RuntimeError):
    """The run's engine is not installed on this host."""


class RolloutEngine(Protocol):
    """Samples responses with an agent's weights."""

    has_own_weights: bool  # a copy, which `take_weights` updates

    def sample(self, request: SampleRequest) -> list[Sample]:
        """One response for each row; it depends on the row's key and the weights alone (up to rounding)."""

    def take_weights(self) -> None:
        """Sample with the policy's present weights from now on."""

    def sleep(self) -> None:
        """Free memory; the next sample wakes the engine."""

    def wake(self) -> None:
        """Get ready to sample with the policy's weights."""

    def close(self) -> None:
        """End the engine's processes."""


class TransformersEngine:
    """The policy's own model, in this process: nothing to copy, nothing to wake."""

    has_own_weights = False

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def sample(self, request: SampleRequest) -> list[Sample]:
        return sample(self.policy.model, request, self.policy.eos_ids, self.policy.decode, self.policy.output_layer)

    def take_weights(self) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


def check_engine(spec: RunSpec) -> None:
    """Called before models are loaded. Error: EngineMissing."""
    if spec.rollout.engine == "vllm" and find_spec("vllm") is None:
        raise EngineMissing(
            f"rollout.engine is vllm, and vLLM is not installed on this host: {INSTALL_VLLM}; or choose transformers"
        )


def make_engine(policy: Policy, spec: RunSpec, device: torch.device) -> RolloutEngine:
    """The run's engine, with the policy's present weights, on the policy's device."""
    if spec.rollout.engine != "vllm":
        return TransformersEngine(policy)
    from workers.rollouts.vllm_engine import VllmEngine  # vLLM takes seconds to import, and may not be there

    return VllmEngine(policy, spec, device)


@torch.no_grad()
def logp_difference(engine: RolloutEngine, policy: Policy, prompt: Sequence[int], max_new_tokens: int) -> float:
    """Mean over the tokens of one greedy response of |log p by the engine - log p by the trainer|, in nats."""
    [rollout] = engine.sample(SampleRequest([prompt], [0], [0], 0.0, min(max_new_tokens, CHECKED_TOKENS), 1))
    logps, _ = policy.token_logps([prompt], [rollout.token_ids], temperature=1.0)  # (1, T)
    return (logps[0].cpu() - torch.tensor(rollout.logps)).abs().mean().item()
