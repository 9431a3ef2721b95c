"""Capabilities of agents and their ratios omega, Eqs. (8) and (9). Every run has them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from workers.algorithms.base.spec import CAPABILITY_FLOOR, CapabilityOptions
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


class CapabilityTracker:
    """Capability of each agent, Eq. (9): its mean positive reward over the last `window` steps, this one too."""

    def __init__(self, n_agents: int, options: CapabilityOptions | None = None) -> None:
        self.n_agents, self.options = n_agents, options or CapabilityOptions()
        self.num_steps = 0
        self._history: list[deque[float]] = [deque(maxlen=self.options.window) for _ in range(n_agents)]

    def update(self, rewards: Tensor, valid: Tensor | None = None) -> None:
        """Add the rewards of a step, (n, B, G); valid: (n, B, G) bool, True = scored.

        A step in which an agent has no valid rollout leaves its capability unchanged.
        """
        rewards = rewards.double()
        valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
        for history, own, scored in zip(self._history, rewards, valid, strict=True):
            if scored.any():
                history.append(own[scored].clamp(min=0).mean().item())
        self.num_steps += 1

    def forget(self, agent: int) -> None:
        """Restart an agent's capability from no rewards."""
        self._history[agent].clear()

    @property
    def capability(self) -> Tensor:
        """P, (n,) float64, Eq. (9). An agent without any valid rollout so far is at the floor."""
        means = [sum(history) / len(history) if history else 0.0 for history in self._history]
        return torch.tensor(means, dtype=torch.float64).clamp(min=CAPABILITY_FLOOR)

    @property
    def floored(self) -> Tensor:
        """(n,) bool: True where the capability is only the floor. Two such agents have ratio 1."""
        return self.capability <= CAPABILITY_FLOOR

    @property
    def is_warming_up(self) -> bool:
        """True if every ratio is still 1."""
        return self.num_steps <= self.options.warmup_steps

    def ratio(self) -> Tensor:
        """Omega, (n, n) float64, Eq. (8): ratio[a, b] = clip(P[a] / P[b]); all 1 during the warm-up steps."""
        if self.is_warming_up:
            return torch.ones(self.n_agents, self.n_agents, dtype=torch.float64)
        return self._unclamped().clamp(self.options.ratio_min, self.options.ratio_max)

    def clamped(self) -> Tensor:
        """(n, n) bool: True where the clip of Eq. (8) changed `ratio`, or both capabilities are at the floor."""
        if self.is_warming_up:
            return torch.zeros(self.n_agents, self.n_agents, dtype=torch.bool)
        raw, floored = self._unclamped(), self.floored
        both_floored = (floored[:, None] & floored[None, :]).fill_diagonal_(False)
        return (raw < self.options.ratio_min) | (raw > self.options.ratio_max) | both_floored

    def _unclamped(self) -> Tensor:
        capability = self.capability
        return (capability[:, None] / capability[None, :]).fill_diagonal_(1.0)  # (n, n)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, as JSON values."""
        return {"num_steps": self.num_steps, "history": [list(history) for history in self._history]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]
        for history, values in zip(self._history, state["history"], strict=True):
            history.clear()
            history.extend(values)
