"""Where agents live. The trainer talks to `Agent` objects in text and numbers and does not know which kind it got.

`LocalPlacement`: all agents in this process, taking turns on one device.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file

from workers.benchmarks import Question
from workers.messages import Generated, Response, Row, UpdateReport
from workers.policy import Policy, choose_device
from workers.randomness import derived_key
from workers.rollout import Sample, sample
from workers.spec import AgentSpec, RunSpec
from workers.updates import Inputs, retokenize, run_updates


class Agent(Protocol):
    """What the trainer asks of an agent, wherever it lives."""

    name: str

    def describe(self) -> dict[str, Any]: ...
    def fits(self, questions: Sequence[Question]) -> list[bool]: ...
    def longest_prompt(self, questions: Sequence[Question]) -> int: ...
    def generate(self, step: int, questions: Sequence[Question]) -> Generated: ...
    def update(self, mini_batches: Sequence[Sequence[Row]], learning_rate: float) -> UpdateReport: ...
    def evaluate(self, step: int, questions: Sequence[Question]) -> list[str]: ...
    def save(self, folder: Path) -> None: ...
    def save_state(self, stem: Path) -> None: ...
    def load_state(self, stem: Path) -> None: ...


class LocalPlacement:
    """All agents in this process."""

    def __init__(self, spec: RunSpec, folders: Sequence[Path] | None = None) -> None:
        """Load the agents: the spec's models, or the checkpoint `folders`, one for each agent."""
        if spec.compute.num_threads:
            torch.set_num_threads(spec.compute.num_threads)
        device = choose_device(spec)
        self.device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.agents = [
            LocalAgent(agent, spec, device, None if folders is None else folders[index])
            for index, agent in enumerate(spec.agents)
        ]


class LocalAgent:
    """One agent in this process. Between `generate` and `update` it keeps the token ids of its own rollouts."""

    def __init__(self, agent: AgentSpec, spec: RunSpec, device: torch.device, folder: Path | None) -> None:
        self.name = agent.name
        self.spec = spec
        self.policy = Policy(agent, spec, device, folder=folder)
        self._failures_in_a_row = 0
        self._encoded: dict[str, list[int]] = {}
        self._prompts: list[list[int]] = []
        self._own: dict[tuple[int, int], Inputs | str] = {}
        self._scoring_differences: list[float] = []

    def describe(self) -> dict[str, Any]:
        """What people want to read about the agent in the log, and what a checkpoint will weigh."""
        model = self.policy.model
        return {
            "architecture": type(model).__name__,
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
            "dtype": str(model.dtype).removeprefix("torch."),
            "context_length": self.policy.context_length,
        }

    def fits(self, questions: Sequence[Question]) -> list[bool]:
        """Whether each question's prompt is at most max_prompt_length tokens of this agent, and not empty."""
        limit = self.spec.rollout.max_prompt_length
        return [0 < len(self._encode(question)) <= limit for question in questions]

    def longest_prompt(self, questions: Sequence[Question]) -> int:
        """Tokens of the longest of these questions' prompts."""
        return max((len(self._encode(question)) for question in questions), default=0)

    def _encode(self, question: Question) -> list[int]:
        if question.question not in self._encoded:
            self._encoded[question.question] = self.policy.encode_prompt(question.question)
        return self._encoded[question.question]

    def _sample(
        self, kind: str, step: int, questions: Sequence[Question], per_prompt: int, temperature: float
    ) -> list[Sample]:
        rollout = self.spec.rollout
        agent_seed = self.policy.agent.stable_seed
        return sample(
            self.policy.model,
            [self._encode(question) for question in questions],
            [index for index in range(len(questions)) for _ in range(per_prompt)],
            [
                derived_key(kind, self.spec.seed, agent_seed, step, question.id, number)
                for question in questions
                for number in range(per_prompt)
            ],
            temperature=temperature,
            max_new_tokens=rollout.max_completion_length,
            eos_ids=self.policy.eos_ids,
            batch_size=rollout.rollout_batch_size,
        )

    def generate(self, step: int, questions: Sequence[Question]) -> Generated:
        """G rollouts of each question, scored by this agent's own trainer weights."""
        per_prompt = self.spec.num_generations
        samples = self._sample("rollout", step, questions, per_prompt, self.spec.rollout.temperature)
        self._prompts = [self._encode(question) for question in questions]
        kept = [self._counted(found) for found in samples]
        sampled = [_mean(found.logps[: len(ids)]) for found, ids in zip(samples, kept, strict=True)]
        scored = sampled
        self._scoring_differences = []
        if not self.policy.sampling_logps_are_exact:
            scored = self._score([(index // per_prompt, ids) for index, ids in enumerate(kept)])
            self._scoring_differences = [abs(a - b) for a, b in zip(sampled, scored, strict=True)]
        self._own = {}
        responses: list[list[Response]] = [[] for _ in questions]
        for index, (found, ids, mean_logp) in enumerate(zip(samples, kept, scored, strict=True)):
            prompt, number = divmod(index, per_prompt)
            self._own[prompt, number] = Inputs(self._prompts[prompt], ids, mean_logp, len(ids)) if ids else "empty"
            responses[prompt].append(self._response(found, ids, mean_logp))
        entropy = (sum(found.entropy for found in samples), float(sum(len(found.token_ids) for found in samples)))
        return Generated(responses, entropy)

    def _counted(self, found: Sample) -> list[int]:
        """The response tokens that count: with the EOS, unless it is stripped."""
        stripped = self.spec.algorithm.eos == "strip" and found.finished
        return found.token_ids[:-1] if stripped else found.token_ids

    def _response(self, found: Sample, ids: list[int], mean_logp: float) -> Response:
        body = found.token_ids[:-1] if found.finished else found.token_ids
        text = self.policy.decode(body)
        is_literal = self.spec.algorithm.eos == "literal"
        return Response(
            text=text,
            shared_text=self.policy.decode(found.token_ids, literal=True) if is_literal else text,
            finish_reason="stop" if found.finished else "length",
            num_tokens=len(found.token_ids),
            length=len(ids),
            mean_logp=mean_logp,
        )

    @torch.no_grad()
    def _score(self, rows: list[tuple[int, list[int]]]) -> list[float]:
        """Mean log-probabilities of own responses (prompt index, ids) as the update will compute them."""
        found = [0.0] * len(rows)
        order = sorted((index for index in range(len(rows)) if rows[index][1]), key=lambda index: len(rows[index][1]))
        size = self.spec.training.micro_batch_size
        for start in range(0, len(order), size):
            chunk = order[start : start + size]
            logps, mask = self.policy.token_logps(
                [self._prompts[rows[index][0]] for index in chunk], [rows[index][1] for index in chunk]
            )
            for index, value in zip(chunk, (logps.sum(1) / mask.sum(1)).tolist(), strict=True):
                found[index] = value
        return found

    def update(self, mini_batches: Sequence[Sequence[Row]], learning_rate: float) -> UpdateReport:
        """One optimizer step for each mini-batch, in order."""

        def inputs_of(row: Row) -> Inputs | str:
            if row.response is None:
                return self._own[row.prompt, row.sample]
            if not row.response.length:
                return "empty"
            ids = retokenize(self.policy, row.response, self.spec.algorithm, self.spec.rollout.max_completion_length)
            if isinstance(ids, str):
                return ids
            return Inputs(self._prompts[row.prompt], ids, row.response.mean_logp, row.response.length)

        report = run_updates(self.policy, self.spec, mini_batches, inputs_of, learning_rate, self._failures_in_a_row)
        self._failures_in_a_row = report.failures_in_a_row
        if not self.policy.sampling_logps_are_exact:
            report.sampling_logp_differences = self._scoring_differences
        return report

    def evaluate(self, step: int, questions: Sequence[Question]) -> list[str]:
        """One response text for each question: greedy unless the spec says otherwise."""
        samples = self._sample("evaluation", step, questions, 1, self.spec.evaluation.temperature)
        return [self.policy.decode(found.token_ids[:-1] if found.finished else found.token_ids) for found in samples]

    def save(self, folder: Path) -> None:
        """An ordinary Hugging Face model folder."""
        self.policy.save(folder)

    def save_state(self, stem: Path) -> None:
        """What resuming needs beside the model folder: `stem`.safetensors and `stem`.json."""
        save_file(self.policy.state_tensors(), stem.with_suffix(".safetensors"))
        stem.with_suffix(".json").write_text(json.dumps({"failures_in_a_row": self._failures_in_a_row}))

    def load_state(self, stem: Path) -> None:
        """The reverse of save_state."""
        self.policy.load_state_tensors(load_file(stem.with_suffix(".safetensors")))
        self._failures_in_a_row = json.loads(stem.with_suffix(".json").read_text())["failures_in_a_row"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
