"""Rollouts by vLLM, seen from the agent: an engine in a process of its own (vllm_child.py), and its weights.

It gets token ids and a seed for each row, never text. New weights go over as tensors (on a GPU by CUDA IPC: nothing is
copied), or as a model folder in memory where a checkpoint names them otherwise than the model does. On a GPU the engine
sleeps while the trainer works, and then holds neither weights nor cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from workers import heartbeat
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.rollouts.sampler import Sample, refuse_empty
from workers.rollouts.vllm_process import EngineSettings, Order, serve_engine
from workers.rollouts.weight_transfer import WeightFolder

END_S = 10.0
MAX_SHARED_TENSORS = 256  # on a CPU each takes a file descriptor in both processes


class EngineFailed(RuntimeError):
    """The engine's process could not do what it was asked, or is gone."""


class VllmEngine:
    """One agent's vLLM. Where it stands: `_is_asleep`, and `_is_current`: it has the policy's present weights."""

    has_own_weights = True

    def __init__(self, policy: Policy, spec: RunSpec, device: torch.device) -> None:
        """Start an engine with the policy's present weights. Error: EngineFailed, here or at the first order."""
        self._policy = policy
        self._on_gpu = device.type == "cuda"
        self._folder = WeightFolder(_num_bytes(policy))
        policy.save(self._folder.path)
        self._sends_tensors = _can_send_tensors(policy, self._folder.path, device)
        # spawn: a fork would inherit the run directory's lock, the trainer's death pipe and its CUDA context.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve_engine, args=(theirs, _settings(policy, spec, self._folder.path, device)), daemon=True
        )
        self._process.start()
        theirs.close()
        self._is_starting = True  # on a CPU beside all that the trainer still has to do
        self._is_current, self._is_asleep = True, False
        self.sleep()  # the next agent's engine starts on the same GPU

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
        """See RolloutEngine. vLLM decides itself how many rows it takes at once, at most rollout_batch_size."""
        refuse_empty(prompts)
        self.wake()
        seeds = [key >> 1 for key in keys]  # 63 bits: vLLM takes signed numbers
        stop_ids = list(self._policy.eos_ids)
        outputs = self._ask("generate", Order(prompts, rows, seeds, temperature, max_new_tokens, stop_ids))
        self.sleep()
        # vLLM tells no distributions: -log p of the sampled tokens, whose mean is their entropy, stands in for it.
        return [Sample(ids, logps, ids[-1] in stop_ids, -sum(logps)) for ids, logps in outputs]

    def take_weights(self) -> None:
        """The policy has new weights: they go over now, or on waking where the engine sleeps."""
        self._is_current = False
        if not self._is_asleep:
            self.wake()

    def sleep(self) -> None:
        """Free the GPU of weights and cache; on a CPU there is nothing to free."""
        if self._on_gpu and not self._is_asleep:
            self._ask("sleep")
            self._is_asleep, self._is_current = True, False

    def wake(self) -> None:
        """First room for the weights, then the weights, then room for the cache: in this order the peak is lowest."""
        if self._is_asleep:
            self._ask("wake", "weights")
        if not self._is_current:
            self._hand_over()
        if self._is_asleep:
            self._ask("wake", "kv_cache")
            self._is_asleep = False

    def close(self) -> None:
        """End the engine's process, by the end of its pipe, and remove the weights that it was given."""
        self._connection.close()
        self._process.join(END_S)
        self._process.kill()
        self._process.join()
        self._folder.remove()

    def _hand_over(self) -> None:
        if self._sends_tensors:
            # On a CPU a tensor that is sent moves to shared memory for good: a copy of it goes.
            self._ask(
                "take_tensors",
                [
                    (name, parameter.detach() if self._on_gpu else parameter.detach().clone())
                    for name, parameter in self._policy.model.named_parameters()
                ],
            )
        else:
            self._policy.save(self._folder.path)
            self._ask("take_folder", str(self._folder.path))
        self._is_current = True

    def _ask(self, name: str, argument: Any = None) -> Any:
        """What the engine answers to an order. Error: EngineFailed."""
        if self._is_starting:
            self._answer()
            self._is_starting = False
            if self._sends_tensors:
                self._folder.remove()  # read, and not written again
        with suppress(BrokenPipeError):  # then its end is read below
            self._connection.send((name, argument))
        return self._answer()

    def _answer(self) -> Any:
        try:
            while True:
                kind, value = self._connection.recv()
                if kind == "done":
                    return value
                if kind == "failed":
                    raise EngineFailed(f"the vLLM engine of {self._policy.agent.name} failed: {value}")
                heartbeat.send_heartbeat()
        except EOFError:
            self._process.join(END_S)
            raise EngineFailed(
                f"the vLLM engine of {self._policy.agent.name} ended with exit status {self._process.exitcode}: "
                "the trainer's log says more"
            ) from None


def _settings(policy: Policy, spec: RunSpec, folder: Path, device: torch.device) -> EngineSettings:
    length = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    return EngineSettings(
        folder=str(folder),
        device=device.type,
        gpu_index=device.index or 0,
        dtype=str(policy.dtype).removeprefix("torch."),
        max_model_len=min(length, policy.context_length or length),
        max_num_seqs=spec.rollout.rollout_batch_size,
        gpu_memory_utilization=spec.rollout.gpu_memory_utilization,
        num_threads=spec.compute.num_threads,
    )


def _can_send_tensors(policy: Policy, folder: Path, device: torch.device) -> bool:
    """Whether the model's parameters are what its checkpoint in `folder` holds, and the engine can read them there."""
    if device.index:  # the engine sees that GPU alone, as its first: a handle would name another
        return False
    saved: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            saved |= set(file.keys())
    parameters = dict(policy.model.named_parameters())
    has_few = device.type == "cuda" or len(parameters) <= MAX_SHARED_TENSORS
    return set(parameters) == saved and has_few


def _num_bytes(policy: Policy) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in policy.model.parameters())
