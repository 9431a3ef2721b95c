"""Capabilities of agents and their ratios omega, Eqs. (8) and (9), or by prompt or subject. Every run has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workers.algorithms.base.spec import CAPABILITY_FLOOR, CapabilityOptions, OmegaScope
from workers.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

SubjectSums = Mapping[str, Sequence[float]]  # by subject: sum of positive rewards, number of valid rollouts


class CapabilityTracker:
    """Capability of each agent, Eq. (9): its mean positive reward over the last `window` steps, this one too.

    scope: what `step_ratio` compares. run: these capabilities, Eq. (8).  prompt, subject (ours): the mean positive
    reward on each prompt in this step, or on its subject in the same window, with `shrinkage` rollouts of the agent's
    capability added.
    """

    def __init__(
        self,
        n_agents: int,
        window: int = 5,
        *,
        ratio_min: float = 0.1,
        ratio_max: float = 10.0,
        warmup_steps: int = 0,
        floor: float = CAPABILITY_FLOOR,
        scope: OmegaScope = "run",
        shrinkage: float = 4.0,
    ) -> None:
        self.n_agents = n_agents
        self.ratio_min, self.ratio_max = ratio_min, ratio_max
        self.warmup_steps = warmup_steps
        self.floor = floor
        self.scope, self.shrinkage = scope, shrinkage
        self.num_steps = 0
        self._history: list[deque[float]] = [deque(maxlen=window) for _ in range(n_agents)]
        self._subjects: list[deque[SubjectSums]] = [deque(maxlen=window) for _ in range(n_agents)]
        self._of_prompts: Tensor | None = None  # (n, B), of the newest step; None with the scope run

    @classmethod
    def of(cls, n_agents: int, options: CapabilityOptions) -> CapabilityTracker:
        """The tracker of a run."""
        bounds = {"ratio_min": options.ratio_min, "ratio_max": options.ratio_max}
        scope, shrinkage = options.scope, options.shrinkage
        return cls(
            n_agents, options.window, warmup_steps=options.warmup_steps, scope=scope, shrinkage=shrinkage, **bounds
        )

    def update(self, rewards: Tensor, valid: Tensor | None = None, subjects: Sequence[str] = ()) -> None:
        """Add the rewards of a step, (n, B, G); valid: (n, B, G) bool, True = scored; subjects: of the B prompts.

        A step in which an agent has no valid rollout leaves its capability unchanged.
        """
        rewards = rewards.double()
        valid = torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
        for history, own, scored in zip(self._history, rewards, valid, strict=True):
            if scored.any():
                history.append(own[scored].clamp(min=0).mean().item())
        self.num_steps += 1
        if self.scope != "run":
            self._of_prompts = self._capability_of_prompts(rewards, valid, subjects)

    def _capability_of_prompts(self, rewards: Tensor, valid: Tensor, subjects: Sequence[str]) -> Tensor:
        """(n, B): (sum of positive rewards + c P) / (number of valid rollouts + c), of the prompt or its subject.

        P itself where there is no valid rollout, or no subject.
        """
        sums, counts = rewards.clamp(min=0).where(valid, 0.0).sum(dim=2), valid.double().sum(dim=2)  # (n, B) each
        if self.scope == "subject":
            for history, own, of_own in zip(self._subjects, sums.tolist(), counts.tolist(), strict=True):
                if any(of_own):
                    history.append(_added(zip(subjects, own, of_own, strict=True)))
            windows = [_total(history) for history in self._subjects]
            pairs = [[of_agent.get(subject, (0.0, 0.0)) for subject in subjects] for of_agent in windows]
            sums, counts = rewards.new_tensor(pairs).unbind(dim=2)  # (n, B) each
        overall = self.capability[:, None].expand_as(sums)  # (n, B)
        mean = (sums + self.shrinkage * overall) / (counts + self.shrinkage)  # (n, B)
        return torch.where(counts > 0, mean, overall).clamp(min=self.floor)

    def forget(self, agent: int) -> None:
        """Restart an agent's capability from no rewards."""
        self._history[agent].clear()
        self._subjects[agent].clear()

    @property
    def capability(self) -> Tensor:
        """P, (n,) float64, Eq. (9). An agent without any valid rollout so far is at the floor."""
        means = [sum(history) / len(history) if history else 0.0 for history in self._history]
        return torch.tensor(means, dtype=torch.float64).clamp(min=self.floor)

    @property
    def floored(self) -> Tensor:
        """(n,) bool: True where the capability is only the floor. Two such agents have ratio 1."""
        return self.capability <= self.floor

    @property
    def is_warming_up(self) -> bool:
        """True if every ratio is still 1."""
        return self.num_steps <= self.warmup_steps

    def ratio(self) -> Tensor:
        """Omega, (n, n) float64, Eq. (8): ratio[a, b] = clip(P[a] / P[b]); all 1 during the warm-up steps."""
        if self.is_warming_up:
            return torch.ones(self.n_agents, self.n_agents, dtype=torch.float64)
        return self._unclamped().clamp(self.ratio_min, self.ratio_max)

    def step_ratio(self) -> Tensor:
        """The newest step's omega: (n, n), Eq. (8), or by prompt (n, n, B) with another scope than the run."""
        of_prompts = self._of_prompts
        if of_prompts is None:
            return self.ratio()
        quotient = of_prompts[:, None] / of_prompts[None, :]  # (n, n, B)
        return torch.ones_like(quotient) if self.is_warming_up else quotient.clamp(self.ratio_min, self.ratio_max)

    def clamped(self) -> Tensor:
        """(n, n) bool: True where the clip of Eq. (8) changed `ratio`, or both capabilities are at the floor."""
        if self.is_warming_up:
            return torch.zeros(self.n_agents, self.n_agents, dtype=torch.bool)
        raw, floored = self._unclamped(), self.floored
        both_floored = (floored[:, None] & floored[None, :]).fill_diagonal_(False)
        return (raw < self.ratio_min) | (raw > self.ratio_max) | both_floored

    def _unclamped(self) -> Tensor:
        capability = self.capability
        return (capability[:, None] / capability[None, :]).fill_diagonal_(1.0)  # (n, n)

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs, as JSON values."""
        subjects = {"subjects": [list(history) for history in self._subjects]} if self.scope == "subject" else {}
        return {"num_steps": self.num_steps, "history": [list(history) for history in self._history], **subjects}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A checkpoint of a run with another scope has no subjects: they start empty."""
        self.num_steps = state["num_steps"]
        _refill(self._history, state["history"])
        _refill(self._subjects, state.get("subjects", [[]] * self.n_agents))


def _refill(histories: Iterable[deque[Any]], of_agents: Iterable[Iterable[Any]]) -> None:
    for history, values in zip(histories, of_agents, strict=True):
        history.clear()
        history.extend(values)


def _total(steps: Iterable[SubjectSums]) -> SubjectSums:
    return _added((subject, total, count) for of_step in steps for subject, (total, count) in of_step.items())


def _added(parts: Iterable[tuple[str, float, float]]) -> SubjectSums:
    """Sums and counts added up by subject, in their order; prompts without one are left out."""
    result: dict[str, list[float]] = {}
    for subject, total, count in parts:
        if subject:
            before = result.setdefault(subject, [0.0, 0.0])
            before[0] += total
            before[1] += count
    return result
