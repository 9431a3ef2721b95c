"""Sampling ahead: a second process of an agent samples the next step's rollouts while the agent learns.

It is the same agent, made to sample only, with a copy of the weights that `begin` renews. Its rollouts depend on
weights, prompts and random keys alone, so a run repeats itself whichever process is faster. Source: one-step
off-policy training of language models, Noukhovitch et al. 2024, arXiv 2410.18252.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from workers.agents.multi_process import RankedAgent
from workers.agents.parallel import BegunCall, ParallelCalls, answered
from workers.contract.spec.run import RunSpec
from workers.questions.dataset import Question
from workers.rollouts.sampler import Sample
from workers.rollouts.vllm_engine import WeightFolder

Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Ahead:
    """Rollouts that were sampled before their step. problem: why there are none.

    batch_size: sequences at once, which memory may have halved.  used_bytes: of the process, as memory.used_bytes.
    """

    step: int
    samples: Sequence[Sample]
    batch_size: int
    notes: Sequence[str] = ()
    problem: str = ""
    used_bytes: tuple[int, int | None] = (0, None)

    def state(self) -> tuple[dict[str, Any], Columns]:
        """What resuming needs: JSON values and tensors."""
        columns = {
            "token_ids": torch.tensor([token for one in self.samples for token in one.token_ids], dtype=torch.int32),
            "logps": torch.tensor([logp for one in self.samples for logp in one.logps], dtype=torch.float64),
            "lengths": torch.tensor([len(one.token_ids) for one in self.samples], dtype=torch.int32),
            "entropies": torch.tensor([one.entropy for one in self.samples], dtype=torch.float64),
            "finished": torch.tensor([one.finished for one in self.samples], dtype=torch.bool),
            "has_stop": torch.tensor([one.has_stop for one in self.samples], dtype=torch.bool),
        }
        values = {"step": self.step, "batch_size": self.batch_size, "notes": self.notes, "problem": self.problem}
        return values, columns

    @classmethod
    def from_state(cls, values: dict[str, Any], columns: Columns) -> Ahead:
        lengths = columns["lengths"].tolist()
        parts = [[row.tolist() for row in columns[name].split(lengths)] for name in ("token_ids", "logps")]
        ends = [columns[name].tolist() for name in ("finished", "entropies", "has_stop")]
        return cls(samples=[Sample(*row) for row in zip(*parts, *ends, strict=True)], **values)


class AheadSampler:
    """The process of an agent that samples ahead, as the agent sees it."""

    def __init__(self, spec: RunSpec, agent_index: int, num_bytes: int) -> None:
        """Start it; num_bytes: of the model. Errors: AgentLost, AgentFailed."""
        self._process = RankedAgent(_sampling_only(spec, agent_index), agent_index, None)
        self._calls = ParallelCalls(1)
        self._folder = WeightFolder(num_bytes)
        self._begun: dict[int, BegunCall[Ahead]] = {}  # by step, in their order
        self._taken = -1
        self.used_bytes: tuple[int, int | None] = (0, None)  # when the last rollouts were complete

    def begin(self, step: int, questions: Sequence[Question], batch_size: int, model: Any) -> None:
        """Sample the rollouts of a step with the model's present weights, after those that were begun before."""
        path = self._folder.path / f"{step}.safetensors"
        save_file(_trained(model), path)
        [self._begun[step]] = self._calls.begin([partial(self._process.sample_with, path, step, questions, batch_size)])

    def take(self, step: int) -> Ahead | None:
        """The rollouts of a step, once they are complete; None if they were not begun.

        They are kept until `drop`. Errors: AgentLost, AgentFailed.
        """
        if step not in self._begun:
            return None
        ahead = self._begun[step]()
        self.used_bytes, self._taken = ahead.used_bytes, step
        return ahead

    def drop(self) -> None:
        """The agent has learned from the rollouts that it took."""
        self._begun.pop(self._taken, None)

    def oldest(self) -> Ahead | None:
        """The rollouts that a resumed agent needs, once they are complete: it can begin the others again."""
        return next((begun() for begun in self._begun.values()), None)

    def has_sampled_within(self, seconds: float) -> bool:
        """Whether `oldest` has its answer, at the latest after `seconds`."""
        return all(begun.has_ended_within(seconds) for begun in [*self._begun.values()][:1])

    def restore(self, ahead: Ahead) -> None:
        """Continue with the `oldest` of a checkpoint."""
        self._begun = {ahead.step: answered(ahead)}

    def close(self) -> None:
        """End the process, even while it samples."""
        self._process.close()
        self._calls.close()
        self._folder.remove()


def _sampling_only(spec: RunSpec, agent_index: int) -> RunSpec:
    """The settings of the second process: no optimizer, no reference, its share of the processor."""
    threads = spec.compute.num_threads or max(1, torch.get_num_threads() // _agents_here(spec))
    training = spec.training
    if not spec.agents[agent_index].lora_rank:  # a run without training has no LoRA matrices either
        training = training.model_copy(update={"steps": 0})
    return spec.model_copy(
        update={
            "training": training,
            "rollout": spec.rollout.model_copy(update={"max_staleness": 0}),
            "compute": spec.compute.model_copy(update={"num_threads": threads}),
        }
    )


def _agents_here(spec: RunSpec) -> int:
    """The agents of one process."""
    return 1 if spec.compute.placement == "processes" else len(spec.agents)


def _trained(model: Any) -> Columns:
    return {
        name: parameter.detach().contiguous() for name, parameter in model.named_parameters() if parameter.requires_grad
    }


@torch.no_grad()
def take_weights(model: Any, path: Path) -> None:
    """Copy the weights of a file, which `begin` wrote, into the model, and remove the file."""
    parameters = dict(model.named_parameters())
    for name, value in load_file(path).items():
        parameters[name].copy_(value)
    path.unlink()
