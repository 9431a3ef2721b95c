"""The optimizer of one agent: AdamW, the float32 master weights that it steps, and a snapshot to roll back to.

Weights in bfloat16 are trained through float32 masters: a step of 1e-6 would vanish in bfloat16.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.run import RunSpec
from workers.model import sharding
from workers.model.loading import CPU
from workers.model.process_group import Ranks


class PolicyOptimizer:
    """Gathers gradients, steps the masters and copies them to the model.

    The snapshot, in the machine's memory, holds the last weights with which a loss and its gradient were finite. So it
    is taken at a step's first update, after the gradient is known and before the optimizer moves.
    """

    def __init__(self, model: Any, agent: AgentSpec, spec: RunSpec, ranks: Ranks) -> None:
        training = spec.training
        self._ranks, self._max_grad_norm = ranks, training.max_grad_norm
        self._stays_on_cpu = spec.compute.offloads_optimizer
        # Tied weights appear once.
        self._parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.masters = {name: self._master_of(parameter) for name, parameter in self._parameters.items()}
        # The masters that share no memory with their parameters.
        self._copies = {
            name: master
            for name, master in self.masters.items()
            if master is not self._parameters[name] and not ranks.is_sharded
        }
        # The model's folder holds neither LoRA's matrices nor shards.
        self._saved_masters = self.masters if ranks.is_sharded or agent.lora_rank else self._copies
        self.adamw = torch.optim.AdamW(
            [{"params": list(self.masters.values())}],  # a group may be empty: of an agent that is only evaluated
            lr=agent.learning_rate or training.learning_rate,
            betas=(training.adam_beta1, training.adam_beta2),
            weight_decay=training.weight_decay,
            fused=True,
        )
        self._snapshot: dict[str, Tensor] = {}
        self.has_fresh_snapshot = False  # taken, and not yet rolled back to

    def _master_of(self, parameter: Tensor) -> Tensor:
        """The float32 weights that the optimizer steps: the parameter itself, its shard, or a copy."""
        if self._ranks.is_sharded:
            return sharding.local(parameter.detach())
        if self._stays_on_cpu:
            return parameter.detach().to(CPU, torch.float32, copy=True)
        return parameter.detach().float().clone() if parameter.dtype != torch.float32 else parameter

    @property
    def num_trained(self) -> int:
        """Weights that an update changes."""
        return sum(parameter.numel() for parameter in self._parameters.values())

    def move(self, to: torch.device) -> None:
        """Bring masters and their optimizer state to a device, unless they stay on the CPU; all stay the same objects.

        After the model, whose own move replaces the data of each parameter.
        """
        for master in () if self._stays_on_cpu else self.masters.values():
            master.data = master.data.to(to)
            state = self.adamw.state.get(master, {})
            for key, value in state.items():
                state[key] = value.to(to)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those gathered: in the float32 masters, where they add up exactly."""
        # FSDP2 takes the mean over the ranks, of which each has a part of the sum.
        (loss * self._ranks.size if self._ranks.is_sharded else loss).backward()
        for name, parameter in self._parameters.items():
            master = self.masters[name]
            if master is not parameter and parameter.grad is not None:
                gradient = sharding.local(parameter.grad).to(master.device, torch.float32)
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def sum_gradients(self) -> None:
        """Sum the gathered gradients over the ranks; each has computed those of its share of the rows."""
        if not self._ranks.is_alone and not self._ranks.is_sharded:
            self._fill_gradients()
            self._ranks.add_up([master.grad for master in self.masters.values() if master.grad is not None])

    def _fill_gradients(self) -> None:
        for master in self.masters.values():
            if master.grad is None:  # a mini-batch without any active row is still an update
                master.grad = torch.zeros_like(master)

    def pop_gradients(self) -> list[Tensor]:
        """The gathered gradients of all masters, on the device; nothing stays gathered."""
        self._fill_gradients()
        gradients = [master.grad.detach() for master in self.masters.values() if master.grad is not None]
        self.discard_gradients()
        return gradients

    def discard_gradients(self) -> None:
        """Drop what backward passes have gathered, complete or not."""
        for parameter in self._parameters.values():
            parameter.grad = None
        self.adamw.zero_grad(set_to_none=True)

    def step(self, learning_rate: float, *, is_sound: bool, is_first: bool = False) -> tuple[float, bool]:
        """One optimizer step with the gathered gradients. Returns their norm before scaling, and whether it was taken.

        Without sound gradients (`is_sound` false, or a norm that is not finite) nothing changes. is_first: of the
        training step, so the weights before it become the snapshot.
        """
        self._fill_gradients()
        if self._ranks.is_sharded:
            norm = sharding.clip_grad_norm(list(self.masters.values()), self._max_grad_norm, self._ranks)
        else:
            norm = torch.nn.utils.clip_grad_norm_(self.masters.values(), self._max_grad_norm).item()
        is_applied = self._ranks.all(is_sound and math.isfinite(norm))
        if is_applied:
            if is_first:
                self._take_snapshot()
            for group in self.adamw.param_groups:
                group["lr"] = learning_rate
            self.adamw.step()
            self._push_masters()
        self.adamw.zero_grad(set_to_none=True)
        return norm, is_applied

    @torch.no_grad()
    def _push_masters(self) -> None:
        for name, master in self._copies.items():
            self._parameters[name].copy_(master)

    @torch.no_grad()
    def _take_snapshot(self) -> None:
        """Copy weights and optimizer state, by `kind/parameter`; buffers are used again."""
        present = {f"weight/{name}": master for name, master in self.masters.items()} | self._adamw_state()
        for name in self._snapshot.keys() - present.keys():
            del self._snapshot[name]
        for name, value in present.items():
            if name in self._snapshot:
                self._snapshot[name].copy_(value)
            else:
                self._snapshot[name] = value.detach().to("cpu", copy=True)
        self.has_fresh_snapshot = True

    def _adamw_state(self) -> dict[str, Tensor]:
        return {
            f"{key}/{name}": value
            for name, master in self.masters.items()
            for key, value in self.adamw.state.get(master, {}).items()
        }

    @torch.no_grad()
    def roll_back(self) -> None:
        """Return to the snapshot."""
        for name, master in self.masters.items():
            master.copy_(self._snapshot[f"weight/{name}"])
            state = self.adamw.state[master]
            for key in list(state):
                if f"{key}/{name}" in self._snapshot:
                    state[key].copy_(self._snapshot[f"{key}/{name}"])
                else:  # the optimizer had made no step yet
                    del state[key]
        self.has_fresh_snapshot = False
        self._push_masters()

    def state_tensors(self, *, with_snapshot: bool = False) -> dict[str, Tensor]:
        """What the model folder lacks for resuming, by `kind/parameter`: AdamW's tensors, masters, a fresh snapshot.

        With shards, this rank's.
        """
        tensors = {name: value.contiguous() for name, value in self._adamw_state().items()}
        tensors |= {f"master/{name}": master.detach().contiguous() for name, master in self._saved_masters.items()}
        if with_snapshot and self.has_fresh_snapshot:
            tensors |= {f"snapshot/{name}": value for name, value in self._snapshot.items()}
        return tensors

    @torch.no_grad()
    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The reverse of state_tensors."""
        self._snapshot = {}
        for joined, value in tensors.items():
            kind, name = joined.split("/", 1)
            if kind == "snapshot":
                self._snapshot[name] = value
            elif kind == "master":
                self.masters[name].copy_(value)
            else:
                # A fused AdamW needs its step counter on the device of the weights.
                self.adamw.state[self.masters[name]][kind] = value.to(self.masters[name].device).clone()
        self.has_fresh_snapshot = bool(self._snapshot)
        self._push_masters()
