"""Step 2 of Algorithm 1: what samples rollouts, behind one small interface.

`transformers` samples with the trainer's own weights (sampler.py); `vllm` with a copy of them in another process
(vllm_engine.py), which receives the new weights after each step's updates and is then compared with the trainer.

Where the engine computes slightly different probabilities, truncated importance sampling corrects the loss (Ionides
2008; for rollout engines: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025):
a rollout weighs as much as the trainer's policy is likelier to write it than the engine's, at most a cap. There is one
weight per rollout, of mean log-probabilities as in the sequence ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch

from workers.contract.spec.run import RunSpec
from workers.contract.spec.sections import INSTALL_VLLM
from workers.model.policy import Policy
from workers.rollouts.sampler import Sample, refuse_empty, sample


def truncated_weight(trainer_mean_logp: float, engine_mean_logp: float, cap: float) -> float:
    """min(exp(trainer - engine), cap) of one rollout's mean log-probabilities by token, both at the same weights."""
    # Compared before exp: a token that the trainer holds impossible, or the engine, must not overflow.
    difference = trainer_mean_logp - engine_mean_logp
    return cap if difference >= math.log(cap) else math.exp(difference)


# Mean difference of log-probabilities by token, in nats, above which an engine has other weights than the trainer.
LOGP_DIFFERENCE_LIMIT = 0.1
CHECKED_TOKENS = 64


class EngineMissing(RuntimeError):
    """The run asks for an engine that is not installed on this host."""


class RolloutEngine(Protocol):
    """Samples responses with an agent's weights."""

    has_own_weights: bool  # a copy, which `take_weights` renews

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        rows: Sequence[int],
        keys: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
        batch_size: int,
    ) -> list[Sample]:
        """One response for each row; rows[i] is the index of row i's prompt, keys[i] its random key.

        A row's tokens follow from its key and the weights, not from the rows beside it (up to rounding). temperature 0
        is greedy, log-probabilities then at temperature 1. batch_size: sequences at once, where the engine does not
        decide that itself. Error: ValueError where a prompt is empty.
        """

    def take_weights(self) -> None:
        """From here on samples come from the policy's present weights."""

    def sleep(self) -> None:
        """Give back what memory can be given back; the next sample wakes it."""

    def wake(self) -> None:
        """Be ready to sample with the policy's weights."""

    def close(self) -> None:
        """End what it has started."""


class TransformersEngine:
    """The policy's own model, in this process: there is nothing to copy, and nothing to wake."""

    has_own_weights = False

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        rows: Sequence[int],
        keys: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
        batch_size: int,
    ) -> list[Sample]:
        refuse_empty(prompts)
        return sample(
            self.policy.model,
            prompts,
            rows,
            keys,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            eos_ids=self.policy.eos_ids,
            batch_size=batch_size,
        )

    def take_weights(self) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


def check_engine(spec: RunSpec) -> None:
    """Before models are loaded. Error: EngineMissing."""
    if spec.rollout.engine == "vllm" and find_spec("vllm") is None:
        raise EngineMissing(
            f"rollout.engine is vllm, and vLLM is not installed on this host: {INSTALL_VLLM}; or choose transformers"
        )


def make_engine(policy: Policy, spec: RunSpec, device: torch.device) -> RolloutEngine:
    """The engine that a run asks for, with the policy's present weights, on the policy's device."""
    if spec.rollout.engine == "transformers":
        return TransformersEngine(policy)
    from workers.rollouts.vllm_engine import VllmEngine  # vLLM takes seconds to import, and may not be there

    return VllmEngine(policy, spec, device)


@torch.no_grad()
def logp_difference(engine: RolloutEngine, policy: Policy, prompt: Sequence[int], max_new_tokens: int) -> float:
    """Mean over the tokens of one greedy response of |log p by the engine - log p by the trainer|, in nats."""
    [rollout] = engine.sample(
        [prompt], [0], [0], temperature=0.0, max_new_tokens=min(max_new_tokens, CHECKED_TOKENS), batch_size=1
    )
    logps, _ = policy.token_logps([prompt], [rollout.token_ids], temperature=1.0)  # (1, T)
    return (logps[0].cpu() - torch.tensor(rollout.logps)).abs().mean().item()
