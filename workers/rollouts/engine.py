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
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal, NamedTuple, Protocol

import torch

from workers.contract.memory.footprint import keeps_decoder, shape_of
from workers.contract.spec.rollout import INSTALL_VLLM
from workers.contract.spec.run import RunSpec
from workers.model.memory import free_memory, is_out_of_memory
from workers.model.policy import Policy
from workers.rollouts.decoder import FixedDecoder, NotFixed
from workers.rollouts.sampler import Sample, SampleRequest, sample


def truncated_weight(trainer_mean_logp: float, engine_mean_logp: float, cap: float) -> float:
    """min(exp(trainer - engine), cap) of one rollout's mean log-probabilities by token, both at the same weights."""
    # Compared before exp: a token that the trainer or the engine gives probability 0 must not overflow.
    difference = trainer_mean_logp - engine_mean_logp
    return cap if difference >= math.log(cap) else math.exp(difference)


# Mean difference of log-probabilities by token, in nats, above which engine and trainer have different weights.
LOGP_DIFFERENCE_LIMIT = 0.1
CHECKED_TOKENS = 64
# Capturing a CUDA graph takes about as long as so many tokens without one.
FEWEST_TOKENS = 16


class EngineMissing(RuntimeError):
    """The run's engine is not installed on this host."""


class RolloutEngine(Protocol):
    """Samples responses with an agent's weights."""

    has_own_weights: bool  # a copy, which `take_weights` updates

    def sample(self, request: SampleRequest) -> list[Sample]:
        """One response for each row; it depends on the row's key and the weights alone (up to rounding)."""

    def take_weights(self) -> None:
        """Sample with the policy's present weights from now on."""

    def take_notes(self) -> list[str]:
        """Notes for the log since the last call."""

    def sleep(self) -> None:
        """Free memory; the next sample wakes the engine."""

    def wake(self) -> None:
        """Get ready to sample with the policy's weights."""

    def close(self) -> None:
        """End the engine's processes."""


class TransformersEngine:
    """The policy's own model, in this process: nothing to copy, nothing to wake.

    way: with a cache that grows (sampler.py), or a static one, on a GPU with CUDA graphs (decoder.py). auto: static on
    a GPU, where it is faster, and growing where that fails.
    """

    has_own_weights = False
    way: Literal["auto", "growing", "static"] = "auto"

    def __init__(self, policy: Policy, *, keeps_decoder: bool = False) -> None:
        """keeps_decoder: between two samplings, so that nothing is captured again."""
        self.policy, self._keeps_decoder = policy, keeps_decoder
        self._decoder = FixedDecoder()
        self._obstacle = ""  # why the decoder is not used any more
        self._notes: list[str] = []

    def sample(self, request: SampleRequest) -> list[Sample]:
        policy = self.policy
        request = replace(request, textless=policy.textless)
        arguments = (policy.model, request, policy.eos_ids, policy.decode, policy.output_layer)
        is_suited = policy.model.device.type == "cuda" and request.longest >= FEWEST_TOKENS
        if self._obstacle or not (self.way == "static" or (self.way == "auto" and is_suited)):
            return sample(*arguments)
        try:
            if policy.ranks.is_sharded:
                raise NotFixed("its weights are gathered anew for each sampling")
            return sample(*arguments, decoder=self._decoder)
        except Exception as error:  # whatever it is: a request that is wrong fails below too
            self._obstacle = _obstacle(error)
            self._notes.append(f"samples with a cache that grows: {self._obstacle}")
        finally:
            if not self._keeps_decoder or self._obstacle:
                self._decoder.release()
        free_memory()
        return sample(*arguments)

    def take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def take_weights(self) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


def _obstacle(error: BaseException) -> str:
    """Why a decoder failed. A failure in a capture is followed by one of its end."""
    if isinstance(error, NotFixed):
        return str(error)
    while isinstance(error.__context__, Exception):
        error = error.__context__
    reason = " ".join(str(error).split())[:200]
    if is_out_of_memory(error):
        return f"memory ran out with one of fixed size ({reason})"
    return f"one of fixed size failed ({type(error).__name__}: {reason})"


def check_engine(spec: RunSpec) -> None:
    """Called before models are loaded. Error: EngineMissing."""
    if spec.rollout.engine == "vllm" and find_spec("vllm") is None:
        raise EngineMissing(
            f"rollout.engine is vllm, and vLLM is not installed on this host: {INSTALL_VLLM}; or choose transformers"
        )


def make_engine(policy: Policy, spec: RunSpec, device: torch.device) -> RolloutEngine:
    """The run's engine, with the policy's present weights, on the policy's device."""
    if spec.rollout.engine != "vllm":
        return TransformersEngine(policy, keeps_decoder=_keeps_decoder(policy, spec, device))
    from workers.rollouts.vllm_engine import VllmEngine  # vLLM takes seconds to import, and may not be there

    return VllmEngine(policy, spec, device)


def _keeps_decoder(policy: Policy, spec: RunSpec, device: torch.device) -> bool:
    """Whether the memory of sampling may stay while the agent learns, as the estimate of memory says."""
    shape = shape_of(policy.model.config.to_dict(), policy.num_parameters)
    if device.type != "cuda" or shape is None or spec.compute.offloads_idle:
        return False
    gpu_bytes = torch.cuda.get_device_properties(device).total_memory
    return keeps_decoder(spec, shape, policy.dtype.itemsize, gpu_bytes)


class LogpDifference(NamedTuple):
    """Over tokens, of |log p by the engine - log p by the trainer|, in nats."""

    mean: float
    largest: float


@torch.no_grad()
def logp_difference(
    engine: RolloutEngine, policy: Policy, prompt: Sequence[int], max_new_tokens: int
) -> LogpDifference:
    """The difference on the tokens of one greedy response."""
    [rollout] = engine.sample(SampleRequest([prompt], [0], [0], 0.0, min(max_new_tokens, CHECKED_TOKENS), 1))
    logps, _ = policy.token_logps([prompt], [rollout.token_ids], temperature=1.0)  # (1, T)
    differences = (logps[0].cpu() - torch.tensor(rollout.logps)).abs()  # (T,)
    return LogpDifference(differences.mean().item(), differences.max().item())
