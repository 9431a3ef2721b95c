"""The last weights that are known to be good, to roll back to when updates keep failing.

Good means: with these weights a loss and its gradient were finite. A snapshot is therefore taken at a step's first
update, after the gradient is known and before the optimizer moves.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Snapshot:
    """A copy of float32 weights and optimizer state in the machine's own memory, by `kind/parameter`."""

    def __init__(self, masters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._masters, self._optimizer = masters, optimizer
        self.tensors: dict[str, Tensor] = {}
        self.is_fresh = False  # taken, and not yet rolled back to

    @torch.no_grad()
    def take(self) -> None:
        """Copy the present state; buffers are used again."""
        present = self._present()
        for name in self.tensors.keys() - present.keys():
            del self.tensors[name]
        for name, value in present.items():
            if name in self.tensors:
                self.tensors[name].copy_(value)
            else:
                self.tensors[name] = value.detach().to("cpu", copy=True)
        self.is_fresh = True

    @torch.no_grad()
    def restore(self) -> None:
        """Put the copy back. The caller copies the weights on to the model where it keeps others."""
        for name, master in self._masters.items():
            master.copy_(self.tensors[f"weight/{name}"])
            state = self._optimizer.state[master]
            for key in list(state):
                if f"{key}/{name}" in self.tensors:
                    state[key].copy_(self.tensors[f"{key}/{name}"])
                else:  # the optimizer had made no step yet
                    del state[key]
        self.is_fresh = False

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over the `tensors` of a saved snapshot."""
        self.tensors, self.is_fresh = tensors, bool(tensors)

    def _present(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            tensors[f"weight/{name}"] = master
            for key, value in self._optimizer.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
        return tensors
